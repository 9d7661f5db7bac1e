"""Debian and Ubuntu.

Debian splits a kernel's headers in three packages: the flavour's (configuration, Module.symvers), -common (the headers) and
linux-kbuild (scripts and tools). Ubuntu's flavour package links into one that all flavours share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node.family import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_node.host.ports import Files
from driverforge_node.packages import Attempt, PackageManager, apt

# Debian's flavour Makefile is this one line; its absolute path is the reason why headers work only where dpkg puts them
INCLUDE = re.compile(r"^include (?P<tree>\S*/usr/src/\S+)/Makefile$", re.MULTILINE)
KERNEL_VARIABLES_CC = re.compile(r"^(?:override )?CC\s*:?=.*?(?P<program>[\w-]*gcc-\d+)\s*$", re.MULTILINE)
CROSS_PREFIX = re.compile(r"^[\w]+-linux-gnu-")


def package_manager() -> PackageManager:
    return apt


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    return (f"linux-headers-{kernel}",)


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[Attempt, ...]:  # noqa: ARG001
    """apt asks all of its suites at once."""
    return (Attempt(name="configured suites"),)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    base = f"{root}/usr/src"
    output = f"{base}/linux-headers-{kernel}"
    if not files.exists(f"{output}/.config"):
        raise missing_tree(kernel, f"usr/src/linux-headers-{kernel}/.config", files.list_dir(base))
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
    """.kernelvariables names it on Debian, the configuration on Ubuntu."""
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
