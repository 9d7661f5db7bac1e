"""What an earlier matrix.yaml had wrong, line by line: right now, or answered in docs/matrix.md, "Left out".

The lines are those of a review against the distributions' and NVIDIA's own sources.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from driverforge_build.matrix import DriverRow, KernelSeries, OsRow, load_matrix
from driverforge_core.osid import OsId
from support.facts import facts
from support.nonsense import values

MATRIX = load_matrix()
ROWS = {row.id: row for row in MATRIX.rows}
PAGE = (Path(__file__).parents[2] / "docs/matrix.md").read_text()
LEFT_OUT = PAGE[PAGE.index("## Left out") : PAGE.index("## All keys")]
UBUNTU = ("ubuntu22.04", "ubuntu24.04", "ubuntu26.04")


def series(os_key: str, name: str) -> KernelSeries:
    return next(one for one in ROWS[os_key].kernels if one.id == name)


def driver(os_key: str, name: str) -> DriverRow:
    found = ROWS[os_key].driver(name)
    assert found is not None
    return found


def modules(os_key: str, name: str, arch: str) -> dict[str, tuple[str, ...]]:
    row = ROWS[os_key].on("amd64" if arch == "amd64" else "arm64")
    found = row.driver(name)
    assert found is not None
    return {source.id: source.packages for source in found.modules}


def answered(*words: str) -> bool:
    """Whether a line or a paragraph of the page's part has all of the words."""
    return any(all(word in line for word in words) for line in re.split(r"\n(?=\|)|\n\n", LEFT_OUT))


def held_by(path: str, test: str) -> bool:
    """Whether there is a test of that name: what it holds is no row's."""
    return f"\ndef {test}(" in (Path(__file__).parents[1] / path).read_text()


def repositories(row: OsRow) -> set[str]:
    return {one.id for one in row.on("amd64").repositories}


