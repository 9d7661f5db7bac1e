"""What benchmarks share: engine, base image, lock, images.

Each is made when the first benchmark asks for it. What hack/quickstart made is used again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from driverforge_build.lock.file import dump_lock, load_lock
from driverforge_core.cell import CellId
from driverforge_core.errors import CommandFailed, Unavailable
from quickstart import images
from quickstart.report import Report
from support.machines import engine
from support.machines.engine import Engine
from support.samples import tinydriver


class Workshop:
    """The parts of one run.

    `runs` is the number of samples that was asked for, 0 where each benchmark decides. `sizes` are those of
    the plan benchmark. With `smallest` each benchmark takes the smallest input that goes the whole way: the
    images are those of a driver in miniature.
    """

    def __init__(
        self,
        *,
        work: Path,
        report: Report,
        stack: ExitStack,
        runs: int,
        sizes: tuple[int, int],
        smallest: bool = False,
    ) -> None:
        self.runs = runs
        self.sizes = sizes
        self.smallest = smallest
        self.notes: list[str] = []
        self._work = work
        self._report = report
        self._stack = stack
        self._docker: Engine | None = None
        self._built: dict[str, str] = {}
        self._made: images.Site | None = None
        self._planned: list[dict[str, str]] = []
        self._locked: Path | None = None
        self._mirrors: tuple[str, ...] = ()

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
        """Cells of the newest kernels that a plan lets be built, newest first as in hack/quickstart.

        Raises Unavailable if there are fewer.
        """
        cells = [cell for cell in self._buildable() if cell.kernel is not None]
        if len(cells) < count:
            raise Unavailable(
                f"{count} kernels with the verdict `build` are needed, there are {len(cells)}",
                details=[f"{row['cell']}: {row['verdict']}, {row['reason']}" for row in self._plan()],
            )
        return cells[: -count - 1 : -1]

    def jit_cell(self) -> CellId:
        """The cell of the image that compiles."""
        return next(cell for cell in self._buildable() if cell.kernel is None)

    def generate(self, cell: CellId, folder: Path) -> Path:
        """Write the build context of a cell; returns its folder."""
        self._driverforge(
            "generate", [cell], "--base", f"debian12={self._site().base}", "--output", str(folder)
        )
        return folder / str(cell)

    def _buildable(self) -> list[CellId]:
        return [CellId.parse(row["cell"]) for row in self._plan() if row["verdict"] in ("build", "exists")]

    def built(self, *cells: CellId) -> list[str]:
        """The references of cells' images in the engine. Images that are missing are built.

        They are built in one build, so that they share layers.
        """
        if any(str(cell) not in self._built for cell in cells):
            # an engine of our own has no way out of its bridge, where another one's bridge is all there is
            network = ("--network", "host") if self.docker().network == "host" else ()
            words = (
                "--base",
                f"debian12={self._site().base}",
                "--cache-dir",
                str(self._work / "build"),
                *(self._mirrors or network),
                "--json",
            )
            rows = json.loads(self._driverforge("build", cells, *words))["cells"]
            self._built |= {row["cell"]: row["reference"] for row in rows if row.get("reference")}
            if missing := [str(cell) for cell in cells if str(cell) not in self._built]:
                raise CommandFailed(f"not built: {', '.join(missing)}", details=[json.dumps(rows, indent=1)])
        return [self._built[str(cell)] for cell in cells]

    def copy_out(self, cell: CellId, path: str, target: Path) -> Path:
        """Copy a folder out of a cell's image; returns where it is now."""
        docker = self.docker()
        container = docker.docker("create", *self.built(cell)).stdout.strip()
        try:
            docker.docker("cp", f"{container}:{path}", target)
        finally:
            docker.docker("rm", container)
        return target / Path(path).name

    def _plan(self) -> list[dict[str, str]]:
        if not self._planned:
            self._planned = json.loads(self._driverforge("plan", [images.SELECT], "--json"))["cells"]
        return self._planned

    def _driverforge(self, command: str, cells: Iterable[CellId | str], *words: str) -> str:
        site, lock = self._site(), self._lock()
        select = [word for cell in cells for word in ("--select", str(cell))]
        common = ("--matrix", str(images.MATRIX), "--lock", str(lock), *select)
        return images.driverforge(site, self._report, command, *common, *words, show=False)

    def _lock(self) -> Path:
        if self._locked is None:
            site = self._site()
            if not site.lock_file.exists():
                images.lock(site, self._report)
            self._locked = self._shrunk(site) if self.smallest else site.lock_file
        return self._locked

    def _shrunk(self, site: images.Site) -> Path:
        """A lock in which NVIDIA's packages are a driver in miniature, which a site's mirror serves."""
        folder = self._work / "smallest"
        # of an earlier checkout, whose sources may be others
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "mirror").mkdir(parents=True, exist_ok=True)
        serving = self._stack.enter_context(tinydriver.site(folder / "mirror", folder / "site"))
        places = {tinydriver.SUITE: serving.mirror, tinydriver.PLAIN_SUITE: tinydriver.PLAIN_MIRROR}
        mirrors = [word for suite, url in places.items() for word in ("--mirror", f"debian12/{suite}={url}")]
        self._mirrors = (*mirrors, "--ca", str(serving.authorities), "--network", "host")
        site.environ["HTTP_PROXY"] = serving.proxy
        lock = folder / "driverforge.lock.json"
        pins = tinydriver.tiny_lock(load_lock(site.lock_file), folder / "mirror", salt="smallest")
        lock.write_text(dump_lock(pins))
        return lock

    def _site(self) -> images.Site:
        if self._made is None:
            docker = self.docker()
            self._work.mkdir(parents=True, exist_ok=True)
            environ = {**os.environ, **docker.environment()}
            environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
            program = Path(sys.executable).with_name("driverforge")
            base = engine.debian_base(docker)
            self._made = images.Site(
                work=self._work, driverforge=program, base=base, registry="", environ=environ
            )
        return self._made
