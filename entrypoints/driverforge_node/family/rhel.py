"""Red Hat Enterprise Linux and what is built from it: Rocky, AlmaLinux, CentOS Stream, Oracle Linux."""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node.family import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_node.host.ports import Files
from driverforge_node.packages import Attempt, PackageManager, dnf

GCC_VERSION = re.compile(r"\(GCC\) (?P<version>\d+\.\d+\.\d+)|gcc version (?P<old>\d+\.\d+\.\d+)")


def package_manager() -> PackageManager:
    return dnf


def _split(kernel: KernelRelease) -> tuple[str, str]:
    """('kernel-64k', '5.14.0-427.el9.aarch64') for '5.14.0-427.el9.aarch64+64k'; Oracle's own kernels are 'kernel-uek'."""
    plain, _, variant = str(kernel).partition("+")
    base = "kernel-uek" if "uek" in plain else "kernel"
    return (f"{base}-{variant}" if variant else base), plain


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    """kernel-headers are for user space; a module needs kernel-devel only."""
    name, plain = _split(kernel)
    return (f"{name}-devel-{plain}",)


def el_version(release: OsRelease, kernel: KernelRelease) -> tuple[str, str]:
    """(major, minor) of the minor release that a kernel belongs to, from its own name: os-release may lag behind the node's kernel."""
    major, _, minor = release.version.partition(".")
    if not kernel.el:
        return major, minor
    own = str(kernel.el[0])
    return own, str(kernel.el[1]) if len(kernel.el) > 1 else (minor if own == major else "")


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[Attempt, ...]:
    """On RHEL: extended update support first, then the minor release's plain repositories, then those of the newest minor release.

    The headers of older minor releases' kernels are in the former (NVIDIA/gpu-driver-container#793: in AppStream from 9 on).
    """
    major, minor = el_version(release, kernel)
    pinned = environ.get("DNF_RELEASEVER") or (f"{major}.{minor}" if minor else major)
    plain = Attempt(name=f"release {pinned}", releasever=pinned)
    last = Attempt(name=f"release {major}", releasever=major)
    if release.id != "rhel":
        return (
            (Attempt(name="configured repositories"), plain, last)
            if minor
            else (Attempt(name="configured repositories"),)
        )
    arch = kernel.machine or "x86_64"
    eus = tuple(f"rhel-{major}-for-{arch}-{part}-eus-rpms" for part in ("baseos", "appstream"))
    attempts = [Attempt(name="extended update support", enable=eus, releasever=pinned), plain, last]
    if environ.get("OPENSHIFT_VERSION"):
        repository = f"rhocp-{environ['OPENSHIFT_VERSION']}-for-rhel-{major}-{arch}-rpms"
        attempts.insert(0, Attempt(name="OpenShift", enable=(repository,), releasever=pinned))
    return tuple(attempts)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    base = f"{root}/usr/src/kernels"
    tree = f"{base}/{kernel}"
    if not files.exists(f"{tree}/.config"):
        raise missing_tree(kernel, f"usr/src/kernels/{kernel}/.config", files.list_dir(base))
    return HeaderTree(root=root, source=tree, output=tree)


def compiler(files: Files, tree: HeaderTree) -> Compiler:
    """One gcc a release; a kernel of another minor release wants exactly the gcc that it was compiled with."""
    built_with = config_value(files.read_text(f"{tree.output}/.config"), "CONFIG_CC_VERSION_TEXT")
    found = GCC_VERSION.search(built_with)
    version = (found["version"] or found["old"]) if found else ""
    return Compiler(program="gcc", package=f"gcc-{version}" if version else "gcc", built_with=built_with)


def trust_store() -> TrustStore:
    return TrustStore(
        anchors="/etc/pki/ca-trust/source/anchors",
        bundle="/etc/pki/tls/certs/ca-bundle.crt",
        update=("update-ca-trust", "extract"),
    )
