"""SUSE Linux Enterprise and openSUSE Leap.

A package's version is the kernel release without its flavour. The flavour's build files
(kernel-FLAVOUR-devel) point to the shared headers of kernel-devel.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.family.protocol import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_driver.packages import PackageManager, RepositoryAttempt, zypper
from driverforge_host.ports import Files


def package_manager() -> PackageManager:
    return zypper


def _split(kernel: KernelRelease) -> tuple[str, str]:
    """('6.4.0-150700.53.19', 'default') for '6.4.0-150700.53.19-default'."""
    version, _, flavour = str(kernel).rpartition("-")
    return version, flavour


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    """The flavour's build files and the shared headers, as NAME=VERSION.

    The azure flavour, of the Public Cloud module, has shared headers of its own.
    """
    version, flavour = _split(kernel)
    shared = "kernel-devel-azure" if flavour == "azure" else "kernel-devel"
    return (f"kernel-{flavour}-devel={version}", f"{shared}={version}")


def header_dependencies() -> None:
    """None: `header_packages` lists both."""


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[RepositoryAttempt, ...]:
    return (RepositoryAttempt(name="configured repositories"),)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    version, flavour = _split(kernel)
    base = f"{root}/usr/src"
    # a flavour with headers of its own (azure) has its name in the folder's
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
