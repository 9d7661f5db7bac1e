"""Red Hat Enterprise Linux and its relatives: Rocky, AlmaLinux, CentOS Stream, Oracle Linux, Amazon Linux."""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.family.protocol import Compiler, HeaderTree, TrustStore, config_value, missing_tree
from driverforge_driver.packages import PackageManager, RepositoryAttempt, dnf
from driverforge_host.ports import Files

# 'gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)'; the kernels of RHEL 8 write 'gcc version 8.5.0 …'
GCC_VERSION = re.compile(r"\(GCC\) (?P<version>\d+\.\d+\.\d+)|gcc version (?P<old>\d+\.\d+\.\d+)")

# the one kernel of Amazon Linux 2023 whose packages have no version in their names
AMAZON_FIRST = (6, 1)
# Oracle's own kernels have a repository each, which its images leave off
UEK: dict[tuple[int, ...], str] = {(5, 15): "UEKR7", (6, 12): "UEKR8"}


def package_manager() -> PackageManager:
    return dnf


def _split(kernel: KernelRelease) -> tuple[str, str]:
    """('kernel-64k', '5.14.0-427.el9.aarch64') for '5.14.0-427.el9.aarch64+64k'.

    Until RHEL 9.2 the name of a real-time kernel has no such end: 4.18.0-553.rt7.342.el8_10.x86_64. The
    packages of Oracle's own kernels are named kernel-uek, those of Amazon's newer ones kernel6.12.
    """
    plain, _, variant = str(kernel).partition("+")
    variant = variant or ("rt" if kernel.realtime else "")
    base = "kernel-uek" if kernel.flavour == "uek" else "kernel"
    if ".amzn" in plain and kernel.version[:2] > AMAZON_FIRST:
        base = "kernel{}.{}".format(*kernel.version)
    return (f"{base}-{variant}" if variant else base), plain


def header_packages(kernel: KernelRelease) -> tuple[str, ...]:
    """kernel-devel alone: kernel-headers is for programs in user space."""
    name, plain = _split(kernel)
    return (f"{name}-devel-{plain}",)


def header_dependencies() -> None:
    """None: kernel-devel is all that a module needs."""


def el_version(release: OsRelease, kernel: KernelRelease) -> tuple[str, str]:
    """(major, minor) of the release that a kernel belongs to; minor is '' where nothing says it.

    The kernel's own name counts first: the image's os-release may be older or newer than the node's kernel.
    """
    major, _, minor = release.version.partition(".")
    if not kernel.el:
        return major, minor
    own = str(kernel.el[0])
    return own, str(kernel.el[1]) if len(kernel.el) > 1 else (minor if own == major else "")


def repositories(
    release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
) -> tuple[RepositoryAttempt, ...]:
    """On RHEL: extended update support, the kernel's minor release, the newest minor release.

    Only extended update support keeps the headers of older minor releases' kernels, from RHEL 9 on in
    AppStream (NVIDIA/gpu-driver-container#793). Distributions built from RHEL have no subscription
    repositories. Amazon's images are of one release and ask for no newer one by themselves.
    """
    major, minor = el_version(release, kernel)
    if (uek := UEK.get(kernel.version[:2])) and kernel.flavour == "uek":
        return (RepositoryAttempt(name=f"Oracle's {uek}", enable=(f"ol{major}_{uek}",)),)
    given = environ.get("DNF_RELEASEVER", "")
    pinned = given or (f"{major}.{minor}" if minor else major)
    plain = RepositoryAttempt(name=f"release {pinned}", releasever=pinned)
    newest = "latest" if release.id == "amzn" else major
    last = RepositoryAttempt(name=f"release {newest}", releasever=newest)
    if release.id != "rhel":
        others = (plain, last) if given or minor else (last,) if newest == "latest" else ()
        return (RepositoryAttempt(name="configured repositories"), *others)
    arch = kernel.machine or "x86_64"
    eus = tuple(f"rhel-{major}-for-{arch}-{part}-eus-rpms" for part in ("baseos", "appstream"))
    attempts = [RepositoryAttempt(name="extended update support", enable=eus, releasever=pinned), plain, last]
    if environ.get("OPENSHIFT_VERSION"):
        repository = f"rhocp-{environ['OPENSHIFT_VERSION']}-for-rhel-{major}-{arch}-rpms"
        attempts.insert(0, RepositoryAttempt(name="OpenShift", enable=(repository,), releasever=pinned))
    return tuple(attempts)


def header_tree(kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
    base = f"{root}/usr/src/kernels"
    tree = f"{base}/{kernel}"
    if not files.exists(f"{tree}/.config"):
        raise missing_tree(kernel, f"usr/src/kernels/{kernel}/.config", files.list_dir(base))
    return HeaderTree(root=root, source=tree, output=tree)


def compiler(files: Files, tree: HeaderTree) -> Compiler:
    """`gcc`, of which a release has one; a toolset's where the kernel was compiled with that and it is here.

    A kernel of another minor release asks for the version that compiled it.
    """
    built_with = config_value(files.read_text(f"{tree.output}/.config"), "CONFIG_CC_VERSION_TEXT")
    found = GCC_VERSION.search(built_with)
    version = (found["version"] or found["old"]) if found else ""
    toolset = f"gcc-toolset-{version.partition('.')[0]}"
    program = f"/opt/rh/{toolset}/root/usr/bin/gcc"
    if files.exists(program):
        return Compiler(program=program, package=toolset, built_with=built_with)
    return Compiler(program="gcc", package=f"gcc-{version}" if version else "gcc", built_with=built_with)


def trust_store() -> TrustStore:
    return TrustStore(
        anchors="/etc/pki/ca-trust/source/anchors",
        bundle="/etc/pki/tls/certs/ca-bundle.crt",
        update=("update-ca-trust", "extract"),
    )
