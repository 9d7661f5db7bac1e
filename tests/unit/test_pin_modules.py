"""A distribution's finished modules of a kernel: which of its packages the lock takes."""

from __future__ import annotations

import pytest

from driverforge_build.discover.apt.kernel_debs import find_kernels
from driverforge_build.discover.apt.restricted_modules import finished_modules
from driverforge_build.discover.apt.stanzas import add_stanzas, new_index
from driverforge_build.discover.kernels import Kernels
from driverforge_build.discover.pin import pin_target
from driverforge_build.lock.pins import TargetLock
from driverforge_core.errors import InputError
from support.samples.locks import pins_by_sha256
from support.samples.sampledebian import DRIVER, MATRIX, NEW, sample_matrix

OBJECTS, SIGNATURES = f"linux-objects-nvidia-535-{NEW}", f"linux-signatures-nvidia-{NEW}"
WANTED = "['linux-objects-nvidia-{branch}-{release}', 'linux-signatures-nvidia-{release}']"


# unpacked KiB of Debian's packages of 7.2.12+deb13-cloud-amd64, by trixie-backports of 2026-11-26
EMPTY, WHOLE = 15, 13476


def stanza(name: str, version: str, *, installed: int = WHOLE) -> bytes:
    text = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nInstalled-Size: {installed}\n"
    text += f"Filename: {name}_{version}.deb\n"
    return f"{text}SHA256: {'0' * 64}\nSize: 1\n".encode()


