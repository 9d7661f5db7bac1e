"""Modules that our signing signed, in a kernel that Secure Boot locked down: it takes them, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from driverforge_build.engine.signers import key_signer
from driverforge_build.ports import ToSign
from driverforge_core.modinfo import with_signature
from driverforge_core.modsign import message_of
from support.machines import kmods
from support.machines.guest import Guest, Machine
from support.machines.kernels import Image, Kernel
from support.machines.secureboot import PASSPHRASE, SecureBoot, secure_boot
from support.samples.signingkeys import SigningKey, signing_key
from support.skipping import provided


@pytest.fixture(scope="module")
def boot() -> SecureBoot:
    return provided(secure_boot)


def sign(module: Path, key: SigningKey, digest: str = "sha256") -> bytes:
    content = module.read_bytes()
    asked = ToSign(module=module, algorithm=digest, digest=hashlib.new(digest, content).digest())
    answer = key_signer(str(key.key))(asked)
    return with_signature(content, message_of(answer, content, key.certificate, (digest,)))


@pytest.mark.timeout(600)
def test_a_locked_down_kernel_takes_what_we_signed_with_a_key_that_it_has(
    boot: SecureBoot, image: Image, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key lies in the firmware's db, and its file has a passphrase."""
    monkeypatch.setenv("KBUILD_SIGN_PIN", PASSPHRASE)
    module = kmods.mock(kernel) / "nvidia.ko"
    other = signing_key(tmp_path / "other", password=PASSPHRASE)
    ours = sign(module, boot.key)
    files = {
        "ours.ko": ours,
        "other.ko": sign(module, other),
        "changed.ko": ours.replace(b"license=", b"License=", 1),
        "bare.ko": module.read_bytes(),
    }
    machine = Machine(image=boot.signed(image, tmp_path), memory=1024, firmware=boot.firmware)
    with Guest.start(machine, saved=False) as guest:
        guest.put({f"/m/{name}": content for name, content in files.items()})
        state = guest.run(
            "mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown"
        ).ok()
        assert "[integrity]" in state
        keys = guest.run("cat /proc/keys").ok()
        assert f": {boot.key.certificate.key_id}: X509.rsa" in keys, "as the label and module-set.json say it"
        said = {name: guest.run(f"insmod /m/{name} 2>&1 && rmmod nvidia").output for name in files}
    assert said["ours.ko"] == ""
    assert "Key was rejected by service" in said["other.ko"]
    assert "rejected" in said["changed.ko"]
    assert "Operation not permitted" in said["bare.ko"] or "rejected" in said["bare.ko"]
