"""The life of `driverforge lock`: repositories and NVIDIA's archives to pins, merged into the lock file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from driverforge_build.advice import Selection
from driverforge_build.discover.kernels import Kernels
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import closed_targets, survey
from driverforge_build.discover.targets import asking_vendors, wanted_archives, wanted_targets
from driverforge_build.lock.file import load_lock, merge_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix import Matrix, OsRow, load_matrix
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.nvidia.archives import Decisions, Pinning, pin_archives
from driverforge_build.nvidia.site import MIRROR, Site, check_hosts
from driverforge_build.ports import Downloads, LastRead
from driverforge_build.publish.bases import FoundBase, WantedBase, find_bases
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_oci.client import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What a run did.

    `targets` are those that were looked at, by key, `last_read` when each of their repositories was, by id,
    `before` what the lock held of them, `kernels` what their repositories have.
    `nowhere` are those that were not, for want of an address, `degraded` those whose repositories cannot be
    read now, `closed` those that were read without the repositories of a subscription, `partial` without a
    vendor's. `archives` is what came of each archive of NVIDIA's that the selected cells need. `changed`:
    whether the lock file differs from what was found. `problems` are drivers and archives that could not be
    pinned, `whole` is False where they keep the file from being written. `bases` is what was found of the
    targets' base images, `images` of the driver images of their payload `image` (by target, then driver
    version), but for those that name their own digest.
    """

    targets: Mapping[str, TargetLock]
    last_read: Mapping[str, Mapping[str, LastRead]]
    before: Mapping[str, TargetLock]
    kernels: Mapping[str, Kernels]
    archives: Mapping[str, Pinning]
    changed: bool
    whole: bool
    problems: Mapping[str, DriverforgeError]
    nowhere: Mapping[str, DriverforgeError]
    degraded: Mapping[str, DriverforgeError]
    closed: Mapping[str, DriverforgeError]
    partial: Mapping[str, DriverforgeError]
    bases: Mapping[str, FoundBase]
    images: Mapping[str, Mapping[str, FoundBase]]

    @property
    def reads(self) -> list[LastRead]:
        """Of all that was read, NVIDIA's texts too."""
        archives = (pinning.last_read for pinning in self.archives.values() if pinning.last_read)
        return [*(one for target in self.last_read.values() for one in target.values()), *archives]

    @property
    def nvidia_silent(self) -> bool:
        """Whether something is not pinned because NVIDIA, or its mirror, does not answer now."""
        return any(pinning.silent for pinning in self.archives.values()) or any(
            isinstance(error, TemporaryFailure) for error in self.partial.values()
        )


def lock_targets(
    selection: Selection,
    settings: Settings,
    decisions: Decisions,
    downloads: Downloads,
    client: RegistryClient | None,
    *,
    tell_closed: Callable[[Mapping[str, DriverforgeError]], object],
    keep_going: bool,
    check: bool,
) -> Locked:
    """Pin the targets of the selected cells; with `check` the file is left alone.

    `client` is asked what base images stand for; None asks nothing. `tell_closed` hears, before anything
    is asked, which targets lack a subscription.
    Raises UsageError, InputError, StorageFailed, and what `survey` raises.
    """
    path = selection.given.lock
    matrix = load_matrix(selection.given.matrix)
    systems = [row.id for row in matrix.rows]
    check_named("--keyring", (os_key for os_key, _ in settings.keyrings if os_key), systems)
    check_named("--mirror", map(mirror_os, settings.mirrors), [MIRROR, *systems])
    check_named("--base", selection.given.bases, systems)
    check_hosts(settings.mirrors)
    wanted = wanted_targets(matrix, select=selection.select, skip=selection.skip)
    needed = wanted_archives(matrix, wanted, select=selection.select, skip=selection.skip)
    earlier = load_lock(path, matrix=selection.given.matrix) if path.exists() else Lock()
    asked = asking_vendors(matrix, wanted, earlier, select=selection.select, skip=selection.skip)
    tell_closed(closed_targets(asked, settings))
    # what a person decided is checked before repositories are read
    archives = pin_archives(needed, earlier, Site(downloads=downloads, mirrors=settings.mirrors), decisions)
    found = survey(matrix, asked, earlier, downloads, settings)
    # a registry is asked for what is pinned now, and not for systems that were left out
    pinned = [(row, arch) for row, arch in wanted if f"{row.id}-{arch}" in found.targets]
    bases = find_bases(client, (_wanted_base(row, arch, selection, earlier) for row, arch in pinned))
    images = {
        f"{row.id}-{arch}": find_bases(client, _wanted_images(matrix, row, arch, earlier))
        for row, arch in pinned
    }
    targets = {
        key: replace(
            target,
            base=bases[key].base if key in bases else None,
            images={driver: one.base for driver, one in images[key].items() if one.base},
        )
        for key, target in found.targets.items()
    }
    changed = {f"archive {key}": one.error for key, one in archives.items() if one.failed and one.error}
    # what was asked for by name is a problem; of all that the matrix has, a site has some
    problems = {**found.problems, **changed, **(found.nowhere if selection.select else {})}
    # images do without what does not fit them, so it stops nothing
    whole = not problems or keep_going
    recorded = [pinning.recorded for pinning in archives.values() if pinning.recorded]
    return Locked(
        targets=targets,
        last_read=found.last_read,
        before={key: earlier.targets[key] for key in targets if key in earlier.targets},
        kernels=found.kernels,
        archives=archives,
        changed=merge_lock(path, targets.values(), recorded, writing=whole and not check),
        whole=whole,
        problems={**problems, **found.unfit},
        nowhere={} if selection.select else found.nowhere,
        degraded=found.degraded,
        closed=found.closed,
        partial=found.partial,
        bases=bases,
        images=images,
    )


def _wanted_base(row: OsRow, arch: Arch, selection: Selection, earlier: Lock) -> WantedBase:
    target = earlier.target(row.id, arch)
    return WantedBase(
        key=f"{row.id}-{arch}",
        arch=arch,
        reference=selection.given.bases.get(row.id, row.on(arch).base),
        locked=target.base if target else None,
    )


def _wanted_images(matrix: Matrix, row: OsRow, arch: Arch, earlier: Lock) -> Iterator[WantedBase]:
    """The driver images of a target's payload `image`, by driver version."""
    target = earlier.target(row.id, arch)
    for driver in row.drivers:
        if (image := driver.image_for(row.id)) and arch in driver_archs(matrix, row, driver):
            yield WantedBase(
                key=driver.version,
                arch=arch,
                reference=image,
                locked=target.images.get(driver.version) if target else None,
                driver=driver.version,
            )
