"""How far an archive has come, in a file that is only ever added to: a kill or a full disk takes a line."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_core.errors import TemporaryFailure
from driverforge_mirror.archive.volumes import storage


@dataclass(slots=True)
class Journal:
    """`done` digests are complete, of those in `marks` as many bytes are there. One run has it at a time."""

    path: Path
    done: set[str] = field(default_factory=set, init=False)
    marks: dict[str, int] = field(default_factory=dict, init=False)
    _file: int = field(default=-1, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def open(self) -> None:
        """TemporaryFailure where another run has it, StorageFailed."""
        with storage(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # not every file system has locks
            if error.errno != errno.EWOULDBLOCK:
                return
            self.close()
            raise TemporaryFailure(
                f"another run writes this archive: it holds {self.path}",
                resolution="wait for it, or stop it and run the same command again",
            ) from None

    def recall(self, archive: str) -> None:
        """Read what is known of the archive of this digest; what was written of another one is forgotten."""
        with storage(self.path):
            text = self.path.read_text(encoding="utf-8", errors="replace")
        first, *lines = text.splitlines() or [""]
        if first != archive:
            self.forget(archive)
        elif text and not text.endswith("\n"):
            # half a line is one of its own
            self.note("")
        for line in lines if first == archive else ():
            match line.split():
                case ["done", digest]:
                    self.done.add(digest)
                case ["mark", digest, offset] if offset.isdecimal():
                    self.marks[digest] = int(offset)
                case _:
                    pass

    def forget(self, archive: str) -> None:
        """Begin anew, for the archive of this digest."""
        self.done.clear()
        self.marks.clear()
        with storage(self.path):
            os.ftruncate(self._file, 0)
        self.note(archive)

    def complete(self, digest: str) -> None:
        self.done.add(digest)
        self.note(f"done {digest}")

    def mark(self, digest: str, offset: int) -> None:
        self.note(f"mark {digest} {offset}")

    def note(self, line: str) -> None:
        with self._lock, storage(self.path):
            os.write(self._file, f"{line}\n".encode())

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
