"""What benchmarks share, made when the first one asks: engine, base image, lock, images. What hack/quickstart made is used again."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import images
from driverforge_core.cell import CellId
from driverforge_core.errors import CommandFailed, Unavailable
from report import Report
from support import engine
from support.engine import Engine


class Workshop:
    """`runs` is the number of samples that was asked for, 0 where each benchmark decides; `sizes` are those of the plan benchmark."""

    def __init__(self, *, work: Path, report: Report, stack: ExitStack, runs: int, sizes: tuple[int, int]) -> None:
        self.runs = runs
        self.sizes = sizes
        self.notes: list[str] = []
        self._work = work
        self._report = report
        self._stack = stack
        self._docker: Engine | None = None
        self._built: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Tell the person who waits what is measured now."""
        self._report.say(text)

    def note(self, text: str) -> None:
        """Keep something for below the table."""
        self.notes.append(text)

    def docker(self) -> Engine:
        """An engine with BuildKit. Raises Unavailable."""
        if self._docker is None:
            self._docker = engine.find_or_start()
            if self._docker.owned:
                self._stack.callback(self._docker.stop)
        return self._docker

    def kernel_cells(self, count: int) -> list[CellId]:
        """Cells that a plan lets be built, oldest kernel first as in hack/quickstart. Raises Unavailable when there are fewer."""
        rows = self._plan()
        cells = [cell for row in rows if row["verdict"] in ("build", "exists") and (cell := CellId.parse(row["cell"])).kernel is not None]
        if len(cells) < count:
            raise Unavailable(
                f"{count} kernels with the verdict `build` are needed, there are {len(cells)}",
                details=[f"{row['cell']}: {row['verdict']}, {row['reason']}" for row in rows],
            )
        return cells[:count]

    def image(self, cell: CellId) -> str:
        """The reference of a cell's image in the engine, built unless it is there."""
        if str(cell) not in self._built:
            row = images.build(self._site(), self._report, str(cell))[str(cell)]
            if "reference" not in row or row.get("error"):
                raise CommandFailed(f"{cell} was not built", details=[json.dumps(row, indent=1)])
            self._built[str(cell)] = str(row["reference"])
        return self._built[str(cell)]

    def _plan(self) -> list[dict[str, str]]:
        site = self._site()
        if not site.lock.exists():
            images.lock(site, self._report)
        words = ("plan", "--matrix", str(images.MATRIX), "--lock", str(site.lock), "--select", images.SELECT, "--json")
        rows: list[dict[str, str]] = json.loads(images.driverforge(site, self._report, *words, show=False))["cells"]
        return rows

    def _site(self) -> images.Site:
        docker = self.docker()
        self._work.mkdir(parents=True, exist_ok=True)
        environ = {**os.environ, **docker.environment()}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        program = Path(sys.executable).with_name("driverforge")
        return images.Site(work=self._work, driverforge=program, base=engine.debian_base(docker), registry="", environ=environ)
