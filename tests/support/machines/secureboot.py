"""Guests whose firmware starts signed kernels only, and whose kernels then take signed modules only.

It is Debian's OVMF, with the key in its db that comes with it: "snakeoil", private half included.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from support import aptfetch
from support.machines.kernels import Image
from support.process import run
from support.samples.signingkeys import SigningKey

PASSPHRASE = "snakeoil"


@dataclass(frozen=True, slots=True, kw_only=True)
class Firmware:
    """Its program, and its variables with the keys."""

    code: Path
    variables: Path

    def words(self, folder: Path) -> list[str]:
        """QEMU's words; variables are written to, so a guest has its own in its folder."""
        own = folder / "variables"
        shutil.copyfile(self.variables, own)
        flash = "if=pflash,format=raw"
        return [
            *("-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"),
            *(
                "-drive",
                f"{flash},unit=0,readonly=on,file={self.code}",
                "-drive",
                f"{flash},unit=1,file={own}",
            ),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureBoot:
    """A firmware, and the key that it trusts, whose file has a passphrase."""

    firmware: Firmware
    key: SigningKey

    def signed(self, image: Image, folder: Path) -> Image:
        """The same kernel, signed with the key."""
        archive = aptfetch.archive()
        sbsign = archive.unpacked([archive.newest("sbsigntool", suite="bookworm")]) / "usr/bin/sbsign"
        clear, vmlinuz = folder / "clear.key", folder / "vmlinuz"
        run("openssl", "pkey", "-in", self.key.key, "-passin", f"pass:{PASSPHRASE}", "-out", clear)
        run(sbsign, "--key", clear, "--cert", self.key.file, "--output", vmlinuz, image.vmlinuz)
        return replace(image, vmlinuz=vmlinuz)


def secure_boot() -> SecureBoot:
    """Raises Unavailable where no mirror has the packages."""
    archive = aptfetch.archive()
    share = archive.unpacked([archive.newest("ovmf", suite="bookworm")]) / "usr/share"
    return SecureBoot(
        firmware=Firmware(
            code=share / "OVMF/OVMF_CODE_4M.secboot.fd", variables=share / "OVMF/OVMF_VARS_4M.snakeoil.fd"
        ),
        key=SigningKey(key=share / "ovmf/PkKek-1-snakeoil.key", file=share / "ovmf/PkKek-1-snakeoil.pem"),
    )
