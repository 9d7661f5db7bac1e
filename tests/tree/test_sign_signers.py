"""Who signs: openssl with a key file, pkcs11-tool with a token of SoftHSM, programs as sites write them.

All for real; what goes wrong is told in a sentence, and no passphrase is on a command line.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build.engine.signers import key_signer
from driverforge_build.engine.userprograms import command_signer
from driverforge_build.ports import ToSign
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    InputError,
    NotPermitted,
    TemporaryFailure,
    Unavailable,
)
from driverforge_core.modsign import message_of
from support.fakes.mockpath import MockPath
from support.process import require, run
from support.samples.signingkeys import SigningKey, bare, cms, signing_key
from support.samples.tinyko import tiny_ko
from support.skipping import provided

KO = tiny_ko(["version=580.178.04", "depends="])
PIN, PASSPHRASE = "4711-pin", "a passphrase"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("locked"), password=PASSPHRASE)


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    """The key that comes after `key`."""
    return signing_key(tmp_path_factory.mktemp("following"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of SoftHSM with two keys: `modules`, id a1, which is that of `key`, and `next`, id a2."""

    configuration: Path
    library: Path

    def uri(self, path: str = "token=site;object=modules", query: str = "") -> str:
        return f"pkcs11:{path}?module-path={self.library}{query}"


@pytest.fixture(scope="module")
def token(key: SigningKey, following: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> Token:
    provided(lambda: require("softhsm2-util", "pkcs11-tool", "openssl"))
    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\n")
    library = next(Path("/usr/lib").rglob("libsofthsm2.so"))
    environment = {"SOFTHSM2_CONF": str(configuration)}
    made = ["--init-token", "--free", "--label", "site", "--so-pin", "00000000", "--pin", PIN]
    run("softhsm2-util", *made, env=environment)
    for name, number, file in (("modules", "a1", key.key), ("next", "a2", following.key)):
        with_key = ["--import", file, "--token", "site", "--label", name, "--id", number, "--pin", PIN]
        run("softhsm2-util", *with_key, env=environment)
    return Token(configuration=configuration, library=library)


@pytest.fixture
def module(tmp_path: Path) -> ToSign:
    path = tmp_path / "nvidia.ko"
    path.write_bytes(KO)
    return ToSign(module=path, algorithm="sha256", digest=hashlib.sha256(KO).digest())


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch, token: Token) -> str:
    monkeypatch.setenv("SOFTHSM2_CONF", str(token.configuration))
    monkeypatch.setenv("KBUILD_SIGN_PIN", PIN)
    return PIN


def test_a_key_in_a_file_signs(key: SigningKey, module: ToSign) -> None:
    assert key_signer(str(key.key))(module) == bare(module.module, key)


