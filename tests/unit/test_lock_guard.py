"""The shrink guard, and what a lock says about its changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_build.lock.compare import changes, check_losses, losses, suite_of
from driverforge_build.lock.pins import LockedKernel, LockedPackage, TargetLock
from driverforge_core.errors import TemporaryFailure
from support.samples.locks import kernel, package, target

DRIVER = "535.261.03"


def kernels(
    count: int, *, suite: str = "bookworm", flavour: str = "cloud-amd64", first: int = 1
) -> list[LockedKernel]:
    return [
        replace(kernel(release, package(f"linux-headers-{release}", suite=suite)), flavour=flavour)
        for release in (f"6.1.0-{first + number}-{flavour}" for number in range(count))
    ]


def with_modules(one: LockedKernel) -> LockedKernel:
    return replace(one, vendor={DRIVER: (package("modules"),)})


@pytest.mark.parametrize(
    ("before", "after", "stops"),
    [(4, 4, False), (4, 2, False), (4, 1, True), (5, 2, True), (4, 0, True), (1, 0, True), (0, 3, False)],
)
def test_half_of_a_suites_kernels(before: int, after: int, stops: bool) -> None:
    earlier, found = target(*kernels(before)), target(*kernels(after))
    assert bool(losses(earlier, found)) is stops


def test_what_is_published_and_left_out_is_no_loss() -> None:
    earlier, older = target(*kernels(8)), {one.release for one in kernels(6)}
    check_losses(earlier, target(*kernels(2, first=7)), older=older)
    check_losses(earlier, target(*kernels(2, first=20)), older={one.release for one in kernels(8)})
    with pytest.raises(TemporaryFailure):
        check_losses(earlier, target(*kernels(2, first=7)), older=[*older][:1])


def test_a_flavour_that_is_gone_is_not_made_up_for_by_another() -> None:
    earlier = target(*kernels(3), *kernels(3, flavour="amd64"))
    found = target(*kernels(9))
    assert losses(earlier, found) == [
        "debian12-amd64: bookworm has 0 kernels of flavour amd64, the lock has 3"
    ]


def test_new_kernels_replace_old_ones() -> None:
    check_losses(target(*kernels(3)), target(*kernels(3, first=20)))


@pytest.mark.parametrize(
    ("still", "stops"), [((1, 2, 3, 4), False), ((1, 2), False), ((1,), True), ((), True)]
)
def test_half_of_the_finished_modules_of_kernels_that_are_still_there(
    still: tuple[int, ...], stops: bool
) -> None:
    before = target(*(with_modules(one) for one in kernels(4)))
    after = [with_modules(one) if number in still else one for number, one in enumerate(kernels(4), 1)]
    assert losses(before, target(*after)) == (
        [f"debian12-amd64: {len(still)} kernels have modules of {DRIVER}, in the lock 4 of them do"]
        if stops
        else []
    )


def test_a_new_kernel_may_have_no_modules_yet_and_a_driver_may_go() -> None:
    before = target(*(with_modules(one) for one in kernels(2)))
    assert losses(before, target(*kernels(2, first=20))) == []
    assert losses(before, replace(target(*kernels(2)), drivers={})) == []


def test_an_older_index_is_told() -> None:
    earlier = target(*kernels(1))
    found = replace(earlier, repositories=(replace(earlier.repositories[0], date="2026-10-01T00:00:00Z"),))
    assert losses(earlier, found) == [
        "debian12-amd64: bookworm is of 2026-10-01T00:00:00Z, the lock is of 2026-11-20T12:00:00Z"
    ]


def test_a_signature_that_is_gone_is_told() -> None:
    earlier = target(*kernels(1))
    found = replace(earlier, repositories=(replace(earlier.repositories[0], signed_by=()),))
    assert losses(earlier, found) == ["debian12-amd64: bookworm is not signed any more"]
    assert losses(found, earlier) == []
    assert losses(replace(earlier, repositories=()), found) == []


def test_a_kernels_suite_is_that_of_its_own_headers() -> None:
    """Not of those that it shares with others, nor of its image."""
    common, own = package("linux-kbuild-6.1", suite="other"), package("linux-headers-6.1.0-50", suite="own")
    assert suite_of(kernel("6.1.0-50", common, own)) == "own"
    bare = kernel("6.1.0-50", common, package("linux-headers-common", suite="last"))
    assert suite_of(replace(bare, image=package("i", suite="images"))) == "other"


def test_the_error_names_the_way_round() -> None:
    with pytest.raises(TemporaryFailure) as told:
        check_losses(target(*kernels(3)), target())
    assert "--accept-shrink" in told.value.resolution
    assert told.value.exit_code == 75


def test_nothing_to_compare_with() -> None:
    check_losses(None, target())


def test_changes_between_two_locks() -> None:
    def with_driver(*packages: LockedPackage, releases: tuple[str, ...]) -> TargetLock:
        return target(*(kernel(release) for release in releases), drivers={"535.1": {"userspace": packages}})

    before = with_driver(package("libc6", "1-1"), package("old"), releases=("6.1.0-50", "6.1.0-51"))
    after = with_driver(package("libc6", "1-2"), package("new"), releases=("6.1.0-51", "6.1.0-52"))
    assert changes(before, after) == [
        "- kernel 6.1.0-50",
        "+ kernel 6.1.0-52",
        "535.1: libc6 1-1 -> 1-2",
        "535.1: + new 1-1",
        "535.1: - old 1-1",
    ]
