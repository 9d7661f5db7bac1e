"""What changed between two locks of a target, and the guard against losing too much.

A crawl that suddenly finds less than the lock holds is more often a broken mirror than the truth. Crawlers
that return a shorter list with exit status 0 have lost whole architectures without anybody noticing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from driverforge_build.lock.pins import LockedBase, LockedKernel, TargetLock
from driverforge_core.errors import TemporaryFailure


def losses(earlier: TargetLock, found: TargetLock) -> list[str]:
    """What a target lost, a sentence each.

    More than half of a suite's kernels of a flavour count as lost, or of the finished modules of a driver for
    kernels that are still there; and an index that is older than the lock's.
    """
    before, after = _counts(earlier), _counts(found)
    told = [
        f"{found.key}: {suite} has {after[suite, flavour]} kernels of flavour {flavour}, the lock has {count}"
        for (suite, flavour), count in sorted(before.items())
        if after[suite, flavour] * 2 < count
    ]
    for driver in found.drivers:
        had = [name for name in found.kernels if _has_modules(earlier, name, driver)]
        has = [name for name in had if _has_modules(found, name, driver)]
        if len(has) * 2 < len(had):
            told.append(
                f"{found.key}: {len(has)} kernels have modules of {driver}, in the lock {len(had)} of them do"
            )
    for repository in found.repositories:
        known = earlier.suite(repository.suite)
        if known is not None and known.signed_by and not repository.signed_by:
            told.append(f"{found.key}: {repository.suite} is not signed any more")
        if known is not None and repository.date < known.date:
            told.append(
                f"{found.key}: {repository.suite} is of {repository.date}, the lock is of {known.date}"
            )
    return told


def check_losses(earlier: TargetLock | None, found: TargetLock, *, older: Collection[str] = ()) -> None:
    """Raise TemporaryFailure if a target lost too much against an earlier lock.

    `older` are kernels that are published still, and left out on purpose: they are no loss.
    """
    if earlier is None:
        return
    counted = {name: kernel for name, kernel in earlier.kernels.items() if name not in older}
    if told := losses(replace(earlier, kernels=counted), found):
        raise TemporaryFailure(
            f"discovery finds suspiciously less for {found.key} than the lock holds; the lock stays as it is",
            details=told,
            resolution="use another mirror, or the same later; if the kernels are really gone: "
            "--accept-shrink",
        )


def suite_of(kernel: LockedKernel) -> str:
    """The suite that a kernel's headers come from.

    Not that of its image: a subscription may have brought it since.
    """
    named = (package for package in kernel.headers if kernel.release in package.name)
    return next(named, kernel.headers[0]).suite


def _counts(target: TargetLock) -> Counter[tuple[str, str]]:
    return Counter((suite_of(kernel), kernel.flavour) for kernel in target.kernels.values())


def _has_modules(target: TargetLock, release: str, driver: str) -> bool:
    kernel = target.kernels.get(release)
    return kernel is not None and driver in kernel.vendor


def changes(before: TargetLock, after: TargetLock) -> list[str]:
    """What changed between two locks of a target, a line each: base images, kernels, packages of drivers."""
    lines = _moved_base("base:", before.base, after.base)
    for driver in sorted({*before.images, *after.images}):
        images = before.images.get(driver), after.images.get(driver)
        lines += _moved_base(f"{driver}: driver image", *images)
    lines += [f"- kernel {release}" for release in before.kernels if release not in after.kernels]
    lines += [f"+ kernel {release}" for release in after.kernels if release not in before.kernels]
    for driver in sorted({*before.drivers, *after.drivers}):
        old, new = _versions(before, driver), _versions(after, driver)
        moved = [
            f"{name} {old[name]} -> {new[name]}"
            for name in sorted(old.keys() & new.keys())
            if old[name] != new[name]
        ]
        lines += [f"{driver}: {line}" for line in moved]
        lines += (
            [f"{driver}: + {name} {new[name]}" for name in sorted(new.keys() - old.keys())] if old else []
        )
        lines += [f"{driver}: - {name} {old[name]}" for name in sorted(old.keys() - new.keys())]
    return lines


def _moved_base(what: str, before: LockedBase | None, after: LockedBase | None) -> list[str]:
    """A line where images are to be built anew, for they stand on another base."""
    old, new = (f"{one.reference}@{one.digest}" if one else "not pinned" for one in (before, after))
    return [f"{what} {old} -> {new}"] if old != new else []


def _versions(target: TargetLock, driver: str) -> dict[str, str]:
    return {
        package.name: package.version
        for packages in target.drivers.get(driver, {}).values()
        for package in packages
    }
