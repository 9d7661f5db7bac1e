"""Image tags and cell names, read and written; OS names with the operator's rule; driver versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.cell import CellId, cell_of_image
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_core.tags import ImageTag, immutable_tag, jit_tag, kernel_text, precompiled_tag

EXAMPLES = [
    # tag, version, kernel, os, revision, commit
    ("595.91.07-ubuntu24.04", "595.91.07", None, "ubuntu24.04", "", ""),
    ("06a208ca-595.91.07-ubuntu24.04", "595.91.07", None, "ubuntu24.04", "", "06a208ca"),
    ("12345678-595.91.07-ubuntu24.04", "595.91.07", None, "ubuntu24.04", "", "12345678"),
    ("580.126.09-sles15.7", "580.126.09", None, "sles15.7", "", ""),
    ("580-rhel9", "580", None, "rhel9", "", ""),
    ("595.91.07-rhcos4.18", "595.91.07", None, "rhcos4.18", "", ""),
    ("580-6.8.0-106-generic-ubuntu24.04", "580", "6.8.0-106-generic", "ubuntu24.04", "", ""),
    ("580-6.8.0-1046-azure-fde-ubuntu24.04", "580", "6.8.0-1046-azure-fde", "ubuntu24.04", "", ""),
    ("580-6.8.0-1013-nvidia-64k-ubuntu24.04", "580", "6.8.0-1013-nvidia-64k", "ubuntu24.04", "", ""),
    ("06a208ca-580-6.8.0-106-generic-ubuntu24.04", "580", "6.8.0-106-generic", "ubuntu24.04", "", "06a208ca"),
    (
        "550.54.14-5.14.0-284.54.1.el9_2.aarch64_64k-rhcos4.15",
        "550.54.14",
        "5.14.0-284.54.1.el9_2.aarch64+64k",
        "rhcos4.15",
        "",
        "",
    ),
    (
        "550.54.14-5.14.0-284.54.1.el9_2.x86_64-rhel9",
        "550.54.14",
        "5.14.0-284.54.1.el9_2.x86_64",
        "rhel9",
        "",
        "",
    ),
    (
        "550.54.14-6.12.0-55.el10_0.aarch64_rt-64k-rhel10",
        "550.54.14",
        "6.12.0-55.el10_0.aarch64+rt-64k",
        "rhel10",
        "",
        "",
    ),
    ("550-6.12.94_deb13-cloud-amd64-debian13", "550", "6.12.94+deb13-cloud-amd64", "debian13", "", ""),
    ("550-6.12.9_bpo-amd64-debian12", "550", "6.12.9+bpo-amd64", "debian12", "", ""),
    ("580-6.12.0-160000.5-default-sl-micro6.1", "580", "6.12.0-160000.5-default", "sl-micro6.1", "", ""),
    ("535.261.03-debian12-r1", "535.261.03", None, "debian12", "1", ""),
    (
        "535.261.03-6.1.0-50-cloud-amd64-debian12-rdeadbeef",
        "535.261.03",
        "6.1.0-50-cloud-amd64",
        "debian12",
        "deadbeef",
        "",
    ),
    (
        "580.126.09-5.14.0-427.el9.x86_64-rocky9-ra1",
        "580.126.09",
        "5.14.0-427.el9.x86_64",
        "rocky9",
        "a1",
        "",
    ),
]

drivers = st.from_regex(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?", fullmatch=True).map(DriverVersion)
branches = st.integers(min_value=100, max_value=999)
oses = st.sampled_from(
    [
        "debian12",
        "ubuntu22.04",
        "rhel9.4",
        "rocky8.10",
        "ol9",
        "sles15.7",
        "amzn2023",
        "sl-micro6.1",
        "opensuse-leap15.6",
    ]
)
numbers = st.integers(min_value=0, max_value=2000)
kernels = st.one_of(
    st.builds(
        "6.{}.0-{}-{}".format,
        numbers,
        numbers,
        st.sampled_from(["amd64", "cloud-amd64", "rt-amd64", "generic", "azure-fde", "nvidia-64k"]),
    ),
    st.builds(
        "6.{}.{}+deb{}-{}".format,
        numbers,
        numbers,
        st.integers(12, 15),
        st.sampled_from(["amd64", "cloud-amd64", "arm64-16k"]),
    ),
    st.builds(
        "5.14.0-{}.{}.el9_{}.{}".format,
        numbers,
        numbers,
        st.integers(0, 9),
        st.sampled_from(["x86_64", "aarch64+64k", "x86_64+rt", "aarch64+rt-64k"]),
    ),
    st.builds(
        "6.4.0-150700.{}.{}-{}".format, numbers, numbers, st.sampled_from(["default", "azure", "64kb", "rt"])
    ),
).map(KernelRelease.parse)


@pytest.mark.parametrize(
    ("tag", "version", "kernel", "os", "revision", "commit"), EXAMPLES, ids=[row[0] for row in EXAMPLES]
)
def test_tags_of_upstream_and_ours_in_both_directions(
    tag: str, version: str, kernel: str | None, os: str, revision: str, commit: str
) -> None:
    found = ImageTag.parse(tag)
    assert found == ImageTag(
        version=DriverVersion(version) if "." in version else int(version),
        kernel=KernelRelease.parse(kernel) if kernel else None,
        os=os,
        revision=revision,
        commit=commit,
    )
    assert str(found) == tag
    assert found.branch == int(version.partition(".")[0])


@given(st.one_of(drivers, branches), st.none() | kernels, oses.map(OsId.parse))
def test_moving_tags_round_trip(version: DriverVersion | int, kernel: KernelRelease | None, os: OsId) -> None:
    tag = precompiled_tag(version, kernel, os) if kernel else jit_tag(version, os)
    assert ImageTag.parse(str(tag)) == tag


@given(drivers, st.none() | kernels, oses.map(OsId.parse), st.from_regex(r"[0-9a-f]{1,16}", fullmatch=True))
def test_immutable_tags_round_trip(
    version: DriverVersion, kernel: KernelRelease | None, os: OsId, revision: str
) -> None:
    tag = immutable_tag(version, os, revision=revision, kernel=kernel)
    assert ImageTag.parse(str(tag)) == tag


def test_the_vgpu_suffix_is_not_in_the_tag() -> None:
    assert str(jit_tag(DriverVersion("550.90.05-grid"), OsId.parse("ubuntu22.04"))) == "550.90.05-ubuntu22.04"


def test_a_plus_that_distributions_do_not_write_is_compared_as_text() -> None:
    dirty = KernelRelease.parse("6.12.94+")
    read = ImageTag.parse(str(precompiled_tag(580, dirty, OsId.parse("debian12")))).kernel
    assert read is not None
    assert read != dirty
    assert kernel_text(read) == kernel_text(dirty)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "latest",
        "580",
        "535.261.03",
        "base-jammy-6.8-generic-580",
        "535.261.03+1-debian12",
        "535.261.03-debian",
        "x" * 129,
    ],
)
def test_other_tags_are_refused(tag: str) -> None:
    with pytest.raises(InputError, match="is not the tag of a driver image"):
        ImageTag.parse(tag)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"version": 580, "os": "debian12", "revision": "1"}, "after a full driver version"),
        (
            {"version": DriverVersion("580.1.02"), "os": "debian12", "revision": "x"},
            "a revision is hexadecimal",
        ),
        ({"version": DriverVersion("580.1.02"), "os": "rad1"}, "is no OS"),
        ({"version": DriverVersion("580.1.02"), "os": "debian12", "commit": "abc"}, "8 hexadecimal digits"),
        (
            {
                "version": 580,
                "os": "debian12",
                "kernel": KernelRelease.parse("6." + "1" * 62),
                "revision": "",
            },
            None,
        ),
        (
            {
                "version": DriverVersion("580.1.02"),
                "os": "debian12",
                "kernel": KernelRelease.parse("6." + "1" * 62),
                "revision": "a" * 60,
            },
            "128",
        ),
    ],
)
def test_parts_that_make_no_tag_are_refused_when_they_meet(
    arguments: dict[str, object], problem: str | None
) -> None:
    if problem is None:
        ImageTag(**arguments)  # type: ignore[arg-type]
        return
    with pytest.raises(InputError) as caught:
        ImageTag(**arguments)  # type: ignore[arg-type]
    assert problem in "\n".join(caught.value.details)


@pytest.mark.parametrize(
    ("id_", "version", "key", "tag"),
    [
        ("debian", "12", "debian12", "debian12"),
        ("ubuntu", "22.04", "ubuntu22.04", "ubuntu22.04"),
        ("rhel", "9.4", "rhel9.4", "rhel9"),
        ("rocky", "8.10", "rocky8.10", "rocky8"),
        ("ol", "9.5", "ol9.5", "ol9"),
        ("sles", "15.7", "sles15.7", "sles15.7"),
        ("rhcos", "4.18", "rhcos4.18", "rhcos4.18"),
        ("almalinux", "9.4", "almalinux9.4", "almalinux9.4"),
        ("sl-micro", "6.1", "sl-micro6.1", "sl-micro6.1"),
    ],
)
def test_os_names_follow_the_operators_rule(id_: str, version: str, key: str, tag: str) -> None:
    os = OsId(id=id_, version=version)
    assert (os.key, os.tag) == (key, tag)
    assert OsId.parse(key) == os


@pytest.mark.parametrize(
    "text", ["", "debian", "12", "Debian12", "debian 12", "debian12-", "d1", "debian12\n"]
)
def test_what_names_no_os_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an OS"):
        OsId.parse(text)


def test_driver_versions_keep_their_text_and_compare_as_numbers() -> None:
    ordered = [
        DriverVersion(text)
        for text in ("470.256.02", "550.54.14", "550.90.07", "550.90.07-grid", "550.163.01", "1000.1.01")
    ]
    assert sorted([ordered[3], *ordered[::2], *ordered[5:], ordered[1]]) == ordered
    assert str(ordered[2]) == "550.90.07"
    assert ordered[2].branch == 550
    assert DriverVersion("550.90.07") != DriverVersion("550.90.7")
    assert DriverVersion("550.90.05-grid").without_grid == DriverVersion("550.90.05").without_grid


@pytest.mark.parametrize(
    "text", ["", "550", "550.", "550.90.07-x", "0550.1", "v550.1", "550.90.07\n", "٥٥٠.1"]
)
def test_what_is_no_full_driver_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a driver version"):
        DriverVersion.parse(text)


@given(oses.map(OsId.parse), st.sampled_from(["amd64", "arm64"]), drivers, st.none() | kernels)
def test_cell_names_round_trip(
    os: OsId, arch: str, driver: DriverVersion, kernel: KernelRelease | None
) -> None:
    cell = CellId(os=os, arch=arch, driver=driver, kernel=kernel)
    assert CellId.parse(str(cell)) == cell


def test_cell_names_as_people_write_them() -> None:
    jit = CellId.parse("debian12-amd64-535.261.03-jit")
    assert (jit.os.key, jit.arch, jit.driver.text, jit.kernel) == ("debian12", "amd64", "535.261.03", None)
    cloud = CellId.parse("debian12-amd64-535.261.03-6.1.0-50-cloud-amd64")
    assert str(cloud.kernel) == "6.1.0-50-cloud-amd64"
    assert CellId.parse("ubuntu22.04-amd64-550.90.05-grid-jit").driver.text == "550.90.05-grid"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "debian12-amd64-535.261.03",
        "debian12-s390x-535.261.03-jit",
        "debian12-amd64-535-jit",
        "amd64-535.1-jit",
    ],
)
def test_what_is_no_cell_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a cell"):
        CellId.parse(text)


def test_a_kernel_that_would_read_as_jit_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be in a cell"):
        CellId(
            os=OsId.parse("debian12"),
            arch="amd64",
            driver=DriverVersion("535.1"),
            kernel=KernelRelease.parse("jit"),
        )


@pytest.mark.parametrize(
    ("image", "arch", "cell"),
    [
        ("r:5000/driver:580.95.05-rhel9", "amd64", "rhel9-amd64-580.95.05-jit"),
        ("driver:580-5.15.0-131-generic-ubuntu22.04", "", "ubuntu22.04-*-580.*-5.15.0-131-generic"),
        ("r:5000/driver", "amd64", ""),
        (f"r/driver@sha256:{'a' * 64}", "amd64", ""),
        ("r/driver:580.95.05-grid-ubuntu22.04", "amd64", ""),
        ("r/driver:580-linux", "amd64", ""),
    ],
)
def test_the_cell_of_an_image(image: str, arch: str, cell: str) -> None:
    assert cell_of_image(image, arch) == cell


@pytest.mark.parametrize(
    ("tag", "kernel", "cell"),
    [
        # a tag writes '+' and '~' as '_', and not every '_' can be read back
        ("580-5.15.109_-ubuntu22.04", "5.15.109+", "ubuntu22.04-amd64-580.*-5.15.109+"),
        ("580-6.1.0_site-1-debian12", "6.1.0~site-1", "debian12-amd64-580.*-6.1.0~site-1"),
        # another kernel's image is made for that kernel
        ("580-5.15.109_-ubuntu22.04", "5.15.110+", "ubuntu22.04-amd64-580.*-5.15.109_"),
        ("580-5.15.109_-ubuntu22.04", "", "ubuntu22.04-amd64-580.*-5.15.109_"),
        # as a label has a kernel, which has no '+' either
        (
            "580-6.12.95_deb12-amd64-debian12",
            "6.12.95_deb12-amd64",
            "debian12-amd64-580.*-6.12.95+deb12-amd64",
        ),
        ("580.95.05-ubuntu22.04", "5.15.109+", "ubuntu22.04-amd64-580.95.05-jit"),
        # RHEL's images go onto RHEL CoreOS only under another name
        ("580.95.05-rhcos4.16", "", ""),
    ],
)
def test_the_cell_of_an_image_has_the_kernel_that_a_node_runs(tag: str, kernel: str, cell: str) -> None:
    assert cell_of_image(f"r.example/driver:{tag}", "amd64", kernel) == cell
