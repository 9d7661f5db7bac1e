"""Debian kernels to build against and to boot.

They are chosen by rule, because what the mirror has changes every few weeks.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import Unavailable
from support import aptfetch, cache
from support.process import require, run

_COMMON = re.compile(r"/(linux-headers-[^/\s]+-common[^/\s]*)/Makefile$", re.MULTILINE)
_RESIZE = re.compile(r"\bpci_resize_resource\(([^)]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel release as Debian packages it."""

    release: str  # '6.1.0-50-cloud-amd64'
    version: str  # of the packages: '6.1.176-1'
    headers: Path  # a root that holds usr/src/linux-headers-*, made relocatable
    suite: str

    @property
    def build(self) -> Path:
        """The flavour's tree: what /lib/modules/RELEASE/build points to (SYSOUT)."""
        return self.headers / "usr/src" / f"linux-headers-{self.release}"

    @property
    def source(self) -> Path:
        """The common tree (SYSSRC): real-time kernels have one of their own."""
        found = _COMMON.search((self.build / "Makefile").read_text())
        assert found, "the Makefile includes no common one"
        return self.headers / "usr/src" / found[1]

    @property
    def compiler(self) -> str:
        """The compiler that made this kernel and must make its modules: 'gcc-12'."""
        found = re.search(r"\$\(CROSS_COMPILE\)(gcc-\d+)", (self.build / ".kernelvariables").read_text())
        return found[1] if found else "gcc"

    @property
    def resize_arguments(self) -> int:
        """Arguments of pci_resize_resource: 3, or 4 where drivers up to branch 570 do not compile."""
        found = _RESIZE.search((self.source / "include/linux/pci.h").read_text())
        return found[1].count(",") + 1 if found else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A kernel to boot."""

    release: str
    version: str
    vmlinuz: Path
    modules: Path  # the folder lib/modules/RELEASE, with the indexes of depmod


def abi(release: str) -> str:
    """What the names of a kernel's packages share: '6.1.0-50'."""
    return re.sub(r"-(cloud-)?(rt-)?(amd64|arm64)$", "", release)


def candidates(series: str, *, flavour: str = "cloud-amd64") -> tuple[aptfetch.Package, ...]:
    """Header packages of a series ('6.1', '6.12') that the mirror has, newest version first."""
    packages = aptfetch.archive()
    names = packages.names(rf"linux-headers-{re.escape(series)}\.[0-9][^-]*(-[0-9]+)?-{flavour}")
    every = [package for name in names for package in packages.versions(name)[:1]]
    return tuple(sorted(every, key=lambda package: aptfetch.version_key(package.version), reverse=True))


def headers(package: aptfetch.Package) -> Kernel:
    """Unpack the headers of a kernel: flavour, common and kbuild packages, in a folder that may be moved."""
    packages = aptfetch.archive()
    release = package.name.removeprefix("linux-headers-")
    needed = _with_dependencies(package)

    def make(folder: Path) -> None:
        packages.unpack(needed, folder)
        makefile = folder / "usr/src" / f"linux-headers-{release}" / "Makefile"
        here = "$(dir $(abspath $(lastword $(MAKEFILE_LIST))))../"
        makefile.write_text(makefile.read_text().replace("include /usr/src/", f"include {here}"))

    root = cache.cached("headers", {"packages": sorted(map(str, needed)), "layout": 1}, make)
    return Kernel(release=release, version=package.version, headers=root, suite=package.suite)


def header_debs(kernel: Kernel) -> tuple[Path, ...]:
    """The very packages that `headers` unpacks, as the mirror has them."""
    packages = aptfetch.archive()
    return packages.download(
        _with_dependencies(packages.newest(f"linux-headers-{kernel.release}", suite=kernel.suite))
    )


def rebuilt(kernel: Kernel, folder: Path) -> tuple[str, tuple[Path, ...]]:
    """Another kernel of its class: its release, and header packages in `folder`.

    Stands for a rebuild of the same source, as Debian's 6.1.0-56 was one: another number of the ABI and of
    the build, and nothing else.
    """
    old = abi(kernel.release)
    new = f"{old[:-1]}{(int(old[-1]) + 1) % 10}"
    debs = (
        _rebuilt(deb, old, new, folder) if old in deb.name else Path(shutil.copy(deb, folder))
        for deb in header_debs(kernel)
    )
    return kernel.release.replace(old, new), tuple(debs)


def _rebuilt(deb: Path, old: str, new: str, folder: Path) -> Path:
    tree = folder / deb.stem
    run("dpkg-deb", "-R", deb, tree)
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if path.name in ("package.h", "utsversion.h"):
                content = content.replace(b"Debian 6", b"Debian 5")
            path.write_bytes(content.replace(old.encode(), new.encode()))
        elif path.is_symlink():
            target = str(path.readlink())
            path.unlink()
            path.symlink_to(target.replace(old, new))
        path.rename(path.with_name(path.name.replace(old, new)))
    made = folder / deb.name.replace(old, new)
    run("dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, made)
    shutil.rmtree(tree)
    return made


def _with_dependencies(package: aptfetch.Package) -> list[aptfetch.Package]:
    packages = aptfetch.archive()
    depends = re.findall(r"(linux-(?:kbuild|headers)-[^\s,(]+)", packages.field(package, "Depends"))
    return [package, *(packages.newest(name, suite=package.suite) for name in depends)]


@functools.cache
def newest(
    series: str, *, resize_arguments: int = 3, flavour: str = "cloud-amd64", native: bool = True
) -> Kernel:
    """The newest kernel of a series whose pci_resize_resource has so many arguments.

    With `native` its compiler must be here, too. Raises Unavailable with what was looked at.
    """
    seen = []
    for package in candidates(series, flavour=flavour):
        kernel = headers(package)
        if kernel.resize_arguments == resize_arguments and (not native or shutil.which(kernel.compiler)):
            return kernel
        seen.append(
            f"{kernel.release} in {package.suite}: {kernel.resize_arguments} arguments, "
            f"built by {kernel.compiler}"
        )
    brief = (
        f"no {series} kernel with {resize_arguments} arguments of pci_resize_resource "
        "that can be built for here"
    )
    raise Unavailable(brief, details=seen)


@functools.cache
def of(release: str) -> Kernel:
    """The headers of one release. Raises Unavailable when no suite has them."""
    return headers(aptfetch.archive().newest(f"linux-headers-{release}"))


@functools.cache
def image(release: str) -> Image:
    """Unpack the image of a kernel, index its modules."""
    require("depmod")
    packages = aptfetch.archive()
    # the unsigned package has the same files without a dependency on boot loaders; not every suite has it
    found = [
        version
        for name in (f"linux-image-{release}-unsigned", f"linux-image-{release}")
        for version in packages.versions(name)
    ]
    if not found:
        raise Unavailable(f"the mirror has no image of kernel {release}")

    def make(folder: Path) -> None:
        packages.unpack([found[0]], folder)
        if not (folder / "lib").exists():
            (folder / "lib").symlink_to("usr/lib")
        run("depmod", "-b", folder, release, env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})

    root = cache.cached("image", {"package": str(found[0]), "layout": 1}, make)
    modules = root / "lib/modules" / release
    return Image(
        release=release, version=found[0].version, vmlinuz=root / f"boot/vmlinuz-{release}", modules=modules
    )
