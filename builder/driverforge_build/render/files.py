"""Files of a context as values, and the digest over NVIDIA's files that a matrix pins."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KINDS = ("deb", "rpm")
PROGRAM = "usr/bin/nvidia-ctk"
"""What a folder with NVIDIA's files has, below the folder of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """Its content; of a symbolic link, where it leads."""

    content: bytes = b""
    executable: bool = False
    link: str = ""


def read_files(folder: Path) -> dict[str, ContextFile]:
    """Files and links of deb/ and rpm/ below a folder, by their path in it."""
    found = {}
    for path in sorted(path for kind in KINDS for path in (folder / kind).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ContextFile(link=str(path.readlink()))
        elif path.is_file():
            found[name] = ContextFile(content=path.read_bytes(), executable=os.access(path, os.X_OK))
    return found


def digest_of(files: Mapping[str, ContextFile]) -> str:
    """sha256 over names, contents, executable bits and links: what a matrix pins."""
    total = hashlib.sha256()
    for name, entry in sorted(files.items()):
        content = hashlib.sha256(entry.content).hexdigest()
        total.update(f"{name}\0{int(entry.executable)}\0{entry.link}\0{content}\n".encode())
    return total.hexdigest()
