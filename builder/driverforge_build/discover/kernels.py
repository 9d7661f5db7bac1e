"""All kernels of an OS's flavours in the repositories, with what a module build for each must download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from driverforge_build.discover.offered import Package, Requirement
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.model import KernelSeries
from driverforge_core.kernel import KernelRelease

SMALLEST = 4 << 20
"""Bytes, unpacked. A package with less holds no kernel: Debian's for clouds has 13 MB, and what only depends
on a kernel (linux-image-7.2.12+deb13-amd64, Red Hat's `kernel`) has some kilobytes or nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a repository, and the packages that a build of its modules needs.

    `headers` are extracted for a build; `compiler` is what they name ('gcc-12'); `links` what their programs
    need. `image` is None where the repositories have headers alone, or `hollow` packages in its place, which
    hold no kernel. `modules` are the packages beside the image with further modules of the kernel that are
    there.
    """

    release: KernelRelease
    series: KernelSeries
    compiler: str
    headers: tuple[Package, ...]
    image: Package | None
    links: tuple[Requirement, ...]
    modules: tuple[Package, ...] = ()
    hollow: tuple[Package, ...] = ()

    @property
    def packages(self) -> tuple[Package, ...]:
        return (*self.headers, *((self.image,) if self.image else ()), *self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels that were `found`, oldest first.

    `without_headers` are releases whose image is published while their headers are not, `older` those that
    the rows of their series leave out.
    """

    found: tuple[Kernel, ...]
    without_headers: tuple[KernelRelease, ...]
    older: tuple[KernelRelease, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """The releases of `older`."""
        return tuple(release.text for release in self.older)

    @property
    def hollow(self) -> tuple[str, ...]:
        """The kernels of which no package was found to hold them, with what was found in its place."""
        return tuple(
            f"{package.name} unpacks to {package.installed} bytes"
            for kernel in self.found
            if kernel.image is None
            for package in kernel.hollow[:1]
        )


def choose_image(offered: Iterable[Package | None]) -> tuple[Package | None, tuple[Package, ...]]:
    """The first package with a kernel in it, and those before it that hold none.

    A name says nothing: Debian's linux-image-RELEASE has the kernel up to 6.18; from 6.19 on it depends on
    linux-binary-RELEASE, which has it.
    """
    hollow: list[Package] = []
    for package in filter(None, offered):
        if package.installed is None or package.installed >= SMALLEST:
            return package, tuple(hollow)
        hollow.append(package)
    return None, tuple(hollow)


def sorted_kernels(found: Mapping[str, Kernel], bare: Mapping[str, KernelRelease]) -> Kernels:
    """The kernels of `found` and the releases of `bare` that are not among them, by their release."""
    return Kernels(
        found=tuple(sorted(found.values(), key=lambda kernel: kernel.release.sort_key)),
        without_headers=tuple(
            sorted((bare[text] for text in bare if text not in found), key=lambda release: release.sort_key)
        ),
    )


def newest_alone(kernels: Kernels) -> Kernels:
    """Without the kernels that are older than the `newest` ones of their series and flavour."""
    kept: list[Kernel] = []
    older: list[KernelRelease] = []
    seen = Counter[tuple[str, str]]()
    for kernel in reversed(kernels.found):
        kind = (kernel.series.id, flavour_of(kernel.release))
        seen[kind] += 1
        if kernel.series.newest is None or seen[kind] <= kernel.series.newest:
            kept.append(kernel)
        else:
            older.append(kernel.release)
    return replace(kernels, found=tuple(reversed(kept)), older=tuple(reversed(older)))