def taken(packages: str, *offered: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Name, version and suite of what a lock takes, of packages that are offered so."""
    lines = [line for line in MATRIX.splitlines() if "tree: usr/src" not in line]
    at = lines.index("        modules:") + 1
    finished = f"          - {{id: open, packages: {packages}}}"
    lines[at:at] = [finished, "        vendor_modules: true", "        variants: [precompiled]"]
    text = "\n".join(lines).replace(
        "        module_types: [open, proprietary]", "        module_types: [open]"
    )
    text = text.replace("repositories: [bookworm]", "repositories: [bookworm-security, bookworm]")
    row = sample_matrix(text).rows[0].on("amd64")
    index = new_index()
    for name in (f"linux-image-{NEW}", f"linux-headers-{NEW}"):
        add_stanzas(index, [stanza(name, "6.1")], suite="bookworm")
    for name, version, suite in offered:
        add_stanzas(index, [stanza(name, version)], suite=suite)
    target = pin_target(
        index,
        row,
        "amd64",
        row.drivers,
        kernels=find_kernels(index, row, "amd64"),
        finished_modules=finished_modules,
        pins_of=pins_by_sha256,
    ).target
    found = target.kernels[NEW].vendor.get(DRIVER, ())
    return [(package.name, package.version, package.suite) for package in found]


def test_all_of_a_kernels_packages_are_taken_in_one_version() -> None:
    offered = [(OBJECTS, "2", "bookworm"), (OBJECTS, "1", "bookworm"), (SIGNATURES, "1", "bookworm")]
    assert taken(WANTED, *offered) == [(OBJECTS, "1", "bookworm"), (SIGNATURES, "1", "bookworm")]


@pytest.mark.parametrize("signatures", [[], [(SIGNATURES, "1", "bookworm")]], ids=["none", "another version"])
def test_nothing_is_taken_where_no_version_has_them_all(signatures: list[tuple[str, str, str]]) -> None:
    assert taken(WANTED, (OBJECTS, "2", "bookworm"), *signatures) == []


@pytest.mark.parametrize(("suite", "found"), [("bookworm-security", [NEW]), ("bookworm-backports", [])])
def test_a_kernel_is_one_of_its_series_own_repositories(suite: str, found: list[str]) -> None:
    row = sample_matrix().rows[0].on("amd64")
    index = new_index()
    for name in (f"linux-image-{NEW}", f"linux-headers-{NEW}"):
        add_stanzas(index, [stanza(name, "6.1")], suite=suite)
    assert [kernel.release.text for kernel in find_kernels(index, row, "amd64").found] == found


def kernels(
    *packages: tuple[str, str],
    headers: tuple[str, ...] = ("linux-headers-{release}",),
    image: tuple[str, ...] = ("linux-image-{release}",),
    empty: str = "none",
) -> Kernels:
    row = sample_matrix().rows[0].on("amd64")
    series = row.kernels[0].model_copy(update={"headers": headers, "image": image})
    index = new_index()
    for name, version in packages:
        size = EMPTY if name.startswith(empty) else WHOLE
        add_stanzas(index, [stanza(name, version, installed=size)], suite="bookworm")
    return find_kernels(index, row.model_copy(update={"kernels": (series,)}), "amd64")


def test_a_kernel_with_half_of_its_headers_is_bare() -> None:
    both = ("linux-headers-{release}", "linux-headers-{release}-more")
    there = [(f"linux-image-{NEW}", "6.1"), (f"linux-headers-{NEW}", "6.1")]
    told = kernels(*there, headers=both)
    assert (told.found, [release.text for release in told.without_headers]) == ((), [NEW])
    told = kernels(*there, (f"linux-headers-{NEW}-more", "6.1"), headers=both)
    assert [kernel.release.text for kernel in told.found] == [NEW]


def test_the_image_is_of_the_headers_version_where_that_is_still_there() -> None:
    image, headers = f"linux-image-{NEW}", (f"linux-headers-{NEW}", "6.1-1")
    (kernel,) = kernels((image, "6.1-2"), (image, "6.1-1"), headers).found
    assert kernel.image is not None
    assert kernel.image.version == "6.1-1"
    (kernel,) = kernels((image, "6.1-2"), headers).found
    assert kernel.image is not None
    assert kernel.image.version == "6.1-2"


def test_a_package_that_only_depends_on_a_kernel_is_not_its_image() -> None:
    """Debian's linux-image-RELEASE since 6.19: the kernel is in linux-binary-RELEASE."""
    names, image = ("linux-image-{release}", "linux-binary-{release}"), f"linux-image-{NEW}"
    packages = ((image, "6.1"), (f"linux-headers-{NEW}", "6.1"))
    whole = (*packages, (f"linux-binary-{NEW}", "6.1"))
    found = kernels(*whole, image=names, empty="linux-image")
    assert [one.image and one.image.name for one in found.found] == [f"linux-binary-{NEW}"]
    assert found.hollow == ()
    # its modules can be built all the same
    found = kernels(*packages, image=names, empty="linux-image")
    assert [(one.release.text, one.image) for one in found.found] == [(NEW, None)]
    assert found.hollow == (f"{image} unpacks to {EMPTY << 10} bytes",)


def test_a_type_without_packages_is_no_modules() -> None:
    assert taken("[]", (OBJECTS, "1", "bookworm")) == []


def test_of_repositories_with_the_same_version_the_first_of_the_row_counts() -> None:
    suites = ("bookworm", "bookworm-security")
    both = [(name, "1", suite) for name in (OBJECTS, SIGNATURES) for suite in suites]
    assert taken(WANTED, *both) == [(name, "1", "bookworm-security") for name in (OBJECTS, SIGNATURES)]


def locked_modprobe(*versions: str) -> TargetLock:
    """What is locked where nvidia-modprobe is offered in these versions, and all else as the row wants it."""
    row = sample_matrix().rows[0].on("amd64")
    (driver,) = row.drivers
    own = ("libcuda1", "nvidia-open-kernel-dkms", "nvidia-kernel-dkms", "firmware-nvidia-gsp")
    tools = ("python3", "kmod", "make", "gcc-12", f"linux-image-{NEW}", f"linux-headers-{NEW}")
    there = [(name, "1") for name in tools]
    there += [(name, f"{DRIVER}-1") for name in own]
    index = new_index()
    for name, version in (*there, *(("nvidia-modprobe", version) for version in versions)):
        add_stanzas(index, [stanza(name, version)], suite="bookworm")
    found = find_kernels(index, row, "amd64")
    pinned = pin_target(
        index,
        row,
        "amd64",
        [driver],
        kernels=found,
        finished_modules=finished_modules,
        pins_of=pins_by_sha256,
    )
    for error in pinned.problems.values():
        raise error
    return pinned.target


@pytest.mark.parametrize(
    ("versions", "taken"),
    [
        (("570.1-1", "535.2-1", "535.1-1"), "535.2-1"),
        (("570.1-1", "550.1-1"), "570.1-1"),
        (("1.535-1", "535.1-1"), "535.1-1"),
    ],
)
def test_a_package_with_versions_of_its_own_is_of_the_branch_or_the_newest(
    versions: tuple[str, ...], taken: str
) -> None:
    userspace = locked_modprobe(*versions).drivers[DRIVER]["userspace"]
    assert {one.name: one.version for one in userspace}["nvidia-modprobe"] == taken


def test_a_package_that_nobody_has_is_told_with_what_there_is() -> None:
    with pytest.raises(InputError, match="do not have nvidia-modprobe") as told:
        locked_modprobe()
    assert told.value.details == ("they do not have nvidia-modprobe at all",)
    assert told.value.resolution.startswith("check packages and repositories of driver 535")


def test_sources_that_a_distribution_has_are_no_finished_modules() -> None:
    (kernel,) = locked_modprobe("535.1-1").kernels.values()
    assert kernel.vendor == {}
