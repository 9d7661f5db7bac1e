"""The kernels of Debian's and Ubuntu's repositories, each of a package of its own name.

A kernel counts when its image and its headers with all their parts are there. Metapackages
(linux-image-6.12-amd64) do not count. Images stay published longer than their headers, and a mirror may be in
the middle of an update, so such releases are listed apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from driverforge_build.discover.kernels import Kernel, Kernels, choose_image, sorted_kernels
from driverforge_build.discover.offered import Package, PackageIndex, Requirement
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import KernelSeries, OsRow
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease

_COMPILER = re.compile(r"(?:linux-compiler-)?(gcc-\d+)(?:-.*)?")
# Debian's linux-headers-6.1.0-50-common and linux-kbuild-6.1; Ubuntu's linux-headers-6.8.0-136, and of
# kernels of other sources linux-hwe-6.17-headers-6.17.0-40, linux-aws-headers-6.8.0-1060
_PART_OF_HEADERS = re.compile(r"linux-(?:[a-z0-9.+-]+-)?headers-.+|linux-kbuild-.+")


def find_kernels(index: PackageIndex, row: OsRow, arch: Arch) -> Kernels:
    """The kernels of every series and flavour that a row names for an architecture."""
    found: dict[str, Kernel] = {}
    bare: dict[str, KernelRelease] = {}
    for series in row.kernels:
        for release in _releases(index, series, arch):
            images = [_newest(index, name, series) for name in series.image_packages(release.text)]
            headers = [_newest(index, name, series) for name in series.header_packages(release.text)]
            if not any(images):
                continue
            whole = [package for package in headers if package is not None]
            kernel = _kernel(index, series, release, whole, images) if len(whole) == len(headers) else None
            if kernel is None:
                bare[release.text] = release
            else:
                found[release.text] = kernel
    return sorted_kernels(found, bare)


def _releases(index: PackageIndex, series: KernelSeries, arch: Arch) -> Iterator[KernelRelease]:
    """Releases of a series for which some image package exists."""
    belongs = glob_set((series.releases,))
    flavours = series.flavours.get(arch, ())
    seen = set()
    for template in series.image:
        prefix, _, suffix = template.partition("{release}")
        for name in index.names(prefix):
            text = name.removeprefix(prefix).removesuffix(suffix)
            release = _parsed(text)
            if release is not None and text not in seen and belongs(text) and flavour_of(release) in flavours:
                seen.add(text)
                yield release


def _parsed(text: str) -> KernelRelease | None:
    try:
        return KernelRelease.parse(text)
    except InputError:
        return None


def _newest(index: PackageIndex, name: str, series: KernelSeries) -> Package | None:
    """The newest version of a package that one of the series' repositories has."""
    return next((one for one in index.versions(name) if one.suite in series.repositories), None)


def _kernel(
    index: PackageIndex,
    series: KernelSeries,
    release: KernelRelease,
    headers: Sequence[Package],
    images: Sequence[Package | None],
) -> Kernel | None:
    """A kernel with all parts of its headers, None where one is missing."""
    compiler = ""
    links: set[Requirement] = set()
    whole = {package.name: package for package in headers}
    waiting = list(headers)
    while waiting:
        package = waiting.pop()
        for clause in package.depends:
            first = clause[0]
            if _PART_OF_HEADERS.fullmatch(first.name):
                if first.name not in whole:
                    if (part := _part(index, first, package)) is None:
                        return None
                    whole[part.name] = part
                    waiting.append(part)
            elif matched := _COMPILER.fullmatch(first.name):
                compiler = compiler or matched[1]
            # what the headers' programs are linked with; linux-base and the image are for a running system
            elif not first.name.startswith("linux-"):
                links.add(Requirement(name=first.name))
    version = headers[0].version
    image, hollow = choose_image(_matching(index, one, version) for one in images if one)
    modules = (_newest(index, name, series) for name in series.module_packages(release.text))
    return Kernel(
        release=release,
        series=series,
        compiler=compiler or series.compilers[0],
        headers=tuple(whole[name] for name in sorted(whole)),
        image=image,
        links=tuple(sorted(links, key=str)),
        modules=tuple(_matching(index, found, version) for found in modules if found),
        hollow=hollow,
    )


def _part(index: PackageIndex, requirement: Requirement, parent: Package) -> Package | None:
    """The package that a header package needs, in the same version if that is still there.

    Another version may do: linux-kbuild-6.1 serves all ABIs.
    """
    fitting = [
        package for package in index.versions(requirement.name) if index.admits(requirement, package.version)
    ]
    return next(
        (package for package in fitting if package.version == parent.version), next(iter(fitting), None)
    )


def _matching(index: PackageIndex, image: Package, version: str) -> Package:
    return next((package for package in index.versions(image.name) if package.version == version), image)
