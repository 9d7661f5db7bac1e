"""Run test tiers one after another, install what they need, and end with one table. `hack/test` starts it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import sh

TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "tests"))

from driverforge_core.errors import DriverforgeError  # noqa: E402
from support import cache, gobuild, process, tools  # noqa: E402
from support.machines import accelerator  # noqa: E402
from support.oldpython import ONLY_NEWER  # noqa: E402
from support.tiertable import Row, table  # noqa: E402
from testrun.arguments import TIERS, arguments  # noqa: E402

SPREAD = ["-n", "2"]
WAITS = ["-n", "4"]  # half of its time it waits for programs and daemons that it starts
# a module's tests share what is dear (an image, a booted node) and stay with one worker; modules begin in the
# order in which the tier collects them
BY_MODULE = ["--dist", "loadfile", "--no-loadscope-reorder"]
WORKERS = {
    "unit": SPREAD,
    "tree": WAITS,
    "ns": SPREAD,
    "engine": [*WAITS, *BY_MODULE],
    "vm": [*SPREAD, *BY_MODULE],
    "cluster": ["-n", "3", *BY_MODULE],  # each worker has an API server of its own
}
# tiers whose daemons, kernels and clusters others wrote: what fails there is tried once more, alone, and
# named if it passes then
TRIED_AGAIN = ("engine", "vm", "cluster")
COMPILED_TIERS = ("engine", "cluster")  # use programs that are compiled from Go modules
FEW = 4  # more failures in one tier are no accident
# what a tier may take on two processors without KVM and with an empty cache, in seconds: the table names who
# broke it
BUDGETS = {
    "lint": 40.0,
    "unit": 90.0,
    "unit 3.10": 15.0,
    "tree": 300.0,
    "tree 3.10": 25.0,
    "ns": 20.0,
    "engine": 770.0,
    "vm": 380.0,
    "cluster": 370.0,
}
OLD_PYTHON = "3.10"  # the oldest that the driver half runs on; Ubuntu 22.04 has it
OLD_PYTHON_TIERS = ("unit", "tree")
OLD_PYTHON_NEEDS = ("hypothesis>=6.120", "pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6")
REPORTS = TOP / ".work" / "test"
UNUSED_DAYS = 30.0
NOTHING: Mapping[str, str] = MappingProxyType({})


def main() -> int:
    args, extra = arguments()
    os.chdir(TOP)
    REPORTS.mkdir(parents=True, exist_ok=True)
    if args.full:
        os.environ[gobuild.FULL] = "1"
    chosen = [tier for tier in TIERS if tier in args.tiers] or list(TIERS)
    _provide(chosen)
    rows: list[Row] = []
    # whoever picks tests waits for what these need, and for nothing else
    with _compiling(() if extra else chosen):
        for tier in chosen:
            print(f"\n── {tier} " + "─" * 60, flush=True)
            if tier == "lint":
                found = [_lint()]
            elif tier in OLD_PYTHON_TIERS:
                found = _two_pythons(tier, extra, full=args.full)
            else:
                found = [_tier(tier, extra)]
            if not args.full:
                for row in found:
                    row.budget = BUDGETS[row.tier]
            rows += found
    for entry in cache.prune(days=UNUSED_DAYS):
        print(f"removed from the cache, unused for {UNUSED_DAYS:.0f} days: {entry}")
    print()
    for line in table(rows):
        print(line)
    return int(any(row.failed for row in rows))


def _provide(tiers: Sequence[str]) -> None:
    """Install missing packages; where that cannot be, the tests that need them say so themselves."""
    if not (gone := tools.missing(tiers)):
        return
    packages = sorted(set(gone.values()))
    print(f"missing here: {', '.join(gone)}")
    if why := tools.why_not_installable():
        print(f"not installed ({why}): {' '.join(packages)}")
        return
    print(f"installing {' '.join(packages)}", flush=True)
    try:
        tools.install(packages)
    except DriverforgeError as error:
        print(error.render())


@contextmanager
def _compiling(tiers: Sequence[str]) -> Iterator[None]:
    """Have the Go programs of these tiers made beside whatever runs, at the lowest priority."""
    if not set(COMPILED_TIERS) & set(tiers) or process.missing("go", "setpriv", "nice"):
        yield
        return
    words = ["nice", "-n", "19", sys.executable, "-m", "support.upstream.goprograms"]
    log = REPORTS / "compile.log"
    log.unlink(missing_ok=True)
    path = ":".join(str(TOP / folder) for folder in ("tests", "entrypoints"))
    child = process.start(words, log=log, env={"PYTHONPATH": path})
    # where the kernel groups processes by session, each session has an equal share, however nice it is
    with suppress(OSError):
        Path(f"/proc/{child.pid}/autogroup").write_text("19")
    try:
        yield
    finally:
        # the compilers too: the child leads a session of its own
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _tier(tier: str, extra: Sequence[str]) -> Row:
    row = _pytest(tier, Path(sys.executable), extra)
    if tier not in TRIED_AGAIN or not 0 < len(row.failures) <= FEW:
        return row
    print(f"{tier}: once more, what failed", flush=True)
    again = _pytest(
        tier,
        Path(sys.executable),
        ["--last-failed", "--last-failed-no-failures=none", *extra],
        label=f"{tier} again",
    )
    row.repeated(again)
    return row


def _two_pythons(tier: str, extra: Sequence[str], *, full: bool) -> list[Row]:
    """A tier whose tests of the driver half run on the oldest Python, where there is one.

    The others run on this one. `--full` runs all of them here, too.
    """
    old, why = _old_python()
    label = f"{tier} {OLD_PYTHON}"
    if old is None:
        here = _pytest(tier, Path(sys.executable), extra)
        return [here, Row(tier=label, skipped=Counter([why]))]
    split = {} if full else {ONLY_NEWER: "1"}
    here = _pytest(tier, Path(sys.executable), extra, environ=split)
    return [here, _pytest(tier, old, extra, label=label)]


def _pytest(
    tier: str, python: Path, extra: Sequence[str], *, label: str = "", environ: Mapping[str, str] = NOTHING
) -> Row:
    words = WORKERS.get(tier, [])
    row = Row(tier=label or tier, workers=int(words[1]) if words else 1)
    report = REPORTS / f"{row.tier.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    status = _run(
        str(python),
        "-m",
        "pytest",
        "-q",
        f"tests/{tier}",
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit2",
        *words,
        *extra,
        environ=environ,
    )
    row.seconds = time.monotonic() - began
    if report.exists():
        row.read(report)
    if tier == "vm" and (found := _accelerator()):
        row.notes.append(f"guests: {found}")
    if status == 5 and not row.passed:  # pytest: no tests were collected
        row.skipped["no test here"] += 1
    elif status != 0 and not row.failed:
        row.failed = 1
        print(f"{row.tier}: pytest ended with {status}")
    return row


def _old_python() -> tuple[Path | None, str]:
    """The driver half's oldest interpreter with what its tests need, else None and why."""
    folder = TOP / ".venv" / OLD_PYTHON
    words = " ".join(f"'{name}'" for name in OLD_PYTHON_NEEDS)
    find = f'. "{TOP}/hack/lib/python.sh"; found=$(exact_python {OLD_PYTHON}) || exit 69'
    script = f'{find}; environment "$found" "{folder}" "{TOP}/pyproject.toml" {words}'
    status = _run("sh", "-ec", script)
    if status == 0:
        return folder / "bin/python", ""
    if status == 69:
        return None, f"no Python {OLD_PYTHON} here"
    return None, f"no environment for Python {OLD_PYTHON} could be made"


