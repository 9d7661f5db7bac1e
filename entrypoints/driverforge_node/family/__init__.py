"""OS families: what differs between Debian's, Red Hat's and SUSE's kernels and packages, one module each.

`debian`, `rhel` and `suse` satisfy `Family`. Nothing else in the node knows the name of a distribution's package or the shape of its
header tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node.host.ports import Files
from driverforge_node.packages import Attempt, PackageManager


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTree:
    """A kernel's build files inside the folder `root` that its header packages were unpacked into; `source` and `output` are absolute."""

    root: str
    source: str  # make's SYSSRC: the headers that all flavours share
    output: str  # make's SYSOUT: this flavour's configuration and Module.symvers


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The compiler that a kernel's headers ask for."""

    program: str  # as make's CC: 'gcc-12', 'x86_64-linux-gnu-gcc-16', 'gcc'
    package: str  # what to install where it is missing
    built_with: str  # CONFIG_CC_VERSION_TEXT: what the kernel itself was compiled with


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """Where a site's own CA certificates are put, and what makes the programs of the OS believe them."""

    anchors: str
    bundle: str
    update: tuple[str, ...]


class Family(Protocol):
    """What the node has to know of a family of distributions."""

    def package_manager(self) -> PackageManager: ...

    def header_packages(self, kernel: KernelRelease) -> tuple[str, ...]:
        """Packages to ask for to compile against `kernel`; the package manager adds the header packages that these depend on."""

    def repositories(
        self, release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
    ) -> tuple[Attempt, ...]:
        """Ways to ask the repositories for header packages, in order; the first that answers wins."""

    def header_tree(self, kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
        """Find the build files in unpacked header packages, and make them usable there.

        Raises Unsupported where they are another kernel's, or not all that is needed.
        """

    def compiler(self, files: Files, tree: HeaderTree) -> Compiler: ...

    def trust_store(self) -> TrustStore: ...


def of(release: OsRelease) -> Family:
    """The family of an OS, by its id, else by what it says it is like (os-release(5)). Raises Unsupported."""
    from driverforge_node.family import debian, rhel, suse

    families: dict[str, Family] = {
        "debian": debian, "ubuntu": debian,
        "rhel": rhel, "fedora": rhel, "centos": rhel, "rocky": rhel, "ol": rhel,
        "suse": suse, "sles": suse, "sle_hpc": suse, "opensuse-leap": suse,
    }  # fmt: skip
    for name in (release.id, *release.like):
        if name in families:
            return families[name]
    raise Unsupported(
        f"no family of operating systems is known for {release.id!r}",
        details=[f"ID={release.id} ID_LIKE={' '.join(release.like)}"],
        resolution="use an image of an operating system that `driverforge matrix show` lists",
    )


def missing_tree(kernel: KernelRelease, looked_for: str, found: tuple[str, ...]) -> Unsupported:
    """The error for header packages of another kernel."""
    return Unsupported(
        f"the header packages do not hold the build files of kernel {kernel}",
        details=[f"looked for: {looked_for}", f"unpacked: {', '.join(found) or 'nothing'}"],
        resolution=f"give the header packages of {kernel} (all of them: the flavour's, and the ones that it depends on)",
    )


def config_value(config: str, name: str) -> str:
    """A value of a kernel .config without its quotes, '' where it is not set."""
    line = next((line for line in config.splitlines() if line.startswith(name + "=")), "")
    return line.partition("=")[2].strip().strip('"')
