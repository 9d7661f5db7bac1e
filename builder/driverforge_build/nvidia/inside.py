"""What an archive of NVIDIA's says of itself in its first bytes: version and architecture.

A runfile is a shell script with an archive behind it, and its title stands in the script. A redistributable
archive is a tar, compressed with xz, of one folder that bears its name.
"""

from __future__ import annotations

import io
import lzma
import re
import tarfile
from dataclasses import dataclass

from driverforge_core.arch import to_arch

HEAD = 1 << 20
"""Bytes of an archive's start that hold what is looked for."""
LARGEST = 4 << 30
"""Bytes. The largest archive that NVIDIA has published has a tenth of that."""
_UNPACKED = 1 << 20
_MEMORY = 256 << 20
_TITLE = re.compile(rb"Driver for Linux-(x86_64|aarch64) ([1-9][0-9]*(?:\.[0-9]+){1,3})\b")
_FOLDER = re.compile(r"(?:\./)?nvidia_driver-linux-(x86_64|sbsa)-([1-9][0-9.]*[0-9])-archive(?:/.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """`runfile` is False for a redistributable archive."""

    version: str
    arch: str
    runfile: bool


def inside(head: bytes) -> Inside | None:
    """What the archive is whose first HEAD bytes these are; None where it is none of NVIDIA's."""
    if head.startswith(b"#!"):
        title = _TITLE.search(head)
        return (
            Inside(version=title[2].decode(), arch=to_arch(title[1].decode()), runfile=True)
            if title
            else None
        )
    named = _FOLDER.fullmatch(_first_name(head))
    if not named:
        return None
    return Inside(version=named[2], arch="arm64" if named[1] == "sbsa" else "amd64", runfile=False)


def _first_name(head: bytes) -> str:
    """The name of the first entry of a tar compressed with xz, '' where there is none."""
    try:
        unpacked = lzma.LZMADecompressor(memlimit=_MEMORY).decompress(head, _UNPACKED)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r|") as archive:
            first = archive.next()
            return first.name if first else ""
    except (lzma.LZMAError, tarfile.TarError, EOFError, ValueError):
        return ""
