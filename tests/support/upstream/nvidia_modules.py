"""NVIDIA's real open kernel modules, compiled by their own Makefile from Debian's source package.

They are cached by all that went in. This is the plain way, without any code of ours: the oracle that our own
builds are compared with.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from driverforge_core.errors import CommandFailed
from support import aptfetch, cache
from support.machines.kernels import Kernel
from support.process import require, run

PACKAGE = "nvidia-open-kernel-dkms"
MODULES = ("nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko", "nvidia-drm.ko", "nvidia-peermem.ko")


def package(branch: str) -> aptfetch.Package:
    """The newest package of a driver branch ('535')."""
    return aptfetch.archive().newest(PACKAGE, satisfies=lambda version: version.startswith(f"{branch}."))


def source(branch: str) -> Path:
    """The unpacked source tree of a branch: usr/src/nvidia-current-VERSION or so."""
    return next((aptfetch.archive().unpacked([package(branch)]) / "usr/src").iterdir())


def build(branch: str, kernel: Kernel) -> Path:
    """A cached folder with the five modules, stripped.

    It takes minutes of all processors when it is not there yet.
    """
    require("make", "strip", kernel.compiler)
    chosen = package(branch)
    compiler = run(kernel.compiler, "--version").stdout.splitlines()[0]
    inputs = {"driver": str(chosen), "kernel": kernel.release, "headers": kernel.version, "cc": compiler}
    return cache.cached("nvidia", inputs, lambda folder: _compile(source(branch), kernel, folder))


def version(branch: str) -> str:
    """The driver's version: '535.261.03'."""
    return package(branch).version.partition("-")[0]


def _compile(tree: Path, kernel: Kernel, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="driverforge-nvidia-", dir="/var/tmp") as name:
        work = Path(name) / "source"
        shutil.copytree(tree, work, symlinks=True)
        jobs = os.cpu_count() or 1
        done = run(
            "make",
            f"-j{jobs}",
            f"SYSSRC={kernel.source}",
            f"SYSOUT={kernel.build}",
            "modules",
            cwd=work,
            check=False,
        )
        if done.status != 0:
            errors = [
                line
                for line in (done.stdout + done.stderr).splitlines()
                if "error:" in line or "Error " in line
            ]
            raise CommandFailed(
                f"{tree.name} does not compile for {kernel.release}",
                details=[*errors[:20], *done.stderr.splitlines()[-20:]],
            )
        for module in MODULES:
            run("strip", "--strip-debug", work / module)
            shutil.copy(work / module, target)
