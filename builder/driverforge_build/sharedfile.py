"""A file that several runs write: each merges its own part into what stands there, and replaces it whole."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

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


def replace_text(path: Path, text: str, *, option: str) -> None:
    """Replace the file at once; a link stays one. Raises StorageFailed, which names the option.

    The new file's name is this run's own: another run may be writing too.
    """
    new: Path | None = None
    try:
        target = path.resolve(strict=False)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{path.name[:100]}.", delete=False
        ) as file:
            new = Path(file.name)
            file.write(text)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            new.chmod(mode)
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
