"""A cpio archive, as a kernel unpacks it into its first root.

The format is newc, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

from pathlib import Path

_DIRECTORY, _FILE, _LINK = 0o040755, 0o100000, 0o120777


class CpioArchive:
    """Collects files in memory and writes them."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = {}

    def directory(self, path: str) -> None:
        """Add a folder and all above it."""
        name = path.strip("/")
        if name and name not in self._entries:
            self.directory(str(Path(name).parent) if "/" in name else "")
            self._entries[name] = (_DIRECTORY, b"")

    def file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Add a file; a later one of the same name wins."""
        self._add(path, _FILE | mode, data)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, _LINK, target.encode())

    def _add(self, path: str, mode: int, data: bytes) -> None:
        name = path.strip("/")
        self.directory(str(Path(name).parent) if "/" in name else "")
        self._entries[name] = (mode, data)

    def write(self, target: Path) -> None:
        """Write the archive, uncompressed.

        Making it costs less than unpacking a compressed one in the guest.
        """
        with target.open("wb") as out:
            for number, (name, (mode, data)) in enumerate(
                [*self._entries.items(), ("TRAILER!!!", (0, b""))], start=1
            ):
                encoded = name.encode() + b"\0"
                fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
                header = b"070701" + b"".join(b"%08x" % field for field in fields)
                out.write(_padded(header + encoded))
                out.write(_padded(data))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
