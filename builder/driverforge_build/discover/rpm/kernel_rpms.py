"""The kernels of RPM repositories: versions of packages that all have one name.

The row's templates name the packages (`kernel-devel-{release}`, of SUSE `kernel-default-devel`); without
{release} they are names. `uname -r` is what a package provides as kernel-uname-r or kernel-devel-uname-r.
SUSE's releases are without the last number of the package's, which counts rebuilds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from driverforge_build.discover.kernels import Kernel, Kernels, choose_image, sorted_kernels
from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import KernelSeries, OsRow
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease

_UNAME = re.compile(r"kernel(?:-[a-z0-9]+)*-uname-r")
_LIBRARY = re.compile(r"[^/\s]+\.so(?:\.[^()\s]+)?\(.*")


def find_kernels(index: PackageIndex, row: OsRow, arch: Arch) -> Kernels:
    """The kernels of every series and flavour that a row names for an architecture.

    Where the repositories have no image of any kernel of a series (SUSE's without subscription), headers are
    enough.
    """
    found: dict[str, Kernel] = {}
    bare: dict[str, KernelRelease] = {}
    for series in row.kernels:
        # a loop over names, not over releases: one package has hundreds of versions
        headers = [_by_release(index, name, series, arch) for name in _names(series.headers)]
        images = [_by_release(index, name, series, arch) for name in _names(series.image)]
        have_images = any(images)
        for text, (release, anchor) in headers[0].items():
            parts = [anchor, *(_beside(index, name, anchor, series) for name in _names(series.headers)[1:])]
            whole = [part for part in parts if part is not None]
            offered = [one[text][1] for one in images if text in one]
            if len(whole) == len(parts) and (offered or not have_images):
                beside = (_beside(index, name, anchor, series) for name in _names(series.modules))
                modules = tuple(package for package in beside if package is not None)
                found[text] = _kernel(release, series, whole, offered, modules)
            elif offered:
                bare[text] = release
        for one in images:
            bare |= {text: release for text, (release, _) in one.items() if text not in headers[0]}
    return sorted_kernels(found, bare)


def _names(templates: tuple[str, ...]) -> list[str]:
    """Names of packages without what stands for a release."""
    return [re.sub(r"-?\{(?:release|plain)\}", "", template) for template in templates]


def _by_release(
    index: PackageIndex, name: str, series: KernelSeries, arch: Arch
) -> dict[str, tuple[KernelRelease, Package]]:
    """The newest package of each release of a series, by `uname -r`."""
    found: dict[str, tuple[KernelRelease, Package]] = {}
    for package in index.versions(name):
        release = _release(package, series, arch) if package.suite in series.repositories else None
        if release is not None:
            found.setdefault(release.text, (release, package))
    return found


def _release(package: Package, series: KernelSeries, arch: Arch) -> KernelRelease | None:
    belongs, flavours = glob_set((series.releases,)), series.flavours.get(arch, ())
    for text in _uname_candidates(package, flavours):
        try:
            release = KernelRelease.parse(text)
        except InputError:
            continue
        if belongs(text) and flavour_of(release) in flavours:
            return release
    return None


def _uname_candidates(package: Package, flavours: tuple[str, ...]) -> Iterator[str]:
    """What `uname -r` may say: what the package says first, then what follows from its version."""
    for offer in package.provides:
        if _UNAME.fullmatch(offer.name) and offer.version:
            yield offer.version
    version = package.version.rpartition(":")[2]
    yield f"{version}.{package.arch}"
    for flavour in flavours:
        yield f"{version}.{package.arch}+{flavour}"
        yield f"{version.rpartition('.')[0]}-{flavour}"


def _beside(index: PackageIndex, name: str, anchor: Package, series: KernelSeries) -> Package | None:
    """A further package of the same kernel: in the same version."""
    return next(
        (
            package
            for package in index.versions(name)
            if package.version == anchor.version and package.suite in series.repositories
        ),
        None,
    )


def _kernel(
    release: KernelRelease,
    series: KernelSeries,
    headers: list[Package],
    images: list[Package],
    modules: tuple[Package, ...],
) -> Kernel:
    image, hollow = choose_image(images)
    links = {one for package in headers for (one, *_) in package.depends if _LIBRARY.fullmatch(one.name)}
    return Kernel(
        release=release,
        series=series,
        compiler=series.compilers[0],
        headers=tuple(sorted(headers, key=lambda package: package.name)),
        image=image,
        links=tuple(sorted(links, key=str)),
        modules=modules,
        hollow=hollow,
    )
