"""Real driver images: NVIDIA's open kernel modules, built in containers by `driverforge` itself.

It locks and judges them, too. What a build gives is cached by the image's own `inputs` digest: a change of
our code compiles again, and a second tier of one test run does not.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import Unavailable
from support import cache
from support.machines.engine import Engine, debian_base
from support.process import run

_TOP = Path(__file__).resolve().parents[3]
_MATRIX = _TOP / "tests/engine/real.yaml"
# seconds: both tiers of a run use one lock, and it names no package that is long gone
_LOCK_AGE = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to build: a driver branch for the newest kernel of a series whose verdict lets it be built."""

    os: str  # 'debian12'
    suite: str  # of the base image: 'bookworm'
    branch: str  # '535'
    series: str  # '6.1'

    def __str__(self) -> str:
        return f"{self.os}-{self.branch}-{self.series}"

    @property
    def glob(self) -> str:
        return f"{self.os}-amd64-{self.branch}.*-{self.series}.*"


BOOKWORM = Target(os="debian12", suite="bookworm", branch="535", series="6.1")
TRIXIE = Target(os="debian13", suite="trixie", branch="550", series="6.12")
# every run compiles one whole driver: the newer one, for the newer kernel
TARGETS = (TRIXIE, pytest.param(BOOKWORM, marks=pytest.mark.full(reason="compiles a second whole driver")))


@dataclass(frozen=True, slots=True, kw_only=True)
class RealImage:
    """A driver image that was built, and the modules out of it."""

    cell: str
    kernel: str
    driver: str
    modules: Path  # what /opt/lib/modules/RELEASE/open holds
    report: Mapping[str, Any]  # the cell's row of `driverforge build --json`


def build(engine: Engine, target: Target) -> RealImage:
    """Lock, plan and build; minutes of all processors where nothing is cached.

    Raises Unavailable where the mirror has no kernel that the branch builds for, CommandFailed with the
    program's own words.
    """
    base = ["--base", f"{target.os}={debian_base(engine, target.suite)}"]
    lock = _lock(target)
    given = ["--lock", str(lock), *base]
    plan = _driverforge(engine, "plan", "--select", target.glob, *given)
    rows = [row for row in plan["cells"] if row["verdict"] in ("build", "exists")]
    if not rows:
        why = [f"{row['cell']}: {row['verdict']}: {row['reason']}" for row in plan["cells"]]
        raise Unavailable(
            f"the mirror has no {target.series} kernel that driver {target.branch} builds for", details=why
        )
    chosen = rows[-1]

    def make(folder: Path) -> None:
        words = ["--select", chosen["cell"], *given, "--cache-dir", str(folder / "work")]
        [row] = _driverforge(engine, "build", *words)["cells"]
        (folder / "report.json").write_text(json.dumps(row))
        _copy_out(engine, row["reference"], folder / "modules")

    words = ["--plan", "--output", "nowhere", "--select", chosen["cell"], *given]
    [image] = _driverforge(engine, "generate", *words)["images"]
    entry = cache.cached("realimage", {"cell": chosen["cell"], "inputs": image["inputs"]}, make)
    [home] = (entry / "modules").iterdir()
    described = json.loads((home / "open/module-set.json").read_text())
    report = json.loads((entry / "report.json").read_text())
    return RealImage(
        cell=chosen["cell"],
        kernel=home.name,
        driver=described["driver"],
        modules=home / "open",
        report=report,
    )


def _copy_out(engine: Engine, reference: str, target: Path) -> None:
    container = engine.docker("create", "--network", "none", reference).stdout.strip()
    try:
        engine.docker("cp", f"{container}:/opt/lib/modules", target)
    finally:
        engine.docker("rm", container)


def _lock(target: Target) -> Path:
    folder = cache.root() / "realimage-lock"
    folder.mkdir(exist_ok=True)
    file = folder / f"{target}-{cache.digest(_MATRIX, _TOP / 'matrix.yaml')}.json"
    with cache.locked(file.with_suffix(".lock")):
        if not file.exists() or time.time() - file.stat().st_mtime > _LOCK_AGE:
            file.unlink(missing_ok=True)
            words = [
                "--matrix",
                str(_MATRIX),
                "--lock",
                str(file),
                "--select",
                target.glob,
                "--cache-dir",
                str(cache.root() / "discovery"),
            ]
            run(*_COMMAND, "lock", *words, env=_PACKAGES)
    return file


_COMMAND = (sys.executable, "-c", "from driverforge_build.cli import main; main()")
_PACKAGES = {"PYTHONPATH": os.pathsep.join(str(_TOP / name) for name in ("builder", "entrypoints"))}


def _driverforge(engine: Engine, *words: str) -> dict[str, Any]:
    done = run(*_COMMAND, *words, "--matrix", _MATRIX, "--json", env={**engine.environment(), **_PACKAGES})
    document: dict[str, Any] = json.loads(done.stdout)
    return document
