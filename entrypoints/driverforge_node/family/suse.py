"""SUSE Linux Enterprise and openSUSE Leap.

The package version is the kernel release without its flavour; the flavour's build files (kernel-FLAVOUR-devel) point to the shared source
of kernel-devel.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node.family import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_node.host.ports import Files
from driverforge_node.packages import Attempt, PackageManager, zypper


def package_manager() -> PackageManager:
    return zypper


def _split(kernel: KernelRelease) -> tuple[str, str]:
    """('6.4.0-150700.53.19', 'default') for '6.4.0-150700.53.19-default'."""
    version, _, flavour = str(kernel).rpartition("-")
    return version, flavour


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    """The flavour's build files and the shared source; the public cloud module has sources of its own for the azure flavour."""
    version, flavour = _split(kernel)
    shared = "kernel-devel-azure" if flavour == "azure" else "kernel-devel"
    return (f"kernel-{flavour}-devel={version}", f"{shared}={version}")


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[Attempt, ...]:  # noqa: ARG001
    return (Attempt(name="configured repositories"),)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    version, flavour = _split(kernel)
    base = f"{root}/usr/src"
    # a variant with its own sources (azure) carries its name in the folder's
    for source in (f"{base}/linux-{version}", f"{base}/linux-{version}-{flavour}"):
        for arch in files.list_dir(f"{source}-obj"):
            output = f"{source}-obj/{arch}/{flavour}"
            if files.exists(f"{output}/.config") and files.exists(f"{source}/Makefile"):
                return HeaderTree(root=root, source=source, output=output)
    raise missing_tree(
        kernel, f"usr/src/linux-{version} and usr/src/linux-{version}-obj/*/{flavour}", files.list_dir(base)
    )


def compiler(files: Files, tree: HeaderTree) -> Compiler:
    built_with = config_value(files.read_text(f"{tree.output}/.config"), "CONFIG_CC_VERSION_TEXT")
    program = built_with.partition(" ")[0] or "gcc"
    return Compiler(program=program, package=program.replace("gcc-", "gcc"), built_with=built_with)


def trust_store() -> TrustStore:
    return TrustStore(
        anchors="/etc/pki/trust/anchors", bundle="/etc/ssl/ca-bundle.pem", update=("update-ca-certificates",)
    )
