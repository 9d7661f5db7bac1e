"""A JSON file that several runs write: each merges its own part into what stands there, and replaces it
whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from driverforge_core.errors import StorageFailed


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One run at a time in a file's folder, while the file is merged.

    Where folders cannot be locked (NFS) the block runs all the same.
    """
    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):
            held = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def make_folder_of(path: Path, *, option: str) -> None:
    """The folder of a file that a run writes at its end, made before the work. Raises StorageFailed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(
            f"cannot write {path}: {error.strerror}", resolution=f"choose another file with {option}"
        ) from error


def read_json(text: str | bytes) -> Any:
    """What a text says. Raises ValueError, also for a name that stands twice in one object.

    Both sides of a merge conflict that were kept are that. JSON readers take the second one, and the first
    would be gone when the file is written next.
    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one place: make one of both")
    return found


def replace_text(path: Path, text: str, *, option: str) -> None:
    """Replace the file at once; a link stays one. Raises StorageFailed, which names the option.

    The new file's name is this run's own: another run may be writing too.
    """
    new: Path | None = None
    try:
        target = path.resolve(strict=False)
        with tempfile.NamedTemporaryFile(
            "w",
            encoding="utf-8",
            # a file's name, or what a user typed, may hold bytes that are no text: \udcff is JSON for them
            errors="backslashreplace",
            dir=target.parent,
            prefix=f".{path.name[:20]}.",
            delete=False,
        ) as file:
            new = Path(file.name)
            file.write(text)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            new.chmod(mode)
            file.flush()
            # a machine that goes down must not leave the name of a file without its content
            os.fsync(file.fileno())
        new.replace(target)
        new = None
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StorageFailed(
            f"cannot write {path}: {why}", resolution=f"choose another file with {option}"
        ) from error
    finally:
        if new is not None:
            new.unlink(missing_ok=True)


def _umask() -> int:
    """What new files do without. It can be asked for only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
