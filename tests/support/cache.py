"""One folder for everything that is dear to make: packages, kernels, root file systems, guests, modules.

An entry is a folder. It is made under a temporary name and renamed, so it is complete or not there. Its key
is a hash of what went in. A lock file lets parallel test workers wait for the one that makes the entry. The
lock is the kernel's, so a killed run leaves none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_DAY = 86400.0


def root() -> Path:
    """$DRIVERFORGE_CACHE, else driverforge in $XDG_CACHE_HOME, else ~/.cache/driverforge; made if need be."""
    named = os.environ.get("DRIVERFORGE_CACHE")
    base = (
        Path(named)
        if named
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "driverforge"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base.resolve()


def key(inputs: Mapping[str, object]) -> str:
    """A short hash of JSON-able inputs; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()[:16]


def digest(*paths: Path) -> str:
    """A hash of files and folders: names, content and executable bits, in name order."""
    total = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                name = file.relative_to(path) if path.is_dir() else file.name
                total.update(f"{name}\0{file.stat().st_mode & 0o111}\0".encode())
                total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; waits for as long as another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cached(
    name: str, inputs: Mapping[str, object], make: Callable[[Path], None], *, base: Path | None = None
) -> Path:
    """The folder `name`-KEY. If it is not there, `make(empty folder)` makes it.

    What `make` raises leaves nothing behind.
    """
    folder = (base or root()) / name
    entry = folder / key(inputs)
    if entry.is_dir():
        os.utime(entry)
        return entry
    with locked(folder / f"{entry.name}.lock"):
        if not entry.is_dir():
            # ours alone under the lock: what is there was left by a killed run
            draft = folder / f"{entry.name}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            try:
                make(draft)
                (folder / f"{entry.name}.json").write_text(
                    json.dumps(inputs, indent=1, sort_keys=True, default=str) + "\n"
                )
                # dpkg-deb -x gives a folder the date of its package: decades of disuse, for prune()
                os.utime(draft)
                draft.rename(entry)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return entry


def prune(*, days: float, base: Path | None = None) -> tuple[Path, ...]:
    """Remove entries that nothing has used for `days`; returns what went."""
    gone = []
    for record in sorted((base or root()).glob("*/*.json")):
        entry = record.with_suffix("")
        with locked(record.with_suffix(".lock")):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > days * _DAY:
                shutil.rmtree(entry)
                record.unlink()
                gone.append(entry)
    return tuple(gone)
