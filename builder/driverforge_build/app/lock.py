"""The life of `driverforge lock`: signed repositories to pins, merged into the lock file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_build.app.knowledge import Selection
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import survey
from driverforge_build.discover.targets import wanted_targets
from driverforge_build.lock.file import load_lock, merge_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.ports import Downloads
from driverforge_core.errors import DriverforgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What a run did.

    `targets` are those that were looked at, by key, `before` what the lock held of them.
    `nowhere` are those that were not, for want of an address, and `degraded` those whose repositories cannot
    be read now. `changed`: whether the lock file differs from
    what was found. `problems` are drivers that could not be pinned, `whole` is False where they keep the file
    from being written.
    """

    targets: Mapping[str, TargetLock]
    before: Mapping[str, TargetLock]
    changed: bool
    whole: bool
    problems: Mapping[str, DriverforgeError]
    nowhere: Mapping[str, DriverforgeError]
    degraded: Mapping[str, DriverforgeError]


def lock_targets(
    selection: Selection, settings: Settings, downloads: Downloads, *, keep_going: bool, check: bool
) -> Locked:
    """Pin the targets of the selected cells; with `check` the file is left alone.

    Raises UsageError, InputError, StorageFailed, and what `survey` raises.
    """
    path = selection.given.lock
    matrix = load_matrix(selection.given.matrix)
    systems = [row.id for row in matrix.rows]
    check_named("--keyring", (os_key for os_key, _ in settings.keyrings if os_key), systems)
    check_named("--mirror", map(mirror_os, settings.mirrors), systems)
    wanted = wanted_targets(matrix, select=selection.select, skip=selection.skip)
    earlier = load_lock(path, matrix=selection.given.matrix) if path.exists() else Lock()
    found = survey(matrix, wanted, earlier, downloads, settings)
    targets = found.targets
    # what was asked for by name is a problem; of all that the matrix has, a site has some
    problems = {**found.problems, **(found.nowhere if selection.select else {})}
    whole = not problems or keep_going
    return Locked(
        targets=targets,
        before={key: earlier.targets[key] for key in targets if key in earlier.targets},
        changed=merge_lock(path, targets.values(), writing=whole and not check),
        whole=whole,
        problems=problems,
        nowhere={} if selection.select else found.nowhere,
        degraded=found.degraded,
    )
