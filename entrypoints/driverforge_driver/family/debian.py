"""Debian and Ubuntu.

Debian splits a kernel's headers into three packages: the flavour's (configuration and Module.symvers),
-common (the headers themselves) and linux-kbuild (scripts and tools). On Ubuntu the flavour's package links
into one that all flavours share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.family.protocol import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_driver.packages import PackageManager, RepositoryAttempt, apt
from driverforge_host.ports import Files

# All that the flavour's Makefile says on Debian. Its path is absolute, so unpacked headers work only where
# dpkg puts them.
INCLUDE = re.compile(r"^include (?P<tree>\S*/usr/src/\S+)/Makefile$", re.MULTILINE)
# linux-headers-6.1.0-50-common, linux-hwe-6.8-headers-6.8.0-45, linux-kbuild-6.1
HEADER_PACKAGE = re.compile(r"^linux-(?:[\w.+-]+-)?headers-|^linux-kbuild-")
# the assignment in .kernelvariables: CC = $(if …,$(CCACHE)) $(CROSS_COMPILE)gcc-12
KERNEL_VARIABLES_CC = re.compile(r"^(?:override )?CC\s*:?=.*?(?P<program>[\w-]*gcc-\d+)\s*$", re.MULTILINE)
CROSS_PREFIX = re.compile(r"^[\w]+-linux-gnu-")


def package_manager() -> PackageManager:
    return apt


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    return (f"linux-headers-{kernel}",)


def header_dependencies() -> re.Pattern[str]:
    """The shared headers and linux-kbuild.

    The kernel image is left out, although the headers of Debian's backports depend on it.
    """
    return HEADER_PACKAGE


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[RepositoryAttempt, ...]:
    """One way: apt asks all of its suites at once."""
    return (RepositoryAttempt(name="configured suites"),)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    """The flavour's folder, and the shared one that its Makefile includes.

    Rewrites the path in that Makefile to where the shared headers lie here, so that they work outside
    /usr/src.
    """
    base = f"{root}/usr/src"
    output = f"{base}/linux-headers-{kernel}"
    if not files.exists(f"{output}/.config"):
        raise missing_tree(kernel, f"usr/src/linux-headers-{kernel}/.config", files.list_dir(base))
    # Ubuntu: a link into the shared headers, relative to its own folder
    if files.is_link(f"{output}/Makefile"):
        return HeaderTree(root=root, source=output, output=output)
    makefile = files.read_text(f"{output}/Makefile")
    include = INCLUDE.search(makefile)
    if include is None:
        return HeaderTree(root=root, source=output, output=output)
    name = include["tree"].rpartition("/")[2]
    source = f"{base}/{name}"
    if not files.exists(f"{source}/Makefile"):
        raise missing_tree(kernel, f"usr/src/{name}/Makefile", files.list_dir(base))
    if not files.exists(f"{output}/scripts/Makefile.build"):
        raise missing_tree(kernel, "usr/lib/linux-kbuild-*/scripts", files.list_dir(f"{root}/usr/lib"))
    files.write_atomic(f"{output}/Makefile", f"include {source}/Makefile\n".encode())
    return HeaderTree(root=root, source=source, output=output)


def compiler(files: Files, tree: HeaderTree) -> Compiler:
    """Debian names the compiler in .kernelvariables, Ubuntu in the kernel's configuration."""
    built_with = config_value(files.read_text(f"{tree.output}/.config"), "CONFIG_CC_VERSION_TEXT")
    variables = f"{tree.output}/.kernelvariables"
    named = KERNEL_VARIABLES_CC.search(files.read_text(variables)) if files.exists(variables) else None
    program = named["program"] if named else built_with.partition(" ")[0] or "gcc"
    return Compiler(program=program, package=CROSS_PREFIX.sub("", program), built_with=built_with)


def trust_store() -> TrustStore:
    return TrustStore(
        anchors="/usr/local/share/ca-certificates",
        bundle="/etc/ssl/certs/ca-certificates.crt",
        update=("update-ca-certificates",),
    )
