"""Debian's kernel headers in the layouts of other distributions, under another release.

No kernel of Ubuntu, Red Hat or SUSE can be had here: the headers, Module.symvers and the programs that build
modules are Debian's own, from linux-headers-* and linux-kbuild-*. What is another's is where the files lie,
what links to what, the release, and what the configuration says of the compiler.

    Ubuntu    usr/src/linux-headers-6.8.0-136 for all flavours; -generic links into it, file by file
    Red Hat   usr/src/kernels/RELEASE: one tree
    SUSE      usr/src/linux-V for all flavours, and usr/src/linux-V-obj/x86_64/FLAVOUR for one
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from support.machines.kernels import Kernel

_DEBIANS_OWN = (".kernelvariables", "Makefile", "scripts", "tools", "vmlinux")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guise:
    """What a kernel of Debian's calls itself: `uname -r`, and the compiler by CONFIG_CC_VERSION_TEXT."""

    kernel: Kernel
    release: str
    compiler: str


def ubuntu(guise: Guise, common: Path, flavour: Path, *, shared: str) -> Path:
    """linux-headers-RELEASE below `flavour`, what it links to below `common`; returns where modules build."""
    source = common / "usr/src" / shared
    output = flavour / "usr/src" / f"linux-headers-{guise.release}"
    _shared(guise, source)
    _link(source, output, source)
    _flavour(guise, output)
    return output


def red_hat(guise: Guise, root: Path) -> Path:
    """kernel-devel's tree; returns where modules build."""
    tree = root / "usr/src/kernels" / guise.release
    _shared(guise, tree)
    _flavour(guise, tree)
    return tree


def suse(guise: Guise, common: Path, flavour: Path) -> tuple[Path, Path]:
    """kernel-devel's tree below `common`, kernel-FLAVOUR-devel's below `flavour`; SYSSRC and SYSOUT."""
    version, _, name = guise.release.rpartition("-")
    source = common / f"usr/src/linux-{version}"
    output = flavour / f"usr/src/linux-{version}-obj/x86_64/{name}"
    _shared(guise, source)
    output.mkdir(parents=True)
    for folder in ("scripts", "tools"):
        shutil.copytree(source / folder, output / folder, symlinks=True)
        # kernel-devel is for every architecture
        for path in (source / folder).rglob("*"):
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                path.unlink()
    (output / "Makefile").write_text(f"include ../../../linux-{version}/Makefile\n")
    _flavour(guise, output)
    return source, output


def _shared(guise: Guise, target: Path) -> None:
    """The headers that all flavours share, with kbuild's scripts and programs, which Debian only links to."""
    shutil.copytree(guise.kernel.source, target, symlinks=True, ignore=_of_others)
    for folder in ("scripts", "tools"):
        shutil.copytree(guise.kernel.source / folder, target / folder, symlinks=True)


def _of_others(folder: str, names: list[str]) -> list[str]:
    """The links to kbuild's folders, and what other architectures have."""
    if folder.endswith("/arch"):
        return [name for name in names if name != "x86"]
    return [name for name in names if name in ("scripts", "tools")]


def _flavour(guise: Guise, target: Path) -> None:
    """The flavour's own files over what is there, under the other release."""
    shutil.copytree(
        guise.kernel.build,
        target,
        symlinks=True,
        ignore=shutil.ignore_patterns(*_DEBIANS_OWN),
        dirs_exist_ok=True,
    )
    (target / "include/config/kernel.release").write_text(f"{guise.release}\n")
    (target / "include/generated/utsrelease.h").write_text(f'#define UTS_RELEASE "{guise.release}"\n')
    for name in (".config", "include/config/auto.conf", "include/generated/autoconf.h"):
        text = re.sub(
            r'(CONFIG_CC_VERSION_TEXT[= ])"[^"]*"', rf'\1"{guise.compiler}"', (target / name).read_text()
        )
        (target / name).write_text(text)


def _link(source: Path, target: Path, top: Path) -> None:
    """`target` with relative links to all that `source` has, folders that a flavour has too made anew."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        place = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and _is_mixed(entry.relative_to(top)):
            _link(entry, place, top)
        else:
            # what lies below usr/src in two packages lies there together once they are unpacked
            up = len(entry.relative_to(top).parts)
            place.symlink_to(Path(*[".."] * up, top.name, entry.relative_to(top)))


def _is_mixed(path: Path) -> bool:
    """Whether a flavour adds files of its own to a folder of the shared headers."""
    return path.as_posix() in {"arch", "arch/x86", "arch/x86/include", "include", "scripts", "tools"}
