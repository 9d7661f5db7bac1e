"""Kernels of one class: what is compiled for them differs in the kernel's name.

Their header packages hold the same but for the name (files, configuration, Module.symvers), and they ask for
the same compiler. It is a report, and a reason to expect a fast build. Modules of one kernel are never used
for another: each gets its own, with its own vermagic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from driverforge_build.advice import Given
from driverforge_build.lock.pins import LockedKernel, TargetLock
from driverforge_core.headertree import HeaderDigests
from driverforge_core.kernel import KernelRelease

_WORDS = {"files": "headers", "config": "configuration", "symvers": "Module.symvers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """`kernels` are releases, oldest first; most classes have one."""

    kernels: tuple[str, ...]
    compiler: str
    digests: HeaderDigests


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClasses:
    """`not_known` are releases with a header package that nobody looked into."""

    found: tuple[KernelClass, ...]
    not_known: tuple[str, ...]

    def of(self, release: str) -> KernelClass | None:
        return next((one for one in self.found if release in one.kernels), None)


def kernel_classes(target: TargetLock) -> KernelClasses:
    """The classes of all kernels of a target, by what the lock has of their header packages."""
    found: dict[tuple[HeaderDigests, str], list[str]] = {}
    not_known = []
    for kernel in sorted(target.kernels.values(), key=_age):
        if digests := target.digests(kernel):
            found.setdefault((digests, kernel.compiler), []).append(kernel.release)
        else:
            not_known.append(kernel.release)
    return KernelClasses(
        found=tuple(
            KernelClass(kernels=tuple(kernels), compiler=compiler, digests=digests)
            for (digests, compiler), kernels in found.items()
        ),
        not_known=tuple(not_known),
    )


def summary_lines(target: TargetLock, given: Given) -> Iterator[str]:
    """Which kernels are of one class; nothing where nobody asked `lock` for classes."""
    if not target.header_digests:
        return
    classes = kernel_classes(target)
    for one in classes.found:
        if len(one.kernels) > 1:
            yield f"{target.key}: kernels of one class: {', '.join(one.kernels)}"
    if classes.not_known:
        command = given.command("lock", select=(f"{target.key}-*",))
        count = len(classes.not_known)
        yield f"{target.key}: classes not known (kernels: {count}), to run: {command} --classes"


def evidence_lines(kernel: LockedKernel, target: TargetLock) -> Iterator[str]:
    """What is known of a kernel's class, and how it differs from the kernel before it of its flavour."""
    classes = kernel_classes(target)
    own = classes.of(kernel.release)
    if own is None:
        yield "class: not known; `driverforge lock --classes` reads what it is told by"
        return
    others = [release for release in own.kernels if release != kernel.release]
    if others:
        yield f"class: differs in its name alone from {', '.join(others)}"
    else:
        yield "class: no other kernel that was looked into has the same headers, symbols and compiler"
    alike = (one for one in target.kernels.values() if one.flavour == kernel.flavour)
    before = max((one for one in alike if _age(one) < _age(kernel)), key=_age, default=None)
    if before and before.release not in own.kernels and (other := classes.of(before.release)):
        yield f"  against {before.release} differ: {', '.join(_differences(own, other))}"


def _differences(one: KernelClass, other: KernelClass) -> Iterator[str]:
    for part in fields(HeaderDigests):
        if getattr(one.digests, part.name) != getattr(other.digests, part.name):
            yield _WORDS[part.name]
    if one.compiler != other.compiler:
        yield "compiler"


def _age(kernel: LockedKernel) -> Any:
    return KernelRelease.parse(kernel.release).sort_key
