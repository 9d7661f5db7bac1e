"""A kernel as its packages hold it: the image to boot, and the modules that come with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driverforge_build import packed
from driverforge_build.discover.manager import metadata_of
from driverforge_build.discover.settings import Settings
from driverforge_build.lock.pins import LockedKernel, LockedPackage
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Blob, Downloads
from driverforge_core.errors import InputError
from driverforge_core.modinfo import read_modinfo
from driverforge_core.names import normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTree:
    """`modules` maps a module's name to its file, `builtin` holds names that the kernel has in itself."""

    release: str
    image: Path
    modules: dict[str, Path]
    builtin: frozenset[str]

    def needed(self, names: Iterable[str]) -> dict[str, bytes]:
        """In-tree modules and all that they depend on, unpacked, in an order in which they can be inserted.

        A name that this kernel does not have is left out: the kernel will say which symbols it misses. Raises
        Unsupported for a compression that this program cannot read.
        """
        found: dict[str, bytes] = {}
        for name in names:
            self._add(normalise(name), found, ())
        return found

    def lacks(self, names: Iterable[str]) -> frozenset[str]:
        """Those of some modules that this kernel has neither as files nor in itself."""
        return frozenset(names) - self.modules.keys() - self.builtin

    def _add(self, name: str, found: dict[str, bytes], above: tuple[str, ...]) -> None:
        if name in found or name in above or name in self.builtin or name not in self.modules:
            return
        content = _unpacked(self.modules[name])
        depends = ",".join(read_modinfo(content).get("depends", []))
        for other in filter(None, depends.split(",")):
            self._add(normalise(other), found, (*above, name))
        found[name] = content


def _unpacked(module: Path) -> bytes:
    with module.open("rb") as file:
        suffix = packed.suffix_of(file.read(8))
        file.seek(0)
        return packed.unpacked(file, suffix).read()


def read_tree(root: Path, release: str) -> KernelTree:
    """The kernel that was unpacked below `root`.

    Debian's and Ubuntu's packages have the image in /boot, RHEL's and SUSE's beside the modules. Raises
    InputError where there is none.
    """
    homes = [root / top / "modules" / release for top in ("lib", "usr/lib")]
    home = next((folder for folder in homes if folder.is_dir()), homes[0])
    names = (f"boot/vmlinuz-{release}", f"boot/Image-{release}")
    images = [*(root / name for name in names), home / "vmlinuz", home / "Image"]
    image = next((path for path in images if path.is_file()), None)
    if image is None:
        raise InputError(
            f"the packages of kernel {release} hold no kernel to boot",
            details=[f"looked for {path.relative_to(root)}" for path in images],
            resolution="name the package that has it in `image:` of its series in the matrix, those with its "
            "modules in `modules:`, and run `driverforge lock`",
        )
    builtin = home / "modules.builtin"
    return KernelTree(
        release=release,
        image=image,
        modules={normalise(path.name): path for path in sorted(home.rglob("*.ko*"))},
        builtin=frozenset(
            normalise(line) for line in (builtin.read_text().splitlines() if builtin.is_file() else ())
        ),
    )


def kernel_packages(kernel: LockedKernel) -> tuple[LockedPackage, ...]:
    """The packages that hold the kernel and its modules. Raises InputError where the lock has none."""
    if kernel.image is None:
        raise InputError(
            f"the lock has no package with the kernel {kernel.release} itself",
            details=["its repositories had headers alone, or its row names packages without a kernel"],
            resolution="`driverforge lock` says which; leave its cells out with --skip, lock from a "
            "repository that has it, or name its package in `image:` of its series in the matrix",
        )
    return (kernel.image, *kernel.modules)


def blobs_of(
    row: OsRow, arch: Arch, packages: tuple[LockedPackage, ...], downloads: Downloads, settings: Settings
) -> Iterator[Blob]:
    """Packages as downloads. The lock's digest is enough: no metadata is read again.

    Raises Unavailable where nothing says where a package's repository is, InputError.
    """
    places = {place.id: place for place in metadata_of(row).locate(row, arch, settings)}
    for package in packages:
        place = places.get(package.suite)
        if place is None:
            raise InputError(
                f"{row.id} has no repository {package.suite}, where the lock found {package.key}",
                resolution="run `driverforge lock` again: the matrix has changed since",
            )
        url = f"{place.address(downloads)}/{package.path}"
        yield Blob(urls=(url,), sha256=package.sha256, size=package.size)
