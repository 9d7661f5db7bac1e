"""The packages that nodes fetch when they compile a driver: an artifact for each OS and architecture.

A driver's container asks its package manager for the headers of the node's kernel; NVIDIA's asks for the
kernel's image and modules too. They are carried with the indexes that name them, as the distribution signed
these.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.manager import VerifiedRepository, metadata_of
from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.sums import pins_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Blob, Downloads
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_mirror.contents.carried import Carried, CarriedFile, artifact
from driverforge_mirror.lists.mediatypes import FOLDER_URL, PACKAGES, PACKAGES_CONFIG
from driverforge_mirror.needs.drivers import Pool, pools
from driverforge_mirror.needs.needed import Needs, Reason
from driverforge_mirror.needs.slots import PACKAGES_SLOT
from driverforge_oci.transport import without_secrets

_FILE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repositories:
    """What the packages are looked for with."""

    matrix: Matrix
    settings: Settings
    downloads: Downloads


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """What the repositories of an OS and architecture have: kernels with their packages, by release."""

    row: OsRow
    arch: Arch
    index: PackageIndex
    repositories: Mapping[str, VerifiedRepository]
    kernels: Mapping[str, Kernel]


def carried_packages(
    needs: Needs, kernels: Sequence[KernelRelease], repositories: Repositories
) -> list[Carried]:
    """An artifact for each OS and architecture whose nodes compile, for the kernels that these run and boot.

    The next ones are the newest in the repositories, and those of `kernels`. Raises InputError where the
    repositories do not have a kernel's packages, and as discovery does.
    """
    asked = {(node.os.tag, node.arch): node.os for _, nodes in needs.compiling for node in nodes if node.os}
    systems = {key: _system(os, key[1], repositories) for key, os in sorted(asked.items())}

    def known(os: OsId, arch: str) -> Collection[str]:
        system = systems.get((os.tag, arch))
        return system.kernels if system else ()

    wanted: dict[tuple[str, str], dict[str, Pool]] = {key: {} for key in systems}
    for wish, nodes in needs.compiling:
        for pool in pools(replace(wish, precompiled=True), nodes, kernels, known):
            for arch in pool.archs:
                wanted[pool.os.tag, arch].setdefault(str(pool.kernel), pool)
    missing = [
        f"{release} ({tag}, {arch}){'' if pool.next_boot else ': ' + ', '.join(pool.nodes[:3])}; they have "
        f"{', '.join(_near(release, systems[tag, arch])) or 'no kernel with headers'}"
        for (tag, arch), mine in wanted.items()
        for release, pool in mine.items()
        if release not in systems[tag, arch].kernels
    ]
    if missing:
        raise InputError(
            f"the repositories do not have the header packages of {len(missing)} kernels; nothing is locked",
            details=missing,
            resolution="name a mirror that still has them with --mirror, update these nodes, or use "
            "precompiled drivers for them",
        )
    return [
        _carried(tag, systems[tag, arch], mine, repositories.downloads)
        for (tag, arch), mine in sorted(wanted.items())
    ]


def _near(release: str, system: _System) -> list[str]:
    """The kernels there whose names are most like one that is not there."""
    return difflib.get_close_matches(release, system.kernels, n=4, cutoff=0)


def _system(os: OsId, arch: str, repositories: Repositories) -> _System:
    """Raises InputError for an OS that the matrix does not have, and as discovery does."""
    row = repositories.matrix.row(os.tag) or repositories.matrix.row(os.key)
    own = next((one for one in row.archs if one == arch), None) if row else None
    if row is None or own is None:
        raise InputError(
            f"the matrix has no {os.tag} for {arch}, so where its packages are is not known",
            resolution="add a row for it to a matrix of your own, and name that with --matrix",
        )
    row, metadata = row.on(own), metadata_of(row)
    sought = {name for series in row.kernels for name in series.repositories}
    settings, downloads = repositories.settings, repositories.downloads
    index, found = metadata.new_index(), dict[str, VerifiedRepository]()
    for place in metadata.locate(row, own, settings):
        if place.id in sought:
            found[place.id] = place.read(downloads, settings)
            found[place.id].add_packages(index, own, downloads)
    kernels = {one.release.text: one for one in metadata.find_kernels(index, row, own).found}
    return _System(row=row, arch=own, index=index, repositories=found, kernels=kernels)


def _carried(tag: str, system: _System, wanted: Mapping[str, Pool], downloads: Downloads) -> Carried:
    kernels = [system.kernels[release] for release in sorted(wanted)]
    taken = [one for kernel in kernels for one in kernel.packages]
    if system.row.package_manager == "apt":
        taken += _candidates(system.index, taken)
    addresses = {name: one.address for name, one in system.repositories.items()}
    packages = {one.key: one for one in pins_of(addresses, downloads, taken).values()}
    files, definition = [], ""
    for name in sorted({one.suite for one in packages.values()}):
        repository = system.repositories[name]
        copy = repository.partial_copy(system.row, system.arch, FOLDER_URL)
        definition += copy.definition
        for one in sorted(packages.values(), key=lambda package: package.path):
            if one.suite == name:
                blob = Blob(urls=(repository.address(one.path),), sha256=one.sha256, size=one.size)
                files.append(_file(f"{copy.folder}/{one.path}", blob, downloads))
        for path, listed in copy.index.items():
            # an index is another one tomorrow, so it is kept now
            downloads.blob(blob := downloads.pinned(listed))
            files.append(_file(f"{copy.folder}/{path}", blob, downloads))
    config = {
        "os": tag,
        "arch": system.arch,
        "manager": system.row.package_manager,
        "definition": definition,
    }
    return Carried(
        image=f"localhost/driverforge/packages:{tag}-{system.arch}",
        found=artifact(CarriedFile.of(PACKAGES_CONFIG, json.dumps(config).encode()), files, kind=PACKAGES),
        reasons=[_reason(kernel, wanted[kernel.release.text], tag) for kernel in kernels],
    )


def _candidates(index: PackageIndex, packages: Collection[Package]) -> list[Package]:
    """The versions that apt takes of these packages, where a dependency leaves it open.

    linux-kbuild-6.1 of a later kernel serves the headers of an earlier one. apt sees the suites whose indexes
    are carried, and no others.
    """
    suites, names = {one.suite for one in packages}, sorted({one.name for one in packages})
    taken = (next((one for one in index.versions(name) if one.suite in suites), None) for name in names)
    return [one for one in taken if one is not None]


def _file(title: str, blob: Blob, downloads: Downloads) -> CarriedFile:
    """A file of a repository. Where its address has a secret, which no list may, it is fetched now."""
    address = without_secrets(blob.urls[-1])
    if address != blob.urls[-1]:
        downloads.blob(blob)
    return CarriedFile(media_type=_FILE, sha256=blob.sha256, size=blob.size, address=address, title=title)


def _reason(kernel: Kernel, pool: Pool, tag: str) -> Reason:
    nodes = f"{len(pool.nodes)} node{'s' if len(pool.nodes) > 1 else ''} with {tag}"
    when = f"the next boot of {nodes}" if pool.next_boot else nodes
    names = ", ".join(one.name for one in kernel.packages)
    return Reason(
        slot=PACKAGES_SLOT,
        text=f"the driver is compiled for kernel {kernel.release.text} ({when}): {names}",
        nodes=() if pool.next_boot else pool.nodes,
        archs=pool.archs,
        pool=pool,
    )
