"""Disks for guests: a Debian 12 root file system with systemd and containerd, and a kernel's modules."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from support import aptfetch, cache
from support.machines.guest import LATE_SIZE, Disk, Machine, sparse
from support.machines.kernels import Image
from support.process import require, run

_PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "pciutils", "iproute2", "procps", "xz-utils"),
    *("containerd", "runc", "python3", "ca-certificates"),
)
# what a JIT image of Debian 12 has, too (gcc-12 is what compiled Debian's kernels)
TOOLCHAIN = ("gcc-12", "make", "binutils", "libelf1", "gpgv")
_SLIM = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
# what only costs time in a guest that lives for seconds: udev's coldplug alone is a third of the boot
_MASKED = (
    "systemd-udev-trigger",
    "getty@tty1",
    "serial-getty@ttyS0",
    "systemd-journal-flush",
    "systemd-update-utmp",
    "e2scrub_reap",
)
_LAYOUT = 3  # counts changes of what this module makes
_MIB = 1 << 20


def debian(*, packages: Iterable[str] = _PACKAGES) -> Path:
    """A cached ext4 image of Debian 12 with these packages.

    mmdebstrap makes it from this machine's mirror.
    """
    require("mmdebstrap", "mke2fs")
    chosen = tuple(packages)

    def make(folder: Path) -> None:
        tree = folder / "tree"
        bootstrap("bookworm", tree, packages=chosen)
        (tree / "etc/hosts").write_text("127.0.0.1 localhost guest\n")
        (tree / "etc/hostname").write_text("guest\n")
        (tree / "etc/resolv.conf").write_text("")
        (tree / "etc/machine-id").write_text("d41d8cd98f00b204e9800998ecf8427e\n")
        if (units := tree / "etc/systemd/system").is_dir():
            for unit in _MASKED:
                (units / f"{unit}.service").symlink_to("/dev/null")
        ext4(tree, folder / "root.img", spare=1024 * _MIB)
        shutil.rmtree(tree)

    inputs = {
        "suite": "bookworm",
        "packages": chosen,
        "versions": _versions(chosen),
        "layout": _LAYOUT,
        "masked": _MASKED,
    }
    return cache.cached("rootfs", inputs, make) / "root.img"


def _versions(packages: Iterable[str]) -> list[str]:
    archive = aptfetch.archive()
    return [str(archive.newest(name, suite="bookworm")) for name in packages]


def bootstrap(suite: str, target: Path, *, packages: Iterable[str] = (), arch: str = "") -> None:
    """A minimal Debian of a suite in a new folder, or in a tar where `target` ends in .tar.

    `arch` is another architecture than this machine's; its programs have to start here.
    """
    require("mmdebstrap")
    archive = aptfetch.archive()
    source = f"deb {archive.mirror} {suite} main"
    include = [f"--include={','.join(packages)}"] if packages else []
    slim = [f"--dpkgopt=path-exclude={path}" for path in _SLIM]
    # it looks for an installed qemu-user-static
    foreign = [f"--architectures={arch}", "--skip=check/qemu"] if arch else []
    run("mmdebstrap", "--quiet", "--variant=minbase", *foreign, *include, *slim, suite, target, source)


def ext4(tree: Path, target: Path, *, spare: int, size: int = 0) -> None:
    """An ext4 image of a folder with `spare` free bytes.

    The file is sparse and, if `size` is given, that many bytes long.
    """
    used = int(run("du", "-s", "--block-size=1", tree).stdout.split()[0])
    room = (used * 11 // 10 + spare) // _MIB + 16
    run(
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1",
        "-d",
        tree,
        target,
        f"{room}M",
    )
    if size:
        sparse(target, size)


def modules(image: Image) -> Path:
    """A cached ext4 image of lib/modules/RELEASE."""

    def make(folder: Path) -> None:
        ext4(image.modules, folder / "modules.img", spare=256 * _MIB)

    inputs = {"release": image.release, "version": image.version, "layout": _LAYOUT}
    return cache.cached("modules", inputs, make) / "modules.img"


def agent_machine(image: Image, *, append: str = "", memory: int = 1024, toolchain: bool = False) -> Machine:
    """A guest with Debian's user space (Python, bash, kmod, runc) and no services.

    It is for programs that need no init system. With `toolchain` it has what a JIT image compiles with.
    """
    root = debian(packages=(*_PACKAGES, *TOOLCHAIN)) if toolchain else debian()
    return Machine(image=image, init="agent", disks=_disks(image, root), append=append, memory=memory)


def systemd_machine(
    image: Image, *, store: Path | None = None, append: str = "", memory: int = 2048
) -> Machine:
    """A node: systemd, containerd 1.6, cgroup v2.

    `store` is an image store for /var/lib/containerd (`support.machines.store`).
    """
    late = Disk(name="store", file=store, late=True)
    return Machine(
        image=image,
        init="systemd",
        disks=(*_disks(image, debian()), late),
        append=append,
        memory=memory,
        cpus=2,
    )


def rebooting_machine(
    image: Image, *, store: Path, append: str = "", memory: int = 2048, service: int = 0
) -> Machine:
    """The node of `systemd_machine` with a network card. It reboots, and finds its image store by itself."""
    disk = Disk(name="store", file=store, mount="/var/lib/containerd")
    return Machine(
        image=image,
        init="systemd",
        disks=(*_disks(image, debian()), disk),
        append=f"{append} net.ifnames=0",
        memory=memory,
        cpus=2,
        network=True,
        service=service,
        reboots=True,
    )


def _disks(image: Image, system: Path) -> tuple[Disk, ...]:
    root = Disk(name="root", file=system, mount="/")
    return root, Disk(name="modules", file=modules(image), mount=f"/lib/modules/{image.release}")


def empty_disk(target: Path, fill: Callable[[Path], None]) -> None:
    """A late disk's image, made from a folder that `fill` fills."""
    tree = target.parent / f"{target.name}.tree"
    tree.mkdir()
    fill(tree)
    ext4(tree, target, spare=2048 * _MIB, size=LATE_SIZE)
    shutil.rmtree(tree)
