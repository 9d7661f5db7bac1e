"""A file of a context."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Its content; of a symbolic link, where it leads."""

    content: bytes = b""
    executable: bool = False
    link: str = ""
