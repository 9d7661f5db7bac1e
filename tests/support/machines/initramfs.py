"""What is in the archive of a guest's first root.

It has busybox, kmod with its libraries, and the in-tree modules that are asked for.
"""

from __future__ import annotations

import lzma
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from driverforge_build.verify.guest import CpioArchive
from driverforge_core.errors import Unavailable
from support.machines.kernels import Image
from support.process import require, run


def add_program(archive: CpioArchive, path: Path, target: str = "") -> None:
    """Add a program of this machine with the shared libraries that it needs."""
    archive.file(target or str(path), path.resolve().read_bytes(), mode=0o755)
    for library in re.findall(r"(/\S+) \(0x", run("ldd", path.resolve(), check=False).stdout):
        archive.file(library, Path(library).resolve().read_bytes(), mode=0o755)


def module_files(image: Image, names: Iterable[str]) -> dict[str, bytes]:
    """In-tree modules and what they need: path under lib/modules/RELEASE → content, unpacked, in load order.

    A name that the kernel has built in gives nothing; an unknown one raises Unavailable.
    """
    rows = (line.split(":", 1) for line in (image.modules / "modules.dep").read_text().splitlines())
    depends = {path: rest.split() for path, rest in rows}
    by_name = {_module_name(path): path for path in depends}
    builtin = {_module_name(path) for path in (image.modules / "modules.builtin").read_text().splitlines()}
    files: dict[str, bytes] = {}
    for wanted in (name.replace("-", "_") for name in names):
        if wanted in builtin:
            continue
        if wanted not in by_name:
            raise Unavailable(f"kernel {image.release} has no module {wanted}")
        for path in [*reversed(depends[by_name[wanted]]), by_name[wanted]]:
            data = (image.modules / path).read_bytes()
            files.setdefault(
                path.removesuffix(".xz"), lzma.decompress(data) if path.endswith(".xz") else data
            )
    return files


def _module_name(path: str) -> str:
    return Path(path).name.partition(".ko")[0].replace("-", "_")


def busybox() -> Path:
    """This machine's busybox; Debian's package busybox-static has it in /bin.

    Raises Unavailable without one.
    """
    require("busybox")
    return Path(shutil.which("busybox") or "/bin/busybox")


def base(image: Image, *, modules: Iterable[str], files: Mapping[str, bytes], scratch: Path) -> CpioArchive:
    """An archive with busybox, kmod's programs, modules with their indexes, and `files`.

    The indexes are made here: depmod is slow in a guest.
    """
    require("depmod", "kmod", "busybox")
    archive = CpioArchive()
    for folder in ("proc", "sys", "dev", "tmp", "run", "etc", "root", "new", "sbin", "payload"):
        archive.directory(folder)
    add_program(archive, busybox(), "bin/busybox")
    add_program(archive, Path(shutil.which("kmod") or "/bin/kmod"), "bin/kmod")
    # busybox's have other messages
    for name in (
        "modprobe",
        "insmod",
        "rmmod",
        "lsmod",
        "depmod",
        "modinfo",
    ):
        archive.link(f"sbin/{name}", "/bin/kmod")
    for path, data in module_tree(image, modules, scratch).items():
        archive.file(f"lib/modules/{image.release}/{path}", data)
    for path, data in files.items():
        archive.file(path, data, mode=0o755)
    return archive


def module_tree(image: Image, modules: Iterable[str], scratch: Path) -> dict[str, bytes]:
    """Content of lib/modules/RELEASE with only these modules: the files and depmod's indexes."""
    home = scratch / "lib/modules" / image.release
    for path, data in module_files(image, modules).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)
    home.mkdir(parents=True, exist_ok=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(image.modules / name, home)
    run("depmod", "-b", scratch, image.release)
    return {
        str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()
    }
