"""What a mirror asks of the world beside registries: files at addresses, and signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Reads files at addresses.

    Both methods raise TemporaryFailure where a server does not answer now, Unavailable where none can.
    """

    def document(self, url: str) -> bytes:
        """What stands at an address now."""

    def file(self, url: str, *, sha256: str, size: int) -> Path:
        """A file with that very content."""


class ListSigner(Protocol):
    """Signs an archive's list with a key that we never see."""

    def sign(self, content: bytes, *, image: str, predicate: str) -> bytes:
        """A signature over a list; `image` is the archive's name, `predicate` what kind of thing it is.

        Raises Unavailable, CommandFailed, and TemporaryFailure where the same may work later.
        """


class ListVerifier(Protocol):
    """Knows whose signatures are to be trusted."""

    def objection(self, content: bytes, signature: bytes) -> str:
        """Why a signature is not accepted, '' where it is. Raises Unavailable, CommandFailed."""
