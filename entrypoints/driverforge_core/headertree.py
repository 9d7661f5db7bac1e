"""What in a kernel's header packages makes modules, as digests that leave out what only names the kernel.

Two kernels whose digests are equal, and whose compiler is the same, are of one class: what is compiled for
one differs from what is compiled for the other in the kernel's name. Debian's 6.1.0-55 and -56 are such ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass

NAMES_OF_A_KERNEL = (b"CONFIG_BUILD_SALT", b"CONFIG_VERSION_SIGNATURE")
"""Options that hold the kernel's own name, and nothing else."""
_CONFIGURATION = (".config", "auto.conf", "autoconf.h", "rustc_cfg")
# release, build number, date, version of the package
_NAMES = tuple(f"/include/generated/{name}.h" for name in ("utsrelease", "utsversion", "package", "compile"))
_DOCUMENTATION = "usr/share/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderDigests:
    """Hex sha256 of all files, of the configuration and of Module.symvers, which is in none of the others.

    What a package does not have counts as empty.
    """

    files: str
    config: str
    symvers: str

    @classmethod
    def of_all(cls, packages: Iterable[HeaderDigests]) -> HeaderDigests:
        """Those of several packages together, in whatever order."""
        parts = zip(*sorted(map(astuple, packages)), strict=True)
        files, config, symvers = (_digest("\n".join(part).encode()) for part in parts)
        return cls(files=files, config=config, symvers=symvers)


class HeaderTree:
    """Takes the files of a package one by one.

    `abi` is the part of the kernel's name that its folders and packages share, '6.1.0-56'; '' for a package
    that kernels of several names use.
    """

    def __init__(self, abi: str) -> None:
        self._abi = abi
        self._parts: dict[str, dict[str, str]] = {"files": {}, "config": {}, "symvers": {}}

    def add(self, path: str, content: bytes) -> None:
        path = path.removeprefix(".").removeprefix("/")
        if path.startswith(_DOCUMENTATION):
            return
        name = path.rpartition("/")[2]
        part = "files"
        if path.endswith(_NAMES):
            content = b""
        elif name in _CONFIGURATION:
            part, content = "config", without_names(content)
        elif name == "Module.symvers":
            part = "symvers"
        if self._abi:
            path, content = path.replace(self._abi, "@"), content.replace(self._abi.encode(), b"@")
        self._parts[part][path] = _digest(content)

    def digests(self) -> HeaderDigests:
        return HeaderDigests(
            **{
                part: _digest(
                    "\n".join(f"{digest} {path}" for path, digest in sorted(found.items())).encode()
                )
                for part, found in self._parts.items()
            }
        )


def without_names(configuration: bytes) -> bytes:
    """The options in a file of the configuration, set or not, less those that only name the kernel."""
    lines = (line for line in configuration.split(b"\n") if b"CONFIG_" in line)
    return b"\n".join(line for line in lines if not any(name in line for name in NAMES_OF_A_KERNEL))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
