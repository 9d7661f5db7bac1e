"""The operator's image, built by `driverforge` from the locked wheels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix.programs import OPERATOR, operator_images
from driverforge_core import __version__
from driverforge_core.errors import CommandFailed, Unavailable
from support import cache
from support.machines.builderbench import ROOT, BuilderBench, real_lock
from support.machines.engine import Engine
from support.process import run

CELL = f"{OPERATOR}-{__version__}-amd64"
WHEELS = next(image.wheels for image in operator_images() if image.arch == "amd64")


def wheels() -> Path:
    """A folder with the wheels of amd64, by the project's own script.

    Raises Unavailable where no index gives them.
    """

    def make(folder: Path) -> None:
        try:
            run(ROOT / "hack/operator-wheels", "amd64", folder, env={"PYTHON": sys.executable})
        except CommandFailed as error:
            raise Unavailable("no Python index has the operator's wheels", details=error.details) from error

    return cache.cached("operator-wheels", dict(WHEELS), make)


def build(engine: Engine, base: str, folder: Path) -> tuple[BuilderBench, str]:
    """Build it in `folder`; its name in the engine, and the bench that made it."""
    bench = BuilderBench(engine=engine, base=base, folder=folder, lock=folder / "lock.json")
    bench.lock.write_text(dump_lock(real_lock()))
    words = ("--select", CELL, "--operator-wheels", f"amd64={wheels()}", "--network", engine.network)
    (cell,) = json.loads(bench.driverforge("build", *words, "--json").stdout)["cells"]
    assert (cell["cell"], cell["result"]) == (CELL, "built")
    return bench, cell["reference"]
