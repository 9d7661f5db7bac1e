"""The life of `driverforge lock`: signed repositories to pins, merged into the lock file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driverforge_build.app.knowledge import Selection
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import survey
from driverforge_build.discover.targets import wanted_targets
from driverforge_build.lock.file import load_lock, merge_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix import OsRow, load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.ports import Downloads
from driverforge_build.publish.bases import FoundBase, WantedBase, find_bases
from driverforge_core.errors import DriverforgeError
from driverforge_oci.client import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What a run did.

    `targets` are those that were looked at, by key, `before` what the lock held of them.
    `nowhere` are those that were not, for want of an address. `changed`: whether the lock file differs from
    what was found. `problems` are drivers that could not be pinned, `whole` is False where they keep the file
    from being written. `bases` is what was found of the targets' base images, but for those that name their
    own digest.
    """

    targets: Mapping[str, TargetLock]
    before: Mapping[str, TargetLock]
    changed: bool
    whole: bool
    problems: Mapping[str, DriverforgeError]
    nowhere: Mapping[str, DriverforgeError]
    bases: Mapping[str, FoundBase]


def lock_targets(
    selection: Selection,
    settings: Settings,
    downloads: Downloads,
    client: RegistryClient | None,
    *,
    keep_going: bool,
    check: bool,
) -> Locked:
    """Pin the targets of the selected cells; with `check` the file is left alone.

    `client` is asked what base images stand for; None asks nothing.
    Raises UsageError, InputError, StorageFailed, and what `survey` raises.
    """
    path = selection.given.lock
    matrix = load_matrix(selection.given.matrix)
    for option, named in (("--mirror", map(mirror_os, settings.mirrors)), ("--base", selection.given.bases)):
        check_named(option, named, [row.id for row in matrix.rows])
    wanted = wanted_targets(matrix, select=selection.select, skip=selection.skip)
    earlier = load_lock(path, matrix=selection.given.matrix) if path.exists() else Lock()
    found = survey(matrix, wanted, earlier, downloads, settings)
    bases = find_bases(client, (_wanted_base(row, arch, selection, earlier) for row, arch in wanted))
    targets = {}
    for key in (f"{row.id}-{arch}" for row, arch in wanted):
        if key not in found.nowhere:
            base = bases[key].base if key in bases else None
            targets[key] = replace(found.lock.targets[key], base=base)
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
        bases=bases,
    )


def _wanted_base(row: OsRow, arch: Arch, selection: Selection, earlier: Lock) -> WantedBase:
    target = earlier.target(row.id, arch)
    return WantedBase(
        target=f"{row.id}-{arch}",
        arch=arch,
        reference=selection.given.bases.get(row.id, row.on(arch).base),
        locked=target.base if target else None,
    )