CORRECTIONS = {
    "Ubuntu's open modules are in the objects, linux-modules-nvidia-* holds dependencies": all(
        modules(key, "580-server", "arm64")["open"]
        == ("linux-objects-nvidia-{branch}-server-open-{release}",)
        for key in UBUNTU
    ),
    "Ubuntu's modules, objects and signatures are taken in one equal version": held_by(
        "tree/test_lock_ubuntu.py", "test_modules_objects_and_signatures_are_of_one_version_and_one_driver"
    )
    and held_by("unit/test_pin_modules.py", "test_all_of_a_kernels_packages_are_taken_in_one_version"),
    "Ubuntu has signatures for amd64 alone": all(
        [
            name
            for names in modules(key, "580-server", arch).values()
            for name in names
            if "signatures" in name
        ]
        == (["linux-signatures-nvidia-{release}"] * 2 if arch == "amd64" else [])
        for key in UBUNTU
        for arch in ("amd64", "arm64")
    ),
    "Ubuntu's firmware has the version in its name": all(
        (firmware := driver(key, "580-server").firmware) is not None
        and firmware.package == "nvidia-firmware-{branch}-server-{version}"
        for key in UBUNTU
    ),
    "Ubuntu's user space has gl, and fbc1 on amd64": {
        "libnvidia-gl-{branch}-server",
        "libnvidia-fbc1-{branch}-server [amd64]",
    }
    <= set(driver("ubuntu24.04", "580-server").userspace),
    "fabric manager, NSCQ, IMEX, NVSDM, nvlsm": all(
        {"nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "libnvsdm [amd64]", "nvlsm"}
        <= {*row.fabric[-1].packages, *row.fabric[-1].companions}
        for row in ROWS.values()
        if row.family != "suse" and row.fabric
    ),
    "Ubuntu 26.04 has the server driver 580.178.04": driver("ubuntu26.04", "580-server").version
    == "580.178.04",
    "Ubuntu's own modules exist for arm64": all(driver(key, "580-server").archs is None for key in UBUNTU),
    "Ubuntu 26.04 has 580, NVIDIA no image of it for 26.04": answered("26.04", "580 too"),
    "Ubuntu's flavours gcp and lowlatency, 64k pages on arm64": all(
        {"gcp", "lowlatency"} <= set(flavours)
        for key in UBUNTU
        for one in ROWS[key].kernels
        for flavours in one.flavours.values()
    )
    and "nvidia-64k" in series("ubuntu24.04", "6.8").flavours["arm64"]
    and "generic-64k" in series("ubuntu26.04", "7.0").flavours["arm64"],
    "Ubuntu 24.04 has 6.14, 6.17 and 7.0 too": all(
        version in series("ubuntu24.04", "hardware-enablement").releases
        for version in ("6.14", "6.17", "7.0")
    ),
    "compilers are those of the kernels, not of the series": (
        series("ubuntu22.04", "5.15").compilers,
        series("ubuntu22.04", "6.8").compilers,
        series("ubuntu26.04", "7.0").compilers,
    )
    == (("gcc",), ("gcc-12", "gcc-11"), ("gcc",)),
    "programs of Ubuntu's headers load libssl3 and zlib1g": set(ROWS["ubuntu22.04"].tools.jit)
    == {"make", "libelf1", "libssl3", "zlib1g"}
    and set(ROWS["ubuntu24.04"].tools.jit) == {"make", "libelf1t64", "libssl3t64", "zlib1g"},
    "26.04 compresses modules with zstd": "zstd" in ROWS["ubuntu26.04"].tools.runtime,
    "RHEL's kernels are in repositories of a subscription, with an address": all(
        one.entitled == one.id.startswith(f"rhel-{major}-for-")
        and one.entitled == any(one.id in series.repositories for series in ROWS[f"rhel{major}"].kernels)
        and (one.urls or one.older)
        for major in (8, 9, 10)
        for one in ROWS[f"rhel{major}"].repositories
        if not one.id.endswith("-extensions-rpms")
    ),
    "RHEL's headers come with kernel-headers": all(
        "kernel-headers-{release}" in one.headers
        for major in (8, 9, 10)
        for one in ROWS[f"rhel{major}"].kernels
        if "64k" not in one.id
    )
    and answered("kernel-devel-matched"),
    "RHEL 9 and 10: drm, video and ipmi are in kernel-modules-core and kernel-modules": all(
        series(key, name).modules == ("kernel-modules-core-{release}", "kernel-modules-{release}")
        for key, name in (("rhel9", "5.14"), ("rhel10", "6.12"))
    ),
    "RHEL 9 and 10: 64k has its own kernel-64k-modules-core and -modules": all(
        series(key, name).modules == ("kernel-64k-modules-core-{plain}", "kernel-64k-modules-{plain}")
        for key, name in (("rhel9", "5.14-64k"), ("rhel10", "6.12-64k"))
    ),
    "RHEL: gcc of the kernel's exact version": answered("very compiler", "another version"),
    "RHEL: cpio, elfutils-libelf-devel, and dnf-plugins-core before dnf download": all(
        {"make", "cpio", "elfutils-libelf-devel"} <= set(row.tools.jit)
        and "dnf-plugins-core" in row.tools.runtime
        for row in MATRIX.rows
        if row.package_manager == "dnf"
    ),
    "RHEL 8 takes Python 3.12 beside its platform-python": ROWS["rhel8"].python.package == "python3.12",
    "RHEL 10's base cannot read the newest key": {"rpm", "rpm-sequoia", "crypto-policies"}
    <= set(ROWS["rhel10"].tools.runtime)
    and answered("6afedf8f.txt", "--base rhel10=REF"),
    "Rocky's old minor releases are in a vault": all(
        (one.older or "").startswith("https://dl.rockylinux.org/vault/rocky/{releasever}/")
        for major in (8, 9, 10)
        for one in ROWS[f"rocky{major}"].without_vendors().repositories
    )
    and answered("`crb`", "powertools"),
    "Oracle's default kernel is UEK, and it has 64k": {"uek7", "uek8", "5.14-64k"}
    <= {one.id for one in ROWS["ol9"].kernels}
    and series("ol9", "uek8").compilers == ("gcc-toolset-14",),
    "SUSE's repository is SLE_BCI": {"SLE_BCI"}
    <= repositories(ROWS["sles15.7"]) & repositories(ROWS["sles16.0"]),
    "SUSE's keyring is a file": ROWS["sles15.7"].keyring.endswith(".asc"),
    "SUSE's kernel is not in SLE_BCI": answered("kernel-default", "subscription"),
    "SUSE's headers: those of 64kb, kernel-macros, and what a build calls": series(
        "sles15.7", "6.4-64kb"
    ).headers
    == ("kernel-64kb-devel", "kernel-devel", "kernel-macros")
    and set(ROWS["sles15.7"].tools.jit) == {"make", "libelf-devel", "dwarves"}
    and series("sles15.7", "6.4").compilers == ("gcc",),
    "SUSE's package has one number more than uname -r, the rebuild": held_by(
        "unit/test_rpm_kernels.py", "test_of_rebuilds_of_one_release_the_newest_counts"
    ),
    "SYSSRC and SYSOUT are two trees": held_by(
        "tree/test_modbuild_flow.py", "test_header_packages_of_the_mirror_become_a_published_module_set"
    ),
    "SUSE's signed modules for 64kb": driver("sles15.7", "595-kmp").kernels == ("6.4",)
    and answered("595-kmp", "6.4-64kb", "kernel-64kb"),
    "SUSE's signed modules begin with 595 and G07": modules("sles15.7", "595-kmp", "amd64")
    == {"open": ("nvidia-open-driver-G07-signed-cuda-kmp-default",)}
    and ROWS["sles15.7"].driver("580-kmp") is None,
    "RHEL 10's signed modules are Red Hat's, a package a kernel, in a subscription's repository": modules(
        "rhel10", "595-kmod", "amd64"
    )
    == {"open": ("kmod-{variant-}nvidia-open-{version}-{kernel_version}",)}
    and driver("rhel10", "595-kmod").repositories == ("rhel-10-for-{machine}-extensions-rpms",)
    and all(ROWS[key].driver("595-kmod") is None for key in ROWS if key != "rhel10")
    and answered("RHEL 8, 9", "precompiled streams"),
    "615 and 620 are branches, 620 has open modules alone": (
        MATRIX.branch("615").module_types,
        MATRIX.branch("620").module_types,
    )
    == (("open", "proprietary"), ("open",)),
    "runfiles have no sums in rows": answered("sums of runfiles"),
    "AL2023 and SUSE 16 have rows": {"amzn2023", "sles16.0"} <= set(ROWS),
    "Azure Linux 3, RHCOS by toolkit, Flatcar": answered("Azure Linux 3", "RHCOS", "Flatcar"),
}


@pytest.mark.parametrize("line", CORRECTIONS)
def test_a_line_of_the_review_is_right_or_answered(line: str) -> None:
    assert CORRECTIONS[line]


DISTRIBUTIONS = {
    "Debian": "debian",
    "Ubuntu": "ubuntu",
    "RHEL": "rhel",
    "Rocky": "rocky",
    "Oracle Linux": "ol",
    "SLES": "sles",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page's table: what it is about, what rows do, and why."""

    subject: str
    does: str
    why: str

    @property
    def names(self) -> list[str]:
        """What it is about, in `code`."""
        return re.findall(r"`([^`]+)`", self.subject)

    @property
    def rows(self) -> list[OsRow]:
        """The rows of the systems that stand before its colon; of those versions alone that it names."""
        head = self.subject.partition(":")[0]
        about = {own for name, own in DISTRIBUTIONS.items() if name in head}
        return [row for row in MATRIX.rows if not about or _is_one_of(row, about, head)]


def _is_one_of(row: OsRow, distributions: Collection[str], head: str) -> bool:
    system, versions = OsId.parse(row.id), re.findall(r"\b\d[\d.]*", head)
    return system.id in distributions and (
        not versions or any(f"{system.version}.".startswith(f"{version}.") for version in versions)
    )


LINES = [
    Line(*(cell.strip() for cell in line.strip("| ").split(" | ")))
    for line in LEFT_OUT.splitlines()
    if line.startswith("| ") and "---" not in line
][1:]


def says(row: OsRow, name: str) -> bool:
    """Whether a row has a name, of a package, of a repository or of a flavour; `*` is anything."""
    told = (text.partition(" [")[0] for _, text in values(row.model_dump()) if isinstance(text, str))
    return any(fnmatchcase(text, name) for text in told)


def claims(*words: str) -> list[tuple[str, OsRow]]:
    """Names and rows of the lines of which rows do what begins with one of the words."""
    lines = [line for line in LINES if line.does.startswith(words)]
    return [(name, row) for line in lines for name in line.names for row in line.rows]


def test_what_the_page_says_is_left_out_is_in_no_row() -> None:
    left_out = claims("not named", "not in images", "not read", "no flavour")
    assert {("binutils", "ubuntu24.04"), ("rt", "sles15.7"), ("azure-fde", "ubuntu22.04")} <= {
        (name, row.id) for name, row in left_out
    }
    assert [(name, row.id) for name, row in left_out if says(row, name)] == []


def test_what_the_page_says_is_named_is_in_every_row_that_it_speaks_of() -> None:
    named = claims("named")
    assert {(name, row.id) for name, row in named} == {("linux-modules-extra-*", key) for key in UBUNTU}
    assert all(says(row, name) for name, row in named)


def test_a_flavour_that_the_facts_list_and_no_row_offers_is_answered() -> None:
    """In the page's table, or where the page says what is not there yet."""
    told = {(name, row.id) for name, row in claims("no flavour")}
    unanswered = {
        (name, row.id)
        for row in MATRIX.rows
        for arch in row.archs
        for fact in facts(row.id)
        if fact.key == "kernel_flavours" and fact.claim == "one_of" and fact.holds(arch=arch)
        for name in fact.wanted
        if not any(name in one.flavours.get(arch, ()) for one in row.kernels)
    } - told
    assert unanswered == {("uek64k", "ol9")}
    assert answered("UEK with 64 KiB pages")
