"""The operator's image, built by `driverforge` from the locked wheels."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix.programcells import OPERATOR, operator_images
from driverforge_core import __version__
from driverforge_core.errors import CommandFailed, Unavailable
from support import cache
from support.machines.builderbench import ROOT, BuilderBench, real_lock
from support.machines.engine import Engine
from support.process import run


def cell(arch: str) -> str:
    return f"{OPERATOR}-{__version__}-{arch}"


def locked(arch: str) -> Mapping[str, str]:
    """Its wheels: {name of the file: sha256}."""
    return dict(next(image.wheels for image in operator_images() if image.arch == arch))


def wheels(arch: str = "amd64") -> Path:
    """A folder with its wheels, by the project's own script.

    Raises Unavailable where no index gives them.
    """

    def make(folder: Path) -> None:
        try:
            run(ROOT / "hack/operator-wheels", arch, folder, env={"PYTHON": sys.executable})
        except CommandFailed as error:
            raise Unavailable("no Python index has the operator's wheels", details=error.details) from error

    return cache.cached("operator-wheels", locked(arch), make)


def build(engine: Engine, base: str, folder: Path, arch: str = "amd64") -> tuple[BuilderBench, str]:
    """Build it in `folder`; its name in the engine, and the bench that made it."""
    bench = BuilderBench(engine=engine, base=base, folder=folder, lock=folder / "lock.json")
    bench.lock.write_text(dump_lock(real_lock(arch=arch)))
    words = ("--select", cell(arch), "--operator-wheels", f"{arch}={wheels(arch)}")
    done = bench.driverforge("build", *words, "--network", engine.network, "--json")
    (built,) = json.loads(done.stdout)["cells"]
    assert (built["cell"], built["result"]) == (cell(arch), "built")
    return bench, built["reference"]
