"""Header trees of every family as their packages unpack them, and the compiler that each asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_driver.family import debian, rhel, suse
from driverforge_driver.family.protocol import Compiler, Family
from driverforge_host.adapters.files import RootedFiles

FILES = RootedFiles("/")
DEBIAN = "6.1.0-50-cloud-amd64"
# the real files of linux-headers-6.1.0-50-cloud-amd64 6.1.176-1
VARIABLES = """override ARCH = x86
override KERNELRELEASE = 6.1.0-50-cloud-amd64
CCACHE = ccache
CC = $(if $(DEBIAN_KERNEL_USE_CCACHE),$(CCACHE)) $(CROSS_COMPILE)gcc-12
ifneq ($(DEB_BUILD_ARCH),$(DEB_HOST_ARCH))
override CROSS_COMPILE = $(DEB_HOST_GNU_TYPE)-
endif
DEBIAN_KERNEL_NO_CC_VERSION_CHECK = y
"""
CONFIG = 'CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"\n'


def put(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def debian_tree(root: Path) -> str:
    flavour, common = f"usr/src/linux-headers-{DEBIAN}", "usr/src/linux-headers-6.1.0-50-common"
    put(
        root,
        {
            f"{flavour}/.config": CONFIG,
            f"{flavour}/.kernelvariables": VARIABLES,
            f"{flavour}/Makefile": f"include /{common}/Makefile\n",
            f"{common}/Makefile": "all:\n",
            "usr/lib/linux-kbuild-6.1/scripts/Makefile.build": "",
        },
    )
    (root / flavour / "scripts").symlink_to("../../lib/linux-kbuild-6.1/scripts")
    return str(root)


def test_debians_split_headers_work_where_they_were_unpacked(tmp_path: Path) -> None:
    root = debian_tree(tmp_path)
    tree = debian.header_tree(KernelRelease.parse(DEBIAN), FILES, root)
    assert tree.source == f"{root}/usr/src/linux-headers-6.1.0-50-common"
    assert tree.output == f"{root}/usr/src/linux-headers-{DEBIAN}"
    assert Path(f"{tree.output}/Makefile").read_text() == f"include {tree.source}/Makefile\n"
    # and again, with the path that is now in it
    assert debian.header_tree(KernelRelease.parse(DEBIAN), FILES, root) == tree
    assert debian.compiler(FILES, tree) == Compiler(
        program="gcc-12", package="gcc-12", built_with="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
    )


@pytest.mark.parametrize(
    "lost",
    [
        f"usr/src/linux-headers-{DEBIAN}/.config",
        "usr/src/linux-headers-6.1.0-50-common/Makefile",
        "usr/lib/linux-kbuild-6.1/scripts/Makefile.build",
    ],
)
def test_a_package_of_the_three_that_is_not_there_is_named(tmp_path: Path, lost: str) -> None:
    root = debian_tree(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(Unsupported, match=f"build files of kernel {DEBIAN}") as caught:
        debian.header_tree(KernelRelease.parse(DEBIAN), FILES, root)
    assert any("looked for" in line for line in caught.value.details)


def test_ubuntus_flavour_links_into_the_shared_headers(tmp_path: Path) -> None:
    base = tmp_path / "usr/src"
    config = 'CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0"\n'
    put(base, {"linux-headers-6.8.0-45/Makefile": "all:\n", "linux-headers-6.8.0-45-generic/.config": config})
    (base / "linux-headers-6.8.0-45-generic/Makefile").symlink_to("../linux-headers-6.8.0-45/Makefile")
    tree = debian.header_tree(KernelRelease.parse("6.8.0-45-generic"), FILES, str(tmp_path))
    assert tree.source == tree.output == f"{base}/linux-headers-6.8.0-45-generic"
    found = debian.compiler(FILES, tree)
    assert (found.program, found.package) == ("x86_64-linux-gnu-gcc-13", "gcc-13")


@pytest.mark.parametrize("release", ["5.14.0-427.13.1.el9_4.x86_64", "5.14.0-284.54.1.el9_2.aarch64+64k"])
def test_red_hats_tree_and_exact_compiler(tmp_path: Path, release: str) -> None:
    config = 'CONFIG_CC_VERSION_TEXT="gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)"\n'
    put(tmp_path, {f"usr/src/kernels/{release}/.config": config})
    tree = rhel.header_tree(KernelRelease.parse(release), FILES, str(tmp_path))
    assert tree.source == tree.output == f"{tmp_path}/usr/src/kernels/{release}"
    assert rhel.compiler(FILES, tree).package == "gcc-11.4.1"


def test_the_kernel_of_a_toolset_is_compiled_with_that_toolset(tmp_path: Path) -> None:
    # UEK 8 on Oracle Linux 9, whose own gcc is 11
    release = "6.12.0-100.28.2.2.el9uek.x86_64"
    config = 'CONFIG_CC_VERSION_TEXT="gcc (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)"\n'
    put(tmp_path, {f"usr/src/kernels/{release}/.config": config})
    image = RootedFiles(str(tmp_path))
    tree = rhel.header_tree(KernelRelease.parse(release), image, "")
    assert rhel.compiler(image, tree).program == "gcc"
    put(tmp_path, {"opt/rh/gcc-toolset-14/root/usr/bin/gcc": ""})
    found = rhel.compiler(image, tree)
    assert (found.program, found.package) == ("/opt/rh/gcc-toolset-14/root/usr/bin/gcc", "gcc-toolset-14")


@pytest.mark.parametrize(("flavour", "variant"), [("default", ""), ("azure", "-azure")])
def test_suses_source_and_object_trees(tmp_path: Path, flavour: str, variant: str) -> None:
    version = "6.4.0-150700.53.19"
    source = f"usr/src/linux-{version}{variant}"
    config = 'CONFIG_CC_VERSION_TEXT="gcc (SUSE Linux) 7.5.0"\n'
    put(tmp_path, {f"{source}/Makefile": "", f"{source}-obj/x86_64/{flavour}/.config": config})
    tree = suse.header_tree(KernelRelease.parse(f"{version}-{flavour}"), FILES, str(tmp_path))
    assert tree.source == f"{tmp_path}/{source}"
    assert tree.output == f"{tmp_path}/{source}-obj/x86_64/{flavour}"
    assert suse.compiler(FILES, tree).program == "gcc"


@pytest.mark.parametrize(
    ("module", "release"),
    [(rhel, "5.14.0-427.13.1.el9_4.x86_64"), (suse, "6.4.0-150700.53.19-default"), (debian, DEBIAN)],
)
def test_headers_of_another_kernel_are_refused_with_what_is_there(
    tmp_path: Path, module: Family, release: str
) -> None:
    put(
        tmp_path,
        {
            "usr/src/kernels/5.14.0-1.el9.x86_64/.config": "",
            "usr/src/linux-headers-6.1.0-1-amd64/.config": "",
        },
    )
    with pytest.raises(Unsupported, match="do not hold the build files") as caught:
        module.header_tree(KernelRelease.parse(release), FILES, str(tmp_path))
    assert "unpacked: " in caught.value.details[1]
