"""All kernels of an OS's flavours in the repositories, with what a module build for each must download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from driverforge_build.discover.offered import Package, Requirement
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.model import KernelSeries
from driverforge_core.kernel import KernelRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a repository, and the packages that a build of its modules needs.

    `headers` are extracted for a build; `compiler` is what they name ('gcc-12'); `links` what their programs
    need. `image` is None where the repositories have headers alone. `modules` are the packages beside the
    image with further modules of the kernel that are there.
    """

    release: KernelRelease
    series: KernelSeries
    compiler: str
    headers: tuple[Package, ...]
    image: Package | None
    links: tuple[Requirement, ...]
    modules: tuple[Package, ...] = ()

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
