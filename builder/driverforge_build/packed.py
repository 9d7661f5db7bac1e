"""Compressed files as streams: what repositories' indexes and packages come in."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from importlib import import_module
from typing import IO, Any, cast

from driverforge_core.errors import Unsupported


def _zstd_module() -> Any:
    """Python's own from 3.14 on, else the same one from PyPI; None where that is not installed."""
    try:
        return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        return None


zstd = _zstd_module()
SUFFIXES = (".xz", ".gz", ".zst", ".bz2")
"""Of the compressions that are read; most repositories have the first."""
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ": ".xz", b"(\xb5/\xfd": ".zst", b"BZh": ".bz2"}
DAMAGED: tuple[type[Exception], ...] = (
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    *((zstd.ZstdError,) if zstd else ()),
)
"""What reading a damaged stream raises."""


def unpacked(stream: IO[bytes], suffix: str) -> IO[bytes]:
    """The content of a stream; `suffix` (one of SUFFIXES or '') tells its compression."""
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(stream))
    if suffix == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(stream))
    if suffix == ".zst":
        if zstd is None:
            raise Unsupported(
                "this installation cannot read zstd, in which a file of the repository is packed",
                resolution="install backports.zstd beside driverforge, or use Python 3.14",
            )
        return cast(IO[bytes], zstd.ZstdFile(stream))
    return stream


def suffix_of(start: bytes) -> str:
    """The compression of what starts with these bytes, '' for none that is known."""
    return next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), "")
