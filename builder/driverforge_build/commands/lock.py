"""`driverforge lock`: find kernels and packages in signed repositories, and pin them."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from driverforge_build import lock as locks
from driverforge_build import options
from driverforge_core.errors import DriverforgeError, StorageFailed


@click.command("lock")
@options.matrix_option
@options.lock_option
@options.select_options
@options.mirror_option
@click.option(
    "--keyring",
    "keyrings",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Public keys that may sign the repositories; may be repeated. Default: what apt's configuration or the matrix names.",
)
@options.cache_option
@click.option("--offline", is_flag=True, help="Use what the cache holds; ask no mirror.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the lock file would change.")
@click.option(
    "--keep-going", is_flag=True, help="Write the pins of the other drivers where a driver cannot be pinned."
)
@click.option(
    "--accept-shrink",
    is_flag=True,
    help="Take it for true that kernels of the lock are gone from the repositories.",
)
@click.option(
    "--accept-expired",
    is_flag=True,
    help="Read suites whose Valid-Until has passed: a mirror frozen on purpose.",
)
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    mirrors: dict[str, str],
    keyrings: tuple[Path, ...],
    cache_dir: Path | None,
    offline: bool,
    check: bool,
    keep_going: bool,
    accept_shrink: bool,
    accept_expired: bool,
    as_json: bool,
) -> int:
    """Find kernels and packages in signed repositories, and pin them.

    Only the OSes and architectures of the selected cells are looked at; the pins of all others stay as they are in the lock file.
    """
    from driverforge_build.discover.cache import Cache, default_folder
    from driverforge_build.discover.fetch import Fetcher
    from driverforge_build.discover.progress import shown_progress
    from driverforge_build.discover.sources import read_machine
    from driverforge_build.discover.survey import Settings, survey
    from driverforge_build.discover.targets import wanted_targets
    from driverforge_build.matrix import load_matrix
    from driverforge_build.select import check_named

    matrix = load_matrix(matrix_path)
    check_named("--mirror", mirrors, [row.id for row in matrix.rows])
    targets = wanted_targets(matrix, select=select, skip=skip)
    earlier = locks.load(lock_path, matrix=matrix_path) if lock_path.exists() else locks.Lock()
    settings = Settings(
        now=datetime.now(timezone.utc),
        machine=read_machine(),
        mirrors=mirrors,
        keyrings=keyrings,
        accept_shrink=accept_shrink,
        accept_expired=accept_expired,
    )
    with shown_progress() as progress:
        fetcher = Fetcher(Cache(cache_dir or default_folder()), offline=offline, progress=progress)
        try:
            found = survey(matrix, targets, earlier, fetcher, settings)
        finally:
            fetcher.close()
    keys = [f"{row.id}-{arch}" for row, arch in targets]
    whole = not found.problems or keep_going
    changed = merge(lock_path, [found.lock.targets[key] for key in keys], writing=whole and not check)
    if as_json:
        click.echo(
            json.dumps(
                _document(lock_path, earlier, found.lock, keys, changed=changed, problems=found.problems),
                indent=1,
            )
        )
    else:
        _print(earlier, found.lock, keys, found.problems)
        click.echo(_outcome(lock_path, changed=changed, check=check, whole=whole))
    return 1 if found.problems or (check and changed) else 0


def merge(path: Path, targets: Iterable[locks.TargetLock], *, writing: bool) -> bool:
    """Whether these targets change the lock, which is read once more: another run may have written its own targets since."""
    with _alone(path):
        there = path.exists()
        merged = locks.dump((locks.load(path) if there else locks.Lock()).with_targets(targets))
        changed = not there or merged != path.read_text(encoding="utf-8")
        if changed and writing:
            write(path, merged)
    return changed


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One run at a time in a lock's folder, while it is merged. Where folders cannot be locked (NFS) the block runs all the same."""
    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):
            held = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def write(path: Path, text: str) -> None:
    """Replace the lock at once; a link stays one. The new file's name is this run's own: another run may be writing too."""
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
            f"cannot write {path}: {why}", resolution="choose another file with --lock"
        ) from error
    finally:
        if new is not None:
            new.unlink(missing_ok=True)


def _umask() -> int:
    """What new files do without. It can be asked for only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _outcome(path: Path, *, changed: bool, check: bool, whole: bool) -> str:
    if not changed:
        return f"{path} is up to date"
    if check:
        return f"{path} would change; nothing was written"
    return f"wrote {path}" if whole else f"{path} stays as it is: see the problems above, or --keep-going"


def _print(
    earlier: locks.Lock, lock: locks.Lock, keys: list[str], problems: Mapping[str, DriverforgeError]
) -> None:
    for key in keys:
        target, before = lock.targets[key], earlier.targets.get(key)
        flavours = Counter(kernel.flavour for kernel in target.kernels.values())
        kinds = ", ".join(f"{flavour} {count}" for flavour, count in sorted(flavours.items()))
        click.echo(f"{key}: {len(target.kernels)} kernels ({kinds}), {len(target.drivers)} drivers")
        for suite in target.repositories:
            until = f", valid until {suite.valid_until}" if suite.valid_until else ""
            click.echo(
                f"  {suite.suite} of {suite.date}{until}, signed by {', '.join(name[-16:] for name in suite.signed_by)}"
            )
        for line in changes(before, target) if before else ():
            click.echo(f"  {line}")
        if target.without_headers:
            click.echo(
                f"  {len(target.without_headers)} older kernels have no headers in the repositories any more"
            )
    for what, error in problems.items():
        click.echo(f"{what}: {error.render()}", err=True)


def changes(before: locks.TargetLock, after: locks.TargetLock) -> list[str]:
    """What changed between two locks of a target, a line each: kernels, and packages of drivers."""
    lines = [f"- kernel {release}" for release in before.kernels if release not in after.kernels]
    lines += [f"+ kernel {release}" for release in after.kernels if release not in before.kernels]
    for driver in sorted({*before.drivers, *after.drivers}):
        old, new = _versions(before, driver), _versions(after, driver)
        moved = [
            f"{name} {old[name]} -> {new[name]}"
            for name in sorted(old.keys() & new.keys())
            if old[name] != new[name]
        ]
        lines += [f"{driver}: {line}" for line in moved]
        lines += (
            [f"{driver}: + {name} {new[name]}" for name in sorted(new.keys() - old.keys())] if old else []
        )
        lines += [f"{driver}: - {name} {old[name]}" for name in sorted(old.keys() - new.keys())]
    return lines


def _versions(target: locks.TargetLock, driver: str) -> dict[str, str]:
    return {
        package.name: package.version
        for packages in target.drivers.get(driver, {}).values()
        for package in packages
    }


def _document(
    path: Path,
    earlier: locks.Lock,
    lock: locks.Lock,
    keys: list[str],
    *,
    changed: bool,
    problems: Mapping[str, DriverforgeError],
) -> dict[str, Any]:
    return {
        "schema": 1,
        "lock": str(path),
        "changed": changed,
        "targets": {
            key: {
                "kernels": list(lock.targets[key].kernels),
                "without_headers": list(lock.targets[key].without_headers),
                "drivers": list(lock.targets[key].drivers),
                "suites": {suite.suite: suite.date for suite in lock.targets[key].repositories},
                "changes": changes(earlier.targets[key], lock.targets[key]) if key in earlier.targets else [],
            }
            for key in keys
        },
        "problems": {what: error.document() for what, error in problems.items()},
    }
