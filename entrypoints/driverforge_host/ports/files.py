"""Files of the node, of the container, or of a folder that a test made."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Whose a file is, and who may do what with it."""

    mode: int  # permission bits
    user: int
    group: int
    label: str = ""  # SELinux context, '' where there is none


class Files(Protocol):
    """Files under one root."""

    @property
    def root(self) -> str: ...

    def under(self, folder: str) -> Files:
        """The same files with `folder` as their root. Links inside, absolute ones too, stay inside it."""

    def resolve(self, path: str) -> str:
        """The path with symbolic links followed, as seen under the root."""

    # what is there

    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...
    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where there is no such directory."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, None where there is none."""

    def metadata(self, path: str) -> Metadata | None:
        """Of what `path` leads to; None where there is nothing."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """(device, inode) of what `path` leads to, None where there is nothing.

        Two paths to one file have the same.
        """

    def stamp(self, path: str) -> tuple[int, int, int, int] | None:
        """What changes with every change of a file, or of the names in a folder; None where there is nothing.

        (device, inode, bytes, modification time in ns) of what `path` leads to.
        """

    def device_number(self, path: str) -> tuple[int, int] | None:
        """(major, minor) of a character device, None for anything else."""

    def read_only(self, path: str) -> bool:
        """Whether the mount that `path` lies on refuses writes."""

    def free_bytes(self, path: str) -> int:
        """Bytes that we may still write on the file system of `path` or its nearest existing parent."""

    # reading

    def read_text(self, path: str) -> str: ...
    def read_bytes(self, path: str) -> bytes: ...
    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on: the headers of large libraries say enough."""

    # writing

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace a file whole: temporary file beside it, fsync, rename, fsync of the directory.

        Mode, owner and SELinux label of an existing file are kept, but for a `mode` that is given.
        """

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        """Replace a file whole, as `write_atomic`, if it has the bytes `before`; None: it is not there.

        False where it has others: what somebody else writes is never lost, also in the moment of the
        replacement, where the file system can swap two names. A file that is new gets `metadata`.
        """

    def settle_bytes(self, path: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Clear up what a `replace_bytes` with these bytes left that was killed.

        Returns whether that gave the file somebody else's version back.
        """

    def write_in_place(self, path: str, data: bytes) -> None:
        """For files that are not ours to replace: sysfs attributes and bind-mounted single files."""

    def copy(self, source: str, target: str) -> None: ...
    def make_dirs(self, path: str, *, mode: int = 0o755) -> None: ...
    def make_private_dir(self, path: str) -> None:
        """Make a folder that nobody else may enter (0700), or take the one that is there if it is our own.

        Raises NotPermitted where there is a link, another kind of file, or somebody else's folder.
        """

    def symlink(self, target: str, link: str) -> None:
        """Make `link` point to `target`, replacing an existing link atomically."""

    def make_char_device(self, path: str, major: int, minor: int) -> None:
        """Make a character device that everybody may use (0666), as nvidia-modprobe does.

        An existing one with these numbers stays as it is.
        """

    def rename(self, source: str, target: str) -> None:
        """Give a file another name in the same folder, atomically.

        Raises FileNotFoundError where `source` is gone: of several callers exactly one succeeds.
        """

    def exchange(self, first: str, second: str) -> None:
        """Swap what two names in one file system stand for.

        It is one step where the file system can do that (renameat2(2), RENAME_EXCHANGE), else three.
        """

    def remove(self, path: str) -> None:
        """Remove a file or link; nothing happens where there is none."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, never crossing a mount point."""

    def lock(self, path: str, *, text: str) -> AbstractContextManager[bool]:
        """Hold an exclusive lock on `path` for as long as the context lasts.

        Yields False, with the file untouched, when another process has it. `text` is written only after the
        lock was won: upstream truncates the file first, and its second start wipes the first one's PID. A
        link at `path` is not followed.
        """


def text_of(files: Files, path: str) -> str:
    """A text file; '' where there is none."""
    try:
        return files.read_text(path)
    except FileNotFoundError:
        return ""


def bytes_of(files: Files, path: str) -> bytes | None:
    """A file's bytes; None where there is none."""
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None
