"""Replace a file of which somebody else may write another version at that very moment: neither is lost.

The new file is swapped in, and only then is looked at what came out. If that is not what was expected,
somebody was faster, and theirs goes back. Paths are the kernel's, with links resolved.

Two names beside the file are ours, for one process at a time: `.NAME.driverforge-draft` may be cut off by a
kill, `.NAME.driverforge-swap` is always a whole file: the new one, or what came out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from driverforge_core.errors import StorageFailed
from driverforge_host.adapters.fileops import (
    CANNOT_SWAP,
    SELINUX,
    exchange_names,
    move_to_free_name,
    opened,
    sync_directory,
    take_over_metadata,
)
from driverforge_host.ports import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """What the file system does in one step; it may not be able to."""

    exchange: Callable[[str, str], None] = exchange_names
    move: Callable[[str, str], None] = move_to_free_name


def replace_bytes(
    target: str,
    *,
    before: bytes | None,
    after: bytes | None,
    metadata: Metadata | None = None,
    renaming: Renaming | None = None,
) -> bool:
    """Give the file `target` the bytes `after`, if it has the bytes `before`; None: it is not there.

    False where it has others, which it keeps. `metadata` is for a file that is new. Raises OSError.
    """
    swap, renaming = _beside(target, "swap"), renaming or Renaming()
    if after is None:
        done = _take_away(target, swap, before, renaming)
    else:
        _write_whole(target, swap, after, metadata)
        if before is None:
            done = _put_new(target, swap, renaming)
        else:
            done = _put_over(target, swap, before, after, renaming)
    with suppress(FileNotFoundError):
        os.unlink(swap)
    sync_directory(os.path.dirname(target))
    return done


def settle_bytes(target: str, *, before: bytes | None, after: bytes | None) -> bool:
    """Clear up what a `replace_bytes` with these bytes left that was killed.

    Returns whether somebody else's version came back, which it had swapped out. Raises OSError.
    """
    with suppress(FileNotFoundError):
        os.unlink(_beside(target, "draft"))
    swap = _beside(target, "swap")
    left = _bytes_of(swap)
    if left is None:
        return False
    if left in (before, after):
        os.unlink(swap)
        return False
    if _bytes_of(target) not in (before, after):
        return False  # there are two of somebody else's: a person has to look
    os.replace(swap, target)
    return True


def _beside(target: str, end: str) -> str:
    folder, _, name = target.rpartition("/")
    return f"{folder}/.{name}.driverforge-{end}"


def _write_whole(target: str, swap: str, data: bytes, metadata: Metadata | None) -> None:
    """Write `data` to the name `swap`, with the mode, owner and label of `target`."""
    draft = _beside(target, "draft")
    try:
        with open(draft, "wb") as out:
            out.write(data)
            take_over_metadata(out.fileno(), target, None)
            if metadata is not None and not os.path.exists(target):
                os.fchown(out.fileno(), metadata.user, metadata.group)
                os.fchmod(out.fileno(), metadata.mode)
                with suppress(OSError):  # SELinux may be off by now
                    os.setxattr(out.fileno(), SELINUX, metadata.label.encode())
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, swap)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _put_new(target: str, swap: str, renaming: Renaming) -> bool:
    try:
        renaming.move(swap, target)
    except FileExistsError:
        return False
    return True


def _put_over(target: str, swap: str, before: bytes, after: bytes, renaming: Renaming) -> bool:
    try:
        renaming.exchange(swap, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in CANNOT_SWAP:
            os.unlink(swap)
            raise
        # what somebody writes between this look and the rename is lost on such a file system
        if _bytes_of(target) != before:
            return False
        os.replace(swap, target)
        return True
    theirs = _bytes_of(swap)
    if theirs == before:
        return True
    # what they write while theirs goes back is newer than that, and goes back in its turn
    put_last: bytes | None = after
    with suppress(FileNotFoundError):
        while True:
            renaming.exchange(swap, target)
            came_out = _bytes_of(swap)
            if came_out == put_last:
                break
            put_last, theirs = theirs, came_out
    return False


def _take_away(target: str, swap: str, before: bytes | None, renaming: Renaming) -> bool:
    try:
        os.rename(target, swap)
    except FileNotFoundError:
        return before is None
    if _bytes_of(swap) == before:
        return True
    with suppress(FileExistsError):  # else they have written a newer one meanwhile
        renaming.move(swap, target)
    return False


def _bytes_of(path: str) -> bytes | None:
    """The bytes of a regular file, None for anything else."""
    try:
        with opened(path, path) as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError, StorageFailed):
        return None
