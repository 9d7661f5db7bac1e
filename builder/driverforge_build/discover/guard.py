"""The shrink guard: a crawl that finds suddenly less than the lock holds is more often a broken mirror than the truth.

Crawlers that return a shorter list with exit status 0 have lost whole architectures without anybody noticing.
"""

from __future__ import annotations

from collections import Counter

from driverforge_build.lock import LockedKernel, TargetLock
from driverforge_core.errors import TemporaryFailure


def losses(earlier: TargetLock, found: TargetLock) -> list[str]:
    """Sentences about what a target lost: all or more than half of a suite's kernels of a flavour, or its indexes' newer state."""
    before, after = _counts(earlier), _counts(found)
    told = [
        f"{found.key}: {suite} has {after[suite, flavour]} kernels of flavour {flavour}, the lock has {count}"
        for (suite, flavour), count in sorted(before.items())
        if after[suite, flavour] * 2 < count
    ]
    for repository in found.repositories:
        known = earlier.suite(repository.suite)
        if known is not None and repository.date < known.date:
            told.append(
                f"{found.key}: {repository.suite} is of {repository.date}, the lock is of {known.date}"
            )
    return told


def check(earlier: TargetLock | None, found: TargetLock) -> None:
    """Raise TemporaryFailure if a target lost too much against an earlier lock."""
    if earlier is None or earlier.synthetic:
        return
    if told := losses(earlier, found):
        raise TemporaryFailure(
            f"discovery finds suspiciously less for {found.key} than the lock holds; the lock stays as it is",
            details=told,
            resolution="use another mirror, or the same later; if the kernels are really gone: --accept-shrink",
        )


def suite_of(kernel: LockedKernel) -> str:
    """The suite that a kernel's headers come from."""
    return next(
        (package.suite for package in kernel.headers if kernel.release in package.name), kernel.image.suite
    )


def _counts(target: TargetLock) -> Counter[tuple[str, str]]:
    return Counter((suite_of(kernel), kernel.flavour) for kernel in target.kernels.values())
