"""The builder's half of the quickstart.

It locks, plans, chooses a kernel by its verdict, builds two images and pushes them.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sh

from driverforge_core.cell import CellId
from driverforge_core.errors import CommandFailed, Unavailable
from quickstart.report import Report
from support.machines.engine import Engine

SELECT = "debian12-amd64-535.261.03-*"
MATRIX = Path(__file__).resolve().parents[2] / "quickstart.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where this run works.

    `base` (an image) and `registry` (HOST:PORT/PATH) are empty where there is no `engine`.
    """

    work: Path
    driverforge: Path
    environ: dict[str, str]
    base: str = ""
    registry: str = ""
    engine: Engine | None = None

    @property
    def lock_file(self) -> Path:
        return self.work / "driverforge.lock.json"


def driverforge(site: Site, report: Report, *words: str, show: bool = True) -> str:
    """Run `driverforge` as a user would; returns its output.

    The output is shown as it comes unless told otherwise.
    """
    report.command("driverforge", *words)
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        if show:
            report.say(line)

    running = None
    try:
        with later(signal.SIGTERM):
            # what it started is lost to whoever interrupts sh here
            running = sh.Command(str(site.driverforge))(
                *words,
                _out=take,
                _err=report.say,
                _env=site.environ,
                _cwd=str(site.work),
                _tty_out=False,
                _bg=True,
                _bg_exc=False,
            )
        running.wait()
    except sh.ErrorReturnCode as error:
        raise CommandFailed(
            f"driverforge {words[0]} ended with {error.exit_code}", resolution="its own message is above"
        ) from None
    except BaseException:
        # the quickstart is told to end; a build would go on for minutes
        if running is not None:
            running.terminate()
        raise
    return "".join(lines)


@contextmanager
def later(number: signal.Signals) -> Iterator[None]:
    """A signal that comes inside is delivered at the end of it."""
    came: list[int] = []
    before = signal.signal(number, lambda received, _: came.append(received))
    try:
        yield
    finally:
        signal.signal(number, before)
        if came:
            signal.raise_signal(number)


def lock(site: Site, report: Report) -> None:
    driverforge(site, report, "lock", *_common(site))


def choose(site: Site, report: Report) -> tuple[str, str]:
    """The ids of the JIT cell and of the newest kernel's cell *that its verdict lets be built*.

    Newer kernels may be blocked.
    """
    published = ("--base", f"debian12={site.base}", "--registry", site.registry) if site.base else ()
    words = (*_common(site), *published)
    driverforge(site, report, "plan", *words)
    plan = json.loads(driverforge(site, report, "plan", *words, "--json", show=False))
    buildable = [row["cell"] for row in plan["cells"] if row["verdict"] in ("build", "exists")]
    kernels = [cell for cell in buildable if CellId.parse(cell).kernel is not None]
    if not kernels:
        raise Unavailable(
            "no kernel of Debian 12 has the verdict `build` today",
            details=[f"{row['cell']}: {row['verdict']}: {row['reason']}" for row in plan["cells"]],
            resolution="driverforge explain CELL says why, with the same --matrix and --lock",
        )
    return next(cell for cell in buildable if CellId.parse(cell).kernel is None), kernels[-1]


def build(site: Site, report: Report, *cells: str) -> None:
    """Build cells; what the registry has, made from the same inputs, is not built again."""
    words = (
        "--base",
        f"debian12={site.base}",
        "--registry",
        site.registry,
        "--cache-dir",
        str(site.work / "build"),
    )
    driverforge(site, report, "build", *_common(site, *cells), *words)


def push(site: Site, report: Report, *cells: str) -> dict[str, str]:
    """Push cells; returns the immutable reference of each."""
    words = (*_common(site, *cells), "--base", f"debian12={site.base}", "--registry", site.registry, "--json")
    answer = json.loads(driverforge(site, report, "push", *words, show=False))
    for image in answer["images"]:
        report.say(f"{image['cell']}: {image['digest']}\n  {image['reference']}\n  {image['alias']}")
    return {image["cell"]: str(image["reference"]) for image in answer["images"]}


def _common(site: Site, *cells: str) -> tuple[str, ...]:
    select = [word for cell in cells or (SELECT,) for word in ("--select", cell)]
    return ("--matrix", str(MATRIX), "--lock", str(site.lock_file), *select)
