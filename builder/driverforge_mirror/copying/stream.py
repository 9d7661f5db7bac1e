"""A blob as whoever stores it reads it: in one piece, though connections break, and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

from driverforge_core.errors import TemporaryFailure, Unavailable
from driverforge_oci.client import WrongBytes
from driverforge_oci.transport import Readable

BREAKS = 4
"""How often a connection may break, with no byte between, before that is an error."""
PIECE = 1 << 18
"""Bytes that are read at a time."""

OpenAt = Callable[[int], Readable]
"""A blob's bytes from an offset on."""


class BlobStream:
    """Reads one blob of a known size, goes on where a connection broke, and compares it with its digest.

    `moved` hears of the bytes that came. `offset` is where the next byte belongs.
    """

    def __init__(
        self, open_at: OpenAt, digest: str, size: int, moved: Callable[[int], object] = lambda _count: None
    ) -> None:
        self.digest, self.size, self.offset = digest, size, 0
        self._open_at, self._moved = open_at, moved
        self._hasher: hashlib._Hash | None = self._new_hasher()
        self._body: Readable | None = None

    def _new_hasher(self) -> hashlib._Hash:
        return hashlib.new(self.digest.partition(":")[0])

    def read(self, size: int, /) -> bytes:
        """The next bytes, b'' at the end. TemporaryFailure where they break off, or are not the digest's."""
        if not self.size:
            self._check()
        if self.offset == self.size:
            return b""
        piece = self._unbroken(min(size, self.size - self.offset))
        self.offset += len(piece)
        if self._hasher is not None:
            self._hasher.update(piece)
        self._moved(len(piece))
        if self.offset == self.size:
            self._check()
        return piece

    def _unbroken(self, wanted: int) -> bytes:
        for _ in range(BREAKS - 1):
            with suppress(TemporaryFailure):
                return self._next(wanted)
            self.close()
        return self._next(wanted)

    def _next(self, wanted: int) -> bytes:
        if self._body is None:
            self._body = self._open_at(self.offset)
        if not (piece := self._body.read(wanted)):
            raise TemporaryFailure(
                f"{self.digest} ends after {self.offset} of {self.size} bytes",
                resolution="run the same command again: what is complete is not sent again",
            )
        return piece

    def _check(self) -> None:
        if self._body is not None and self._body.read(1):
            self.close()
            raise Unavailable(
                f"{self.digest} has more than the {self.size} bytes that its manifest states",
                resolution="ask whoever runs the source: its storage or a proxy is damaged",
            )
        self.close()
        if self._hasher is None:
            return
        found = f"{self._hasher.name}:{self._hasher.hexdigest()}"
        if found != self.digest:
            raise WrongBytes(
                "a blob's bytes are not those of its digest",
                details=[f"expected {self.digest}", f"found    {found}"],
                resolution="run it again; if it stays so, the source's storage or a proxy is damaged",
            )

    def go_on_after(self, stored: Readable, size: int) -> None:
        """Begin after the first `size` bytes, which are `stored` somewhere, as far as they are."""
        assert self._hasher is not None
        while self.offset < size and (piece := stored.read(min(PIECE, size - self.offset))):
            self._hasher.update(piece)
            self.offset += len(piece)

    def go_to(self, offset: int) -> None:
        """Go on at `offset`, for a receiver that has the bytes before it.

        Where these were not read here, the receiver alone can say whether the whole is the digest's.
        """
        if offset == self.offset:
            return
        self.close()
        self.offset = offset
        self._hasher = None if offset else self._new_hasher()

    def take(self, size: int) -> tuple[bytes, ...]:
        """The next `size` bytes, fewer at the end, in the pieces that came.

        Put together, the system would have to find as much new memory for each.
        """
        pieces, left = list[bytes](), size
        while left and (piece := self.read(min(left, PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return tuple(pieces)

    def close(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
