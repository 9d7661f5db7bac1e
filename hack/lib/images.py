"""The builder's half of the quickstart: lock, plan, choose a kernel by its verdict, build two images, push them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sh
from driverforge_core.cell import CellId
from driverforge_core.errors import CommandFailed, Unavailable
from report import Report

SELECT = "debian12-amd64-535.261.03-*"
_HERE = Path(__file__).resolve().parent
MATRIX = _HERE.parent / "quickstart.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where this run works: folders, the program, the base image, the registry."""

    work: Path
    driverforge: Path
    base: str
    registry: str
    environ: dict[str, str]

    @property
    def lock(self) -> Path:
        return self.work / "driverforge.lock.json"


def driverforge(site: Site, report: Report, *words: str, statuses: Sequence[int] = (0,), show: bool = True) -> str:
    """Run `driverforge` as a user would, its output shown as it comes; returns it."""
    report.command("driverforge", *words)
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        if show:
            report.say(line)

    process = sh.Command(str(site.driverforge))(
        *words, _out=take, _err=lambda line: report.say(line), _ok_code=list(statuses), _env=site.environ, _cwd=str(site.work), _tty_out=False
    )
    process.wait()
    return "".join(lines)


def lock(site: Site, report: Report) -> None:
    driverforge(site, report, "lock", "--matrix", str(MATRIX), "--lock", str(site.lock), "--select", SELECT)


def choose(site: Site, report: Report) -> tuple[str, str]:
    """The ids of the JIT cell and of one precompiled cell whose verdict lets it be built: the oldest such kernel, never simply the newest."""
    common = ("--matrix", str(MATRIX), "--lock", str(site.lock), "--select", SELECT)
    driverforge(site, report, "plan", *common)
    plan = json.loads(driverforge(site, report, "plan", *common, "--json", show=False))
    buildable = [row["cell"] for row in plan["cells"] if row["verdict"] in ("build", "exists")]
    kernels = [cell for cell in buildable if CellId.parse(cell).kernel is not None]
    if not kernels:
        raise Unavailable(
            "no kernel of Debian 12 has the verdict `build` today",
            details=[f"{row['cell']}: {row['verdict']} {row['reason']}" for row in plan["cells"]],
            resolution=f"driverforge explain CELL says why; other cells: driverforge plan --matrix {MATRIX}",
        )
    jit = next(cell for cell in buildable if CellId.parse(cell).kernel is None)
    return jit, kernels[0]


def build(site: Site, report: Report, *cells: str) -> dict[str, dict[str, object]]:
    """Build cells; returns the report's row of each."""
    select = [word for cell in cells for word in ("--select", cell)]
    words = ["--matrix", str(MATRIX), "--lock", str(site.lock), *select, "--base", f"debian12={site.base}", "--json"]
    text = driverforge(site, report, "build", *words, show=False)
    rows = {row["cell"]: row for row in json.loads(text)["cells"]}
    if missing := [cell for cell in cells if cell not in rows]:
        raise CommandFailed("driverforge build did not report every cell", details=missing)
    return rows


def push(site: Site, report: Report, *cells: str) -> None:
    select = [word for cell in cells for word in ("--select", cell)]
    words = ["--matrix", str(MATRIX), "--lock", str(site.lock), *select, "--base", f"debian12={site.base}", "--registry", site.registry]
    driverforge(site, report, "push", *words)
