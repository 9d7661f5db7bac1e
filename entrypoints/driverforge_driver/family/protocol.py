"""What a family of distributions is asked, and the values of its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.packages import PackageManager, RepositoryAttempt
from driverforge_host.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTree:
    """A kernel's build files in the folder `root`, into which its header packages were unpacked.

    All paths are absolute.
    """

    root: str
    # the headers that all flavours share: SYSSRC for NVIDIA's make
    source: str
    # this flavour's configuration and Module.symvers: SYSOUT for NVIDIA's make
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The compiler that a kernel's headers ask for."""

    # for make's CC: 'gcc-12', 'x86_64-linux-gnu-gcc-16', 'gcc'
    program: str
    # the package to install where the program is missing
    package: str
    # CONFIG_CC_VERSION_TEXT: the compiler of the kernel itself
    built_with: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """Where a site puts its own CA certificates, and how the programs of the OS come to trust them."""

    # folder for the site's certificates
    anchors: str
    # PEM file that `update` writes: the certificates of the OS and the site's
    bundle: str
    # command that writes it
    update: tuple[str, ...]


class Family(Protocol):
    """What the node has to know of a family of distributions."""

    def package_manager(self) -> PackageManager:
        """The program that fetches and unpacks this family's packages."""

    def header_packages(self, kernel: KernelRelease) -> tuple[str, ...]:
        """Packages with the build files of `kernel`, named as the package manager takes them."""

    def header_dependencies(self) -> re.Pattern[str] | None:
        """Matches those of their dependencies that are header packages too; None where there are none."""

    def repositories(
        self, release: OsRelease, kernel: KernelRelease, environ: Mapping[str, str]
    ) -> tuple[RepositoryAttempt, ...]:
        """Ways to ask the repositories for header packages, in order.

        The first one that has the packages wins.
        """

    def header_tree(self, kernel: KernelRelease, files: Files, root: str) -> HeaderTree:
        """Find the build files of `kernel` in the packages unpacked below `root`, and make them usable there.

        Raises Unsupported where the packages belong to another kernel, or one of them is missing.
        """

    def compiler(self, files: Files, tree: HeaderTree) -> Compiler:
        """The compiler that modules for this kernel must be compiled with."""

    def trust_store(self) -> TrustStore:
        """Where CA certificates of a site go."""


def missing_tree(kernel: KernelRelease, looked_for: str, found: tuple[str, ...]) -> Unsupported:
    """The error for header packages of another kernel.

    `looked_for` and `found` are paths below the folder of the packages.
    """
    return Unsupported(
        f"the header packages do not hold the build files of kernel {kernel}",
        details=[f"looked for: {looked_for}", f"unpacked: {', '.join(found) or 'nothing'}"],
        resolution=f"give the header packages of {kernel} "
        "(all of them: the flavour's, and the ones that it depends on)",
    )


def config_value(config: str, name: str) -> str:
    """A value of a kernel's .config without its quotes; '' where it is not set."""
    line = next((line for line in config.splitlines() if line.startswith(name + "=")), "")
    return line.partition("=")[2].strip().strip('"')
