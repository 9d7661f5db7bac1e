"""Files under one root: the process's own '/', the host's root behind /proc/1/root, or a test's folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from driverforge_core.errors import StorageFailed
from driverforge_host.adapters.fileops import (
    CANNOT_SWAP,
    SELINUX,
    check_regular,
    claim_folder,
    exchange_names,
    failure,
    opened,
    remove_on_device,
    reporting,
    sync_directory,
    take_over_metadata,
)
from driverforge_host.ports import Metadata

MAX_LINKS = 40


class RootedFiles:
    """The `Files` port over real files; absolute symbolic links inside a root stay inside it.

    `root` is what the process calls it, `beneath` a folder that stands for the process's own '/' (tests).
    """

    def __init__(self, root: str = "/", *, beneath: str = "") -> None:
        self._root = root.rstrip("/") or "/"
        self._beneath = beneath
        self._prefix = beneath + self._root.rstrip("/")

    @property
    def root(self) -> str:
        return self._root

    def _outside(self, path: str) -> str:
        return self._prefix + path

    def resolve(self, path: str) -> str:
        """Follow links one component at a time, so that an absolute one stays below the root.

        The kernel would take an absolute link below /proc/1/root from our own root.
        """
        todo = [part for part in self._absolute(path).split("/") if part not in ("", ".")][::-1]
        done = ""
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            try:
                target = os.readlink(self._outside(here))
            except (OSError, ValueError):
                done = here
                continue
            links += 1
            if links > MAX_LINKS:
                raise StorageFailed(
                    f"too many levels of symbolic links: {path}",
                    resolution="remove the link, then start again",
                )
            if target.startswith("/"):
                done = ""
            todo.extend(p for p in target.split("/")[::-1] if p not in ("", "."))
        return done or "/"

    def _absolute(self, path: str) -> str:
        """A relative path is one of our own working folder. Under another root there is no such folder."""
        return path if path.startswith("/") or self._prefix else f"{os.getcwd()}/{path}"

    def real(self, path: str) -> str:
        """The path to hand to the kernel."""
        return self._outside(self.resolve(path)) if self._prefix else path

    def _unresolved_leaf(self, path: str) -> str:
        parent, _, name = self._absolute(path).rstrip("/").rpartition("/")
        return f"{self.real(parent or '/').rstrip('/')}/{name}"

    def _stat(self, path: str) -> os.stat_result | None:
        """The status of what `path` leads to, None where that is nothing.

        Links in a circle and names that no file can have lead to nothing.
        """
        try:
            return os.stat(self.real(path))
        except (OSError, ValueError, StorageFailed):
            return None

    def exists(self, path: str) -> bool:
        return self._stat(path) is not None

    def is_dir(self, path: str) -> bool:
        found = self._stat(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def is_link(self, path: str) -> bool:
        try:
            return os.path.islink(self._unresolved_leaf(path))
        except StorageFailed:
            return False

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode("utf-8", "replace")

    def read_bytes(self, path: str) -> bytes:
        with reporting(f"reading {path}"), opened(self.real(path), path) as file:
            return file.read()

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        with reporting(f"reading {path}"), opened(self.real(path), path) as file:
            file.seek(offset)
            return file.read(size)

    def under(self, folder: str) -> RootedFiles:
        return RootedFiles(self._below(folder), beneath=self._beneath)

    def _below(self, folder: str) -> str:
        return self._root.rstrip("/") + self.resolve(folder)

    def list_dir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self.real(path))))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ()
        except OSError as error:
            raise failure(error, f"listing {path}") from error

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        target = self._outside(self.resolve(path))
        parent = os.path.dirname(target)
        if not os.path.isdir(parent):
            raise StorageFailed(
                f"failed writing {path}",
                details=[f"there is no folder {parent}"],
                resolution="make it, or repair the link",
            )
        with reporting(f"writing {path}"):
            check_regular(target, path)
            handle, temporary = tempfile.mkstemp(prefix=".driverforge-", dir=parent)
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(data)
                    take_over_metadata(out.fileno(), target, mode)
                    out.flush()
                    os.fsync(out.fileno())
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            sync_directory(parent)

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        from driverforge_host.adapters import replace

        target = self._outside(self.resolve(path))
        with reporting(f"{'removing' if after is None else 'writing'} {path}"):
            check_regular(target, path)
            return replace.replace_bytes(target, before=before, after=after, metadata=metadata)

    def settle_bytes(self, path: str, *, before: bytes | None, after: bytes | None) -> bool:
        from driverforge_host.adapters import replace

        with reporting(f"clearing up beside {path}"):
            return replace.settle_bytes(self._outside(self.resolve(path)), before=before, after=after)

    def write_in_place(self, path: str, data: bytes) -> None:
        with reporting(f"writing {path}"):
            # not truncated first: a kill in between would leave nothing of the file
            handle = os.open(self.real(path), os.O_WRONLY | os.O_CLOEXEC)
            try:
                # one write(2): a sysfs attribute takes each call as a whole new value
                written = os.write(handle, data)
                while written < len(data):
                    written += os.write(handle, data[written:])
                os.ftruncate(handle, written)
            finally:
                os.close(handle)

    def make_dirs(self, path: str, *, mode: int = 0o755) -> None:
        with reporting(f"making the folder {path}"):
            os.makedirs(self.real(path), mode=mode, exist_ok=True)

    def make_private_dir(self, path: str) -> None:
        leaf = self._unresolved_leaf(path)
        with reporting(f"making the folder {path}"):
            os.makedirs(os.path.dirname(leaf), exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(leaf, 0o700)
            claim_folder(leaf, path)

    def copy(self, source: str, target: str) -> None:
        """Contents and mode; the copy is complete or not there."""
        from_ = self.real(source)
        to = self._outside(self.resolve(target))
        with reporting(f"copying {source} to {target}"):
            # beside the target: a rename is atomic within one file system only
            temporary = f"{to}.driverforge-new"
            try:
                shutil.copyfile(from_, temporary)
                shutil.copymode(from_, temporary)
                os.replace(temporary, to)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise

    def symlink(self, target: str, link: str) -> None:
        leaf = self._unresolved_leaf(link)
        temporary = f"{leaf}.driverforge-new"
        with reporting(f"linking {link} to {target}"):
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            os.symlink(target, temporary)
            os.replace(temporary, leaf)

    def remove(self, path: str) -> None:
        with reporting(f"removing {path}"), suppress(FileNotFoundError):
            os.unlink(self._unresolved_leaf(path))

    def remove_tree(self, path: str) -> None:
        leaf = self._unresolved_leaf(path)
        with reporting(f"removing {path}"):
            try:
                device = os.lstat(leaf).st_dev
            except FileNotFoundError:
                return
            remove_on_device(leaf, device)

    def rename(self, source: str, target: str) -> None:
        with reporting(f"renaming {source}"):
            os.rename(self._unresolved_leaf(source), self._unresolved_leaf(target))

    def exchange(self, first: str, second: str) -> None:
        ours, theirs = self._unresolved_leaf(first), self._unresolved_leaf(second)
        with reporting(f"swapping {first} and {second}"):
            try:
                exchange_names(ours, theirs)
            except OSError as error:
                if error.errno not in CANNOT_SWAP:
                    raise
                os.rename(theirs, f"{theirs}.driverforge-old")
                os.rename(ours, theirs)
                os.rename(f"{theirs}.driverforge-old", ours)

    def metadata(self, path: str) -> Metadata | None:
        found = self._stat(path)
        if found is None:
            return None
        label = ""
        with suppress(OSError):
            label = os.getxattr(self.real(path), SELINUX).decode().rstrip("\0")
        return Metadata(mode=stat.S_IMODE(found.st_mode), user=found.st_uid, group=found.st_gid, label=label)

    def read_only(self, path: str) -> bool:
        return bool(os.statvfs(self.real(path)).f_flag & os.ST_RDONLY)

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self._stat(path)
        return None if found is None else (found.st_dev, found.st_ino)

    def size(self, path: str) -> int | None:
        found = self._stat(path)
        return None if found is None else found.st_size

    def stamp(self, path: str) -> tuple[int, int, int, int] | None:
        found = self._stat(path)
        return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def device_number(self, path: str) -> tuple[int, int] | None:
        found = self._stat(path)
        return (
            (os.major(found.st_rdev), os.minor(found.st_rdev))
            if found and stat.S_ISCHR(found.st_mode)
            else None
        )

    def make_char_device(self, path: str, major: int, minor: int) -> None:
        if self.device_number(path) == (major, minor):
            return
        with reporting(f"making the device {path}"):
            leaf = self._unresolved_leaf(path)
            temporary = f"{leaf}.driverforge-new"
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            os.mknod(temporary, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            # mknod's mode lost what the umask takes; nvidia-modprobe makes it for everybody, too
            os.chmod(temporary, 0o666)  # noqa: S103
            os.replace(temporary, leaf)

    def free_bytes(self, path: str) -> int:
        here = self.real(path)
        while not os.path.exists(here):
            here = os.path.dirname(here) or "/"
        found = os.statvfs(here)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def lock(self, path: str, *, text: str) -> Iterator[bool]:
        handle = self._open_locked(path)
        if handle is None:
            yield False
            return
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode(), 0)
            yield True
        finally:
            # unlinked while we still hold it: who waits for it sees that the name leads elsewhere
            with suppress(OSError):
                os.unlink(self._unresolved_leaf(path))
            os.close(handle)

    def _open_locked(self, path: str) -> int | None:
        """A descriptor that holds the lock, or None when somebody else does.

        Never truncates (O_TRUNC would wipe their PID).
        """
        leaf = self._unresolved_leaf(path)
        # the one that had the lock may unlink the file between our open and our lock; then we start again
        while True:
            with reporting(f"opening {path}"):
                handle = os.open(leaf, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            found = os.fstat(handle)
            if self.identity(path) == (found.st_dev, found.st_ino):
                return handle
            os.close(handle)