def _accelerator() -> str:
    """What this run's guests ran on; '' where nothing has asked for a guest."""
    try:
        return str(accelerator.known() or "")
    except DriverforgeError:
        return ""


def _lint() -> Row:
    """Each checker counts as one test."""
    row = Row(tier="lint")
    began = time.monotonic()
    here = Path(sys.executable).parent
    scripts = [
        str(path)
        for path in _tracked()
        if path.is_file() and path.suffix != ".j2" and path.read_bytes().startswith(b"#!/bin/sh")
    ]
    dockerfiles = sorted(str(path) for path in (TOP / "tests/golden").glob("*/Dockerfile"))
    checks = {
        "ruff": ["check", "."],
        "ruff format": ["--check", "."],
        "mypy": [],
        "lint-imports": [],
        "hadolint": ["--config", ".hadolint.yaml", *dockerfiles],
        "shellcheck": ["--shell=sh", "--severity=warning", *scripts],
    }
    for name, words in checks.items():
        program, *verb = name.split()
        if not (here / program).exists():
            row.skipped[f"{program} is not installed"] += 1
            continue
        status = _run(str(here / program), *verb, *words)
        print(f"{name}: {'ok' if status == 0 else f'exit status {status}'}", flush=True)
        row.passed += status == 0
        row.failed += status != 0
    row.seconds = time.monotonic() - began
    return row


def _tracked() -> list[Path]:
    listed = sh.git("ls-files", _cwd=str(TOP), _tty_out=False)
    return [TOP / name for name in str(listed).splitlines()]


def _run(program: str, *words: str, environ: Mapping[str, str] = NOTHING) -> int:
    """Run a program on this terminal; returns its exit status."""
    try:
        sh.Command(program)(*words, _fg=True, _env={**os.environ, **environ})
    except sh.ErrorReturnCode as error:
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