def test_a_passphrase_comes_from_the_environment(
    locked: SigningKey, module: ToSign, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = key_signer(str(locked.key))
    with pytest.raises(NotPermitted, match="needs a passphrase") as caught:
        signer(module)
    assert "KBUILD_SIGN_PIN" in caught.value.resolution
    monkeypatch.setenv("KBUILD_SIGN_PIN", "another one")
    with pytest.raises(NotPermitted, match="is wrong") as caught:
        signer(module)
    assert "another one" not in caught.value.render()
    monkeypatch.setenv("KBUILD_SIGN_PIN", PASSPHRASE)
    assert message_of(signer(module), KO, locked.certificate, ("sha256",))


def test_files_that_hold_no_key(key: SigningKey, module: ToSign) -> None:
    with pytest.raises(InputError, match="the key /no/such cannot be read"):
        key_signer("/no/such")(module)
    with pytest.raises(CommandFailed, match="openssl of --sign-key exited"):
        key_signer(str(key.file))(module)


@pytest.mark.parametrize(
    "path",
    ["token=site;object=modules", "token=site;id=%a1", "token=site;id=%a1;object=modules;type=private"],
)
@pytest.mark.usefixtures("pin")
def test_a_key_in_a_token_signs(path: str, key: SigningKey, token: Token, module: ToSign) -> None:
    assert key_signer(token.uri(path))(module) == bare(module.module, key)


@pytest.mark.usefixtures("pin")
def test_of_two_keys_in_a_token_the_one_that_is_named_signs(
    key: SigningKey, following: SigningKey, token: Token, module: ToSign
) -> None:
    """pkcs11-tool signs with the first key that it finds, whatever --label says."""
    for name, pair in (("modules", key), ("next", following)):
        assert key_signer(token.uri(f"token=site;object={name}"))(module) == bare(module.module, pair)


@pytest.mark.usefixtures("pin")
@pytest.mark.parametrize("path", ["object=others", "object=next;id=%a1", "id=%a3"])
def test_a_key_that_a_token_does_not_have_is_none_of_its_others(
    path: str, token: Token, module: ToSign
) -> None:
    with pytest.raises(InputError, match="the token has no such key"):
        key_signer(token.uri(f"token=site;{path}"))(module)


@pytest.mark.usefixtures("pin")
def test_every_digest_is_signed_in_a_token_too(key: SigningKey, token: Token, module: ToSign) -> None:
    for name in ("sha384", "sha512"):
        asked = ToSign(module=module.module, algorithm=name, digest=hashlib.new(name, KO).digest())
        assert key_signer(token.uri())(asked) == bare(module.module, key, digest=name)


@pytest.mark.usefixtures("pin")
def test_what_is_wrong_with_a_token_is_said(
    token: Token, module: ToSign, key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(kind: type[DriverforgeError], uri: str) -> str:
        with pytest.raises(kind) as caught:
            message_of(key_signer(uri)(module), KO, key.certificate, ("sha256",))
        assert PIN not in caught.value.render()
        return caught.value.render()

    assert "there is no such token" in said(Unavailable, token.uri("token=other;object=modules"))
    assert "no PKCS#11 module /no.so" in said(InputError, "pkcs11:token=site;object=a?module-path=/no.so")
    assert "names no module" in said(InputError, "pkcs11:token=site;object=modules")
    assert "does not name a token and a key" in said(InputError, token.uri("token=site"))
    secret = said(InputError, token.uri(query="&pin-value=0815"))
    assert "the PIN is in the URI" in secret
    assert "0815" not in secret
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    assert "cannot be loaded" in said(Unavailable, f"pkcs11:token=site;object=modules?module-path={broken}")
    monkeypatch.setenv("KBUILD_SIGN_PIN", "0000")
    assert "PIN in KBUILD_SIGN_PIN is wrong" in said(NotPermitted, token.uri())
    monkeypatch.delenv("KBUILD_SIGN_PIN")
    assert "set KBUILD_SIGN_PIN" in said(InputError, token.uri())
    assert "set KBUILD_SIGN_PIN" in said(DriverforgeError, token.uri("token=site;id=%a1"))


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MockPath:
    mock = MockPath(tmp_path / "bin")
    mock.folder.mkdir()
    monkeypatch.setenv("PATH", f"{mock.folder}:/usr/bin:/bin")
    return mock


def test_a_tool_that_says_nothing_is_told_with_what_it_was_to_do(
    key: SigningKey, module: ToSign, scripts: MockPath
) -> None:
    scripts.add("openssl", "cat >/dev/null")
    with pytest.raises(CommandFailed, match="openssl of --sign-key printed nothing") as silent:
        key_signer(str(key.key))(module)
    assert silent.value.details == (f"it was to sign {module.module.name}",)
    assert "run it yourself: openssl pkeyutl -sign" in silent.value.resolution
    scripts.add("pkcs11-tool", "exit 3")
    library = scripts.folder / "openssl"
    with pytest.raises(CommandFailed, match="pkcs11-tool of --sign-key exited 3") as failed:
        key_signer(f"pkcs11:token=site;object=modules?module-path={library}")
    assert failed.value.details == ("it was to list its keys",)


def test_programs_as_people_write_them(
    key: SigningKey, module: ToSign, scripts: MockPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key service that takes a digest and prints base64, one that takes the file, openssl's own message."""
    monkeypatch.setenv("KEY", str(key.key))
    monkeypatch.setenv("CERTIFICATE", str(key.file))
    scripts.add("kms", 'openssl pkeyutl -sign -inkey "$KEY" -pkeyopt digest:$DRIVERFORGE_HASH | base64')
    scripts.add("blobs", 'cat >/dev/null; openssl dgst -sha256 -sign "$KEY" "$DRIVERFORGE_MODULE"')
    scripts.add(
        "cms",
        'cat >/dev/null; openssl cms -sign -binary -noattr -nocerts -outform DER -md "$DRIVERFORGE_HASH" '
        '-signer "$CERTIFICATE" -inkey "$KEY" -in "$DRIVERFORGE_MODULE"',
    )
    wanted = cms(module.module, key)
    for name in ("kms", "blobs", "cms"):
        answer = command_signer((name, "--key", "of the site"))(module)
        assert message_of(answer, KO, key.certificate, ("sha256",)) == wanted, name
    assert "--key of the site" in scripts.calls("kms")[0]


def test_what_is_wrong_with_a_program_is_said(key: SigningKey, module: ToSign, scripts: MockPath) -> None:
    scripts.add("refuses", "echo 'denied: key is disabled' >&2; exit 3")
    scripts.add("asks", "echo 'Enter the PIN:'")
    with pytest.raises(CommandFailed, match="refuses of --sign-command exited 3") as caught:
        command_signer(("refuses", "--pin", "1234"))(module)
    assert "denied: key is disabled" in caught.value.render()
    assert "1234" not in caught.value.render(), "a CI log is read by more people than a list of processes"
    with pytest.raises(InputError, match="the signer gave no signature") as empty:
        message_of(command_signer(("asks",))(module), KO, key.certificate, ("sha256",))
    assert "Enter the PIN:" in empty.value.render()
    scripts.add("busy", "exit 75")
    with pytest.raises(TemporaryFailure, match="busy of --sign-command exited 75"):
        command_signer(("busy",))(module)
    scripts.add("sleeps", "exec sleep 60")
    with pytest.raises(TemporaryFailure, match=r"did not end in 0\.3 s"):
        command_signer(("sleeps",), patience=0.3)(module)
    with pytest.raises(Unavailable, match="no-such-program"):
        command_signer(("no-such-program",))(module)


def test_a_program_gets_the_digest_and_knows_its_module(module: ToSign, scripts: MockPath) -> None:
    scripts.add(
        "tells", 'cat; printf "%s %s %s" "$DRIVERFORGE_MODULE" "$DRIVERFORGE_HASH" "$DRIVERFORGE_DIGEST"'
    )
    told = f"{module.module} sha256 {module.digest.hex()}".encode()
    assert command_signer(("tells",))(module) == module.digest + told


@pytest.mark.usefixtures("pin")
def test_no_secret_is_on_a_command_line(
    token: Token, locked: SigningKey, module: ToSign, scripts: MockPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openssl", "pkcs11-tool"):
        scripts.add(name, "cat >/dev/null; exit 1")
    for where in (token.uri(), str(locked.key)):
        with pytest.raises(DriverforgeError):
            key_signer(where)(module)
    seen = str([*scripts.calls("openssl"), *scripts.calls("pkcs11-tool")])
    assert os.environ["KBUILD_SIGN_PIN"] not in seen
    assert "env:KBUILD_SIGN_PIN" in seen
