"""Digests of header packages, on the files in which Debian's 6.1.0-55 and 6.1.0-56 differ.

The lines are those of linux-headers-6.1.0-55-cloud-amd64 6.1.192-1 and -56 6.1.192-2 (bookworm-security).
"""

from __future__ import annotations

import random

import pytest

from driverforge_core.headertree import HeaderDigests, HeaderTree

FLAVOUR = "cloud-amd64"


def files_of(abi: str, build: str, day: str) -> dict[str, str]:
    """What names the kernel in its header package, each file with a line that does not."""
    release = f"{abi}-{FLAVOUR}"
    return {
        ".config": "# Linux/x86 6.1.192 Kernel Configuration\nCONFIG_CC_VERSION_TEXT="
        f'"gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"\nCONFIG_BUILD_SALT="{release}"\n',
        ".kernelvariables": f"override ARCH = x86\noverride KERNELRELEASE = {release}\nCCPREFIX =\n",
        "Makefile": f"include /usr/src/linux-headers-{abi}-common/Makefile\n",
        "Module.symvers": "0x85bd1608\t__request_region\tvmlinux\tEXPORT_SYMBOL\t\n",
        "include/config/auto.conf": f"CONFIG_HAVE_KERNEL_BZIP2=y\nCONFIG_BUILD_SALT={release}\n",
        "include/generated/autoconf.h": f'#define CONFIG_BUILD_SALT "{release}"\n#define CONFIG_X86 1\n',
        "include/generated/package.h": f'#define LINUX_PACKAGE_ID " Debian {build}"\n',
        "include/generated/rustc_cfg": f'--cfg=CONFIG_X86\n--cfg=CONFIG_BUILD_SALT="{release}"\n',
        "include/generated/utsrelease.h": f'#define UTS_RELEASE "{release}"\n',
        "include/generated/utsversion.h": f'#define UTS_VERSION "#1 SMP Debian {build} ({day})"\n',
        "include/generated/uapi/linux/version.h": "#define LINUX_VERSION_CODE 393408\n",
    }


OLD = files_of("6.1.0-55", "6.1.192-1", "2026-11-14")
NEW = files_of("6.1.0-56", "6.1.192-2", "2026-11-16")


def digests(abi: str, files: dict[str, str], *, below: str = "./usr/src") -> HeaderDigests:
    tree = HeaderTree(abi)
    for name, text in random.Random(len(files)).sample([*files.items()], len(files)):
        tree.add(f"{below}/linux-headers-{abi}-{FLAVOUR}/{name}", text.encode())
    tree.add("./usr/share/doc/linux-headers/changelog.gz", abi.encode())
    return tree.digests()


BEFORE = digests("6.1.0-55", OLD)


def test_a_rebuild_of_the_same_source_differs_in_its_name_alone() -> None:
    assert digests("6.1.0-56", NEW) == BEFORE
    assert digests("6.1.0-56", NEW, below="usr/src") == BEFORE, "an rpm's paths have no dot"


@pytest.mark.parametrize(
    ("file", "line", "part"),
    [
        (".config", "# CONFIG_PREEMPT_RT is not set\n", "config"),
        ("include/generated/autoconf.h", "#define CONFIG_HZ 1000\n", "config"),
        ("Module.symvers", "0x00000001\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n", "symvers"),
        ("include/linux/pci.h", "int f(void);\n", "files"),
        ("include/generated/uapi/linux/version.h", "#define RHEL_MAJOR 9\n", "files"),
        (".kernelvariables", "# 6.1.0-57\n", "files"),
    ],
)
def test_any_other_difference_counts(file: str, line: str, part: str) -> None:
    found = digests("6.1.0-56", {**NEW, file: NEW.get(file, "") + line})
    assert {
        name for name in ("files", "config", "symvers") if getattr(found, name) != getattr(BEFORE, name)
    } == {part}


def test_a_file_more_or_under_another_name_counts() -> None:
    assert digests("6.1.0-56", {**NEW, "include/linux/new.h": ""}) != BEFORE
    moved = {("include/b.h" if name == "Makefile" else name): text for name, text in NEW.items()}
    assert digests("6.1.0-56", moved) != BEFORE
    assert digests("6.1.0-56", {**NEW, "include/generated/compile.h": "x"}) != BEFORE


def test_names_count_in_a_package_of_several_kernels() -> None:
    """Its files name one of them: they are no other's."""
    kbuild = {"Makefile": "KERNELVERSION = 6.1.0-55\n"}
    assert digests("", kbuild) != digests("", {"Makefile": "KERNELVERSION = 6.1.0-56\n"})


def test_packages_together_in_any_order() -> None:
    common = digests("6.1.0-55", {"include/linux/pci.h": "int f(void);"})
    whole = HeaderDigests.of_all([BEFORE, common])
    assert whole == HeaderDigests.of_all([common, BEFORE])
    assert whole not in (
        BEFORE,
        common,
        HeaderDigests.of_all([BEFORE]),
        HeaderDigests.of_all([common, common]),
    )
