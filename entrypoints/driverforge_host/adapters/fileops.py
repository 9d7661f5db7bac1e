"""File operations on the kernel's own paths, and the kernel's errors as ours.

`files` adds the root to them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from driverforge_core.errors import NotPermitted, StorageFailed

SELINUX = "security.selinux"
AT_FDCWD = -100  # fcntl.h
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2  # linux/fs.h
CANNOT_SWAP = (errno.EINVAL, errno.ENOSYS)  # of renameat2(2): the file system, or the kernel
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def failure(error: OSError, doing: str) -> NotPermitted | StorageFailed:
    """The kernel's errno as one of our errors, with what to do about it."""
    details = [f"{error.strerror} (errno {errno.errorcode.get(error.errno or 0, error.errno)})"]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFailed(
            f"no space left while {doing}",
            details=details,
            resolution="free space on that file system (df -h PATH), then start again",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotPermitted(
            f"not permitted: {doing}",
            details=details,
            resolution="run as root, privileged, with the path writable",
        )
    return StorageFailed(
        f"failed {doing}",
        details=details,
        resolution="look at what is there (ls -ld, dmesg), repair it, then start again",
    )


@contextmanager
def reporting(doing: str) -> Iterator[None]:
    """Raise the kernel's errors of this block as ours, with `doing` in their first line.

    FileNotFoundError stays as it is: to many callers it is an answer.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, doing) from error
    # a NUL, or half of a surrogate pair: no file can have that name
    except ValueError as error:
        raise StorageFailed(f"failed {doing}", details=[str(error)], resolution="correct the name") from error


@contextmanager
def opened(real: str, path: str) -> Iterator[BinaryIO]:
    """A regular file, open for reading.

    A FIFO would keep us waiting for ever, and a device may have no end.
    """
    handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        _check_mode(os.fstat(handle).st_mode, path)
        yield file


def check_regular(target: str, path: str) -> None:
    """Raises StorageFailed where a new file would take the place of something else, as /dev/null."""
    with suppress(FileNotFoundError):
        _check_mode(os.stat(target).st_mode, path)


def _check_mode(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise StorageFailed(
            f"{path} is not a regular file",
            details=[f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}"],
            resolution="give a file, or remove it",
        )


def take_over_metadata(handle: int, target: str, mode: int | None) -> None:
    """Give a new file the mode, owner and SELinux label of the one it replaces."""
    try:
        before = os.stat(target)
    except FileNotFoundError:
        os.fchmod(handle, 0o644 if mode is None else mode)
        return
    os.fchmod(handle, stat.S_IMODE(before.st_mode) if mode is None else mode)
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(handle, before.st_uid, before.st_gid)
    with suppress(OSError):
        os.setxattr(handle, SELINUX, os.getxattr(target, SELINUX))


def claim_folder(real: str, path: str) -> None:
    """Shut everybody else out of a folder of ours. Raises NotPermitted where it is not ours."""
    resolution = "remove it, or name another folder, then start again"
    try:
        handle = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise NotPermitted(
            f"not a folder of ours: {path}",
            details=["it is a link, or no folder at all"],
            resolution=resolution,
        ) from error
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            raise NotPermitted(
                f"not a folder of ours: {path}",
                details=[f"it belongs to user {found.st_uid}, and we are user {os.geteuid()}"],
                resolution=resolution,
            )
        if stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
            os.fchmod(handle, stat.S_IRWXU)
    finally:
        os.close(handle)


def exchange_names(first: str, second: str) -> None:
    """Swap what two names stand for, in one step. Raises OSError, one of CANNOT_SWAP where that cannot be."""
    _rename(first, second, RENAME_EXCHANGE)


def move_to_free_name(source: str, target: str) -> None:
    """Rename, and raise FileExistsError where `target` is there already."""
    try:
        _rename(source, target, RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in CANNOT_SWAP:
            raise
        os.link(source, target)
        os.unlink(source)


def _rename(source: str, target: str, flags: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source)


def sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_on_device(path: str, device: int) -> None:
    """Remove a file or a folder with all that is in it, but never across a mount.

    Only a folder's device number tells of a mount. A file may have another one where nothing is mounted: that
    of its layer, in an overlay whose layers lie on several file systems (Documentation/filesystems/
    overlayfs.rst, "Inode properties"). The kernel itself refuses to unlink a file with a mount on it.
    """
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path)
        return
    if found.st_dev != device or os.path.ismount(path):
        raise OSError(errno.EBUSY, "a mount point is in the way", path)
    for name in os.listdir(path):
        remove_on_device(f"{path}/{name}", device)
    os.rmdir(path)
