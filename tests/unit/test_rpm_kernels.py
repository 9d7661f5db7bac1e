"""Kernels among the versions of packages that all have one name: which are found, which are bare."""

from __future__ import annotations

from dataclasses import replace

from driverforge_build.discover.kernels import Kernel, Kernels, newest_alone
from driverforge_build.discover.rpm.entries import add_records, new_index
from driverforge_build.discover.rpm.kernel_rpms import find_kernels
from driverforge_build.discover.rpm.primary import Record
from driverforge_core.kernel import KernelRelease
from support.samples.rockyrepo import NEW, OLD, rocky_matrix
from support.samples.suserepo import suse_matrix

DEVEL, HEADERS, IMAGE = "kernel-devel", "kernel-headers", "kernel-core"


def kernels(*packages: tuple[str, str, str], empty: str = "") -> Kernels:
    """What a row finds where repositories have these: name, version, repository."""
    (row,) = rocky_matrix().rows
    index = new_index()
    for name, version, repository in packages:
        path = f"{name}-{version}.rpm"
        size = 0 if name == empty else None
        record = Record(name=name, version=version, arch="x86_64", path=path, size=1, installed=size)
        add_records(index, [record], repository=repository)
    return find_kernels(index, row.on("amd64"), "amd64")


def whole(version: str, repository: str = "baseos") -> list[tuple[str, str, str]]:
    return [(name, version, repository) for name in (DEVEL, HEADERS, IMAGE)]


def told(found: Kernels) -> tuple[list[str], list[str]]:
    return [one.release.text for one in found.found], [one.text for one in found.without_headers]


def test_a_kernel_is_its_headers_and_its_image() -> None:
    assert told(kernels(*whole(OLD), *whole(NEW))) == ([f"{OLD}.x86_64", f"{NEW}.x86_64"], [])


def test_headers_without_an_image_are_no_kernel_where_others_have_one() -> None:
    there = [package for package in whole(NEW) if package[0] != IMAGE]
    assert told(kernels(*whole(OLD), *there)) == ([f"{OLD}.x86_64"], [])
    assert told(kernels(*there)) == ([f"{NEW}.x86_64"], [])


def test_a_kernel_that_lacks_one_of_its_headers_is_bare() -> None:
    there = [package for package in whole(NEW) if package[0] != HEADERS]
    assert told(kernels(*whole(OLD), *there)) == ([f"{OLD}.x86_64"], [f"{NEW}.x86_64"])


def test_a_package_without_a_kernel_in_it_is_not_its_image() -> None:
    """As Red Hat's `kernel`, which has nothing of its own."""
    found = kernels(*whole(NEW), empty=IMAGE)
    assert [(one.release.text, one.image) for one in found.found] == [(f"{NEW}.x86_64", None)]
    assert found.hollow == (f"{IMAGE} unpacks to 0 bytes",)


def test_of_rebuilds_of_one_release_the_newest_counts() -> None:
    """The last number of SUSE's packages is none of `uname -r`."""
    (row,) = suse_matrix().rows
    index = new_index()
    for number in (2, 11, 9):
        for name in ("kernel-default-devel", "kernel-devel", "kernel-macros"):
            record = Record(name=name, version=f"6.4.0-150700.51.{number}", arch="x86_64", path="a", size=1)
            add_records(index, [record], repository="SLE_BCI")
    (kernel,) = find_kernels(index, row.on("amd64"), "amd64").found
    assert kernel.release.text == "6.4.0-150700.51-default"
    assert {one.version for one in kernel.headers} == {"6.4.0-150700.51.11"}


def test_another_repositorys_packages_are_not_its_own() -> None:
    assert told(kernels(*whole(NEW, "extras"))) == ([], [])
    there = [(name, NEW, "extras" if name == HEADERS else "baseos") for name in (DEVEL, HEADERS, IMAGE)]
    assert told(kernels(*there)) == ([], [f"{NEW}.x86_64"])


def test_the_newest_kernels_of_a_flavour_are_kept_and_the_older_told() -> None:
    """By the order of releases, not of text; a flavour is not short of what another has."""
    versions = [f"5.14.0-{number}.el9_6" for number in (99, 570, 1000)]
    found = kernels(*(package for version in versions for package in whole(version)))

    def told_of(newest: int | None) -> tuple[list[str], list[str]]:
        series = found.found[0].series.model_copy(update={"newest": newest})
        kept = newest_alone(replace(found, found=tuple(replace(one, series=series) for one in found.found)))
        return [one.release.text for one in kept.found], [one.text for one in kept.older]

    releases = [f"{version}.x86_64" for version in versions]
    assert told_of(None) == (releases, [])
    assert told_of(3) == (releases, [])
    assert told_of(2) == (releases[1:], releases[:1])
    assert told_of(1) == (releases[2:], releases[:2])


def test_each_flavour_and_each_series_keeps_its_own_newest_kernels() -> None:
    (kernel,) = kernels(*whole(NEW)).found

    def one(release: str, series_id: str) -> Kernel:
        series = kernel.series.model_copy(update={"newest": 1, "id": series_id})
        return replace(kernel, release=KernelRelease.parse(release), series=series)

    there = Kernels(
        found=(
            one("6.1.0-50-amd64", "6.1"),
            one("6.1.0-50-cloud-amd64", "6.1"),
            one("6.1.0-53-amd64", "6.1"),
            one("6.12.0-1-amd64", "6.12"),
        ),
        without_headers=(),
    )
    assert [release.text for release in newest_alone(there).older] == ["6.1.0-50-amd64"]
