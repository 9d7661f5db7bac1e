"""What NVIDIA's nvidia-ctk writes for nodes with MIG and graphics: records, and the way to make them.

The program runs in a root folder of its own, with device files that have no driver behind them, a /sys and a
/proc of a few files, and the stand-in of `fakes.nvmllibrary`. The records and the listings of these roots are
in tests/cases/nvidia-programs; a record is written anew where `recordedctk.UPDATE` is 1.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from support.fakes import nvmllibrary
from support.fakes.driverroot import entries, numbers
from support.process import run
from support.upstream import gotools
from support.upstream.recordedctk import FOLDER, UPDATE

VOID = "/var/run/nvidia-container-devices/void"
# root → where its libnvidia-ml is; Debian's packages have the driver's libraries in two folders
ROOTS = {
    "graphics": "usr/lib/x86_64-linux-gnu",
    "debian": "usr/lib/x86_64-linux-gnu/nvidia/current",
    "management": "usr/lib/x86_64-linux-gnu/nvidia/current",
}
# each GPU instance, and in it a compute instance, has a capability with a minor
MINORS = b"""config 1
monitor 2
gpu0/gi5/access 30
gpu0/gi5/ci0/access 31
gpu0/gi6/access 39
gpu0/gi6/ci0/access 40
"""
# the hook is newer than 1.20.0, of which the other recorded specs are
_WORDS = ("cdi", "generate", "--disable-hook=apply-cuda-memory-limits")


def mode_of(name: str) -> str:
    """The mode in which the record of one of ROOTS was made."""
    return "management" if name == "management" else "nvml"


def with_void_mount(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec that was recorded from a release before 1.20.2, with the mount that this one adds to each."""
    options = ["ro", "nosuid", "nodev", "bind"]
    void = {"hostPath": "/dev/null", "containerPath": VOID, "options": options}
    edits = spec.get("containerEdits", {})
    mounts = sorted(
        [*edits.get("mounts", []), void], key=lambda mount: _parents_first(mount["containerPath"])
    )
    return {**spec, "containerEdits": {**edits, "mounts": mounts}}


def _parents_first(path: str) -> tuple[int, str]:
    return path.count("/"), path


def tree(name: str) -> str:
    """The listing of one of ROOTS."""
    return (FOLDER / f"cdi-{name}-tree.txt").read_text()


def recorded(name: str) -> str:
    return _record(name).read_text()


def _record(name: str) -> Path:
    return FOLDER / f"cdi-{name}.yaml"


def said(name: str, root: Path) -> str:
    """What the program writes in such a root, made in the folder `root`.

    It becomes the record where `UPDATE` is 1. Raises Unavailable as `gotools.programs`.
    """
    program = gotools.programs() / "nvidia-ctk"
    _write_root(name, root)
    shutil.copy(program, root / "usr/bin")
    for library in re.findall(r"(/\S+) \(0x", run("ldd", program).stdout):
        shutil.copy(library, root / library.lstrip("/"))
    found = run("chroot", root, "/usr/bin/nvidia-ctk", *_WORDS, f"--mode={mode_of(name)}").stdout
    if os.environ.get(UPDATE) == "1":
        _record(name).write_text(found)
    return found


def _write_root(what: str, root: Path) -> None:
    """The listing as real files and devices; needs root, and a C compiler."""
    for name, words in entries(tree(what)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if words[0] == "dir":
            path.mkdir(parents=True, exist_ok=True)
        elif words[0] == "->":
            path.symlink_to(words[1])
        elif words[0] == "c":
            _make_device(path, *numbers(words))
        else:
            path.write_bytes(MINORS if path.name == "mig-minors" else b"")
            path.chmod(0o755)
    nvmllibrary.build(root / ROOTS[what])


def _make_device(path: Path, major: int, minor: int, mode: int, group: int) -> None:
    os.mknod(path, 0o020000, os.makedev(major, minor))
    path.chmod(mode)
    os.chown(path, 0, group)
