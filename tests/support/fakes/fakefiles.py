"""Files of a fake node: real files in a folder, and a fuse for kills.

Mounts are played with places. Device files are made without mknod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from driverforge_core.errors import StorageFailed
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.ports import Metadata


class Killed(BaseException):
    """kill -9: nothing may catch it."""


@dataclass
class Fuse:
    """Burns at every change of the node. `changes` is how many more it lets through; None is any number."""

    changes: int | None = None
    refused: frozenset[str] = frozenset()  # paths that cannot be written, as a file that is a mount point

    def burn(self) -> None:
        if self.changes is not None:
            if self.changes == 0:
                raise Killed
            self.changes -= 1


class FakeFiles(RootedFiles):
    """`RootedFiles` with places, so that mounts can be played.

    The longest prefix of a path decides in which real folder it lies.
    """

    def __init__(self, places: dict[str, Path], fuse: Fuse, root: str = "/") -> None:
        super().__init__(root, beneath="/nowhere")
        self.places = places
        self.fuse = fuse

    def _outside(self, path: str) -> str:
        whole = (self.root.rstrip("/") + path).rstrip("/") or "/"
        place = whole
        while place not in self.places and place != "/":
            place = place.rpartition("/")[0] or "/"
        return str(self.places[place]) + whole[len(place.rstrip("/")) :]

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Without the fsyncs: nothing here outlives the test, and they are most of its time."""
        self.fuse.burn()
        if path in self.fuse.refused:
            raise StorageFailed(f"failed writing {path}", details=["Device or resource busy (errno EBUSY)"])
        target = Path(self._outside(self.resolve(path)))
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_bytes(data)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        self.fuse.burn()
        if path in self.fuse.refused:
            raise StorageFailed(f"failed writing {path}", details=["Device or resource busy (errno EBUSY)"])
        return super().replace_bytes(path, before=before, after=after, metadata=metadata)

    def write_in_place(self, path: str, data: bytes) -> None:
        self.fuse.burn()
        super().write_in_place(path, data)

    def make_dirs(self, path: str, *, mode: int = 0o755) -> None:
        self.fuse.burn()
        super().make_dirs(path, mode=mode)

    def make_private_dir(self, path: str) -> None:
        self.fuse.burn()
        super().make_private_dir(path)

    def copy(self, source: str, target: str) -> None:
        self.fuse.burn()
        super().copy(source, target)

    def symlink(self, target: str, link: str) -> None:
        self.fuse.burn()
        super().symlink(target, link)

    def remove(self, path: str) -> None:
        self.fuse.burn()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.fuse.burn()
        super().remove_tree(path)

    def rename(self, source: str, target: str) -> None:
        self.fuse.burn()
        super().rename(source, target)

    def exchange(self, first: str, second: str) -> None:
        self.fuse.burn()
        super().exchange(first, second)

    def make_char_device(self, path: str, major: int, minor: int) -> None:
        """mknod needs root: the file holds its numbers."""
        self.fuse.burn()
        target = Path(self.real(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{major}:{minor}")

    def device_number(self, path: str) -> tuple[int, int] | None:
        found = self._device(path)
        return (found[0], found[1]) if found else None

    def metadata(self, path: str) -> Metadata | None:
        """A device file is root's, with the group that it holds as a third number."""
        found, device = super().metadata(path), self._device(path)
        return replace(found, user=0, group=device[2]) if found and device else found

    def under(self, folder: str) -> FakeFiles:
        return FakeFiles(self.places, self.fuse, self._below(folder))

    def _device(self, path: str) -> tuple[int, int, int] | None:
        target = Path(self.real(path))
        if not target.is_file() or not (
            match := re.fullmatch(r"(\d+):(\d+)(?::(\d+))?", target.read_text(errors="replace"))
        ):
            return None
        return int(match[1]), int(match[2]), int(match[3] or 0)
