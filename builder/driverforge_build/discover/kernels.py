"""All kernels of an OS's flavours that the repositories offer, with what a module build for each must download.

A kernel counts when its image and its headers with all their parts are there: metapackages (linux-image-6.12-amd64) are none.
Images stay published longer than their headers, and a mirror may be in the middle of an update; such releases are listed apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import Arch, KernelLine, OsRow
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease

from .packages import Catalogue, Package, Requirement

_COMPILER = re.compile(r"(?:linux-compiler-)?(gcc-\d+)(?:-.*)?")
_PART_OF_HEADERS = ("linux-headers-", "linux-kbuild-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel: `headers` are extracted for a build; `compiler` is what they name ('gcc-12'); `links` what their programs need."""

    release: KernelRelease
    line: KernelLine
    compiler: str
    headers: tuple[Package, ...]
    image: Package
    links: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """`found`, oldest first; `without_headers` are releases whose image is published and whose headers are not."""

    found: tuple[Kernel, ...]
    without_headers: tuple[KernelRelease, ...]


def find_kernels(catalogue: Catalogue, row: OsRow, arch: Arch) -> Kernels:
    """The kernels of every series and flavour that a row names for an architecture."""
    found: dict[str, Kernel] = {}
    bare: dict[str, KernelRelease] = {}
    for line in row.kernels:
        for release in _releases(catalogue, line, arch):
            image = _newest(catalogue, line.image_packages(release.text), line)
            headers = [_newest(catalogue, [name], line) for name in line.header_packages(release.text)]
            if image is None:
                continue
            whole = [package for package in headers if package is not None]
            kernel = _kernel(catalogue, line, release, whole, image) if len(whole) == len(headers) else None
            if kernel is None:
                bare[release.text] = release
            else:
                found[release.text] = kernel
    return Kernels(
        found=tuple(sorted(found.values(), key=lambda kernel: kernel.release.sort_key)),
        without_headers=tuple(
            sorted((bare[text] for text in bare if text not in found), key=lambda release: release.sort_key)
        ),
    )


def _releases(catalogue: Catalogue, line: KernelLine, arch: Arch) -> Iterator[KernelRelease]:
    """Releases of a series for which some image package exists."""
    belongs = glob_set((line.releases,))
    flavours = line.flavours.get(arch, ())
    seen = set()
    for template in line.image:
        prefix, _, suffix = template.partition("{release}")
        for name in catalogue.names(prefix):
            text = name.removeprefix(prefix).removesuffix(suffix)
            if suffix and not name.endswith(suffix):
                continue
            release = _parsed(text)
            if release is not None and text not in seen and belongs(text) and flavour_of(release) in flavours:
                seen.add(text)
                yield release


def _parsed(text: str) -> KernelRelease | None:
    try:
        return KernelRelease.parse(text)
    except InputError:
        return None


def _newest(catalogue: Catalogue, names: Sequence[str], line: KernelLine) -> Package | None:
    """The first of the names that one of the series' repositories has, in its newest version there."""
    for name in names:
        if (
            package := next((one for one in catalogue.versions(name) if one.suite in line.repositories), None)
        ) is not None:
            return package
    return None


def _kernel(
    catalogue: Catalogue, line: KernelLine, release: KernelRelease, headers: list[Package], image: Package
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
            if first.name.startswith(_PART_OF_HEADERS):
                if first.name not in whole:
                    if (part := _part(catalogue, first, package)) is None:
                        return None
                    whole[part.name] = part
                    waiting.append(part)
            elif found := _COMPILER.fullmatch(first.name):
                compiler = compiler or found[1]
            elif package.name.startswith("linux-kbuild-"):
                links.add(Requirement(name=first.name))
    return Kernel(
        release=release,
        line=line,
        compiler=compiler or line.compiler,
        headers=tuple(whole[name] for name in sorted(whole)),
        image=_matching(catalogue, image, headers[0].version),
        links=tuple(sorted(links, key=str)),
    )


def _part(catalogue: Catalogue, requirement: Requirement, parent: Package) -> Package | None:
    """The package that a header package needs: in its own version if that is still there (linux-kbuild-6.1 serves all ABIs)."""
    fitting = [
        package for package in catalogue.versions(requirement.name) if requirement.admits(package.version)
    ]
    return next(
        (package for package in fitting if package.version == parent.version), next(iter(fitting), None)
    )


def _matching(catalogue: Catalogue, image: Package, version: str) -> Package:
    return next((package for package in catalogue.versions(image.name) if package.version == version), image)
