"""The mutation run: which changes of the code that decides does no test notice? `hack/mutants` starts it."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "entrypoints"))

from driverforge_core.errors import (  # noqa: E402
    CommandFailed,
    DriverforgeError,
    InputError,
    TemporaryFailure,
)
from mutation.equivalent import EQUIVALENT, marked, noticed, problems  # noqa: E402
from mutation.listed import FILES, OPERATORS  # noqa: E402
from mutation.operators import mutants  # noqa: E402
from mutation.result import (  # noqa: E402
    Fate,
    Mutant,
    Result,
    Tally,
    absent,
    changed_lines,
    chosen,
    document,
    sampled,
    survivors,
    table,
)

WORK = TOP / ".work" / "mutants"
RESULTS = WORK / "results"
# what a mutant's tests may take: so many times what they take without a mutation, and so many seconds more
LIMIT_FACTOR, LIMIT_MORE = 5.0, 5.0
BASELINE_LIMIT = 600.0
# what a result depends on beside the file's own tests
INPUTS = ("builder/", "entrypoints/", "tests/support/", "tests/conftest.py", "tests/unit/conftest.py")
# a text with which no test module that imports the file can be green
BROKEN = 'raise RuntimeError("a mutation run looks whether the tests import this file")\n'
GREEN = 0
NO_TESTS = (4, 5)  # pytest: misused, nothing collected


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one run of tests. `status` is pytest's exit status, None at the time limit."""

    status: int | None
    seconds: float
    said: str


class Runner:
    """A warm interpreter over a copy of the checkout of its own."""

    def __init__(self, number: int, files: Sequence[str], scratch: Path) -> None:
        self.home = WORK / f"copy-{number}"
        self.log = WORK / f"copy-{number}.log"
        _copy(files, self.home)
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(TOP / "hack/lib/mutation/warm.py"),
                str(self.log),
                str(scratch / str(number)),
            ],
            cwd=self.home,
            env=_environment(self.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def warm(self, tests: Sequence[str]) -> None:
        """Import what these tests need from others. Raises CommandFailed where they cannot be collected."""
        if self._ask({"warm": list(tests)}).status != GREEN:
            raise CommandFailed("pytest cannot collect the tests", details=self.tail())

    def run(self, tests: Sequence[str], *, limit: float, file: str = "", text: str | None = None) -> Answer:
        """Run the tests, with `text` in `file` while they run."""
        request: dict[str, Any] = {"tests": list(tests), "limit": limit, "file": file}
        return self._ask(request if text is None else {**request, "text": text})

    def tail(self) -> list[str]:
        """The last lines that pytest wrote, and where the rest is."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [*lines[-20:], f"all of it: {self.log}"]

    def close(self) -> None:
        """End the interpreter, and with it the tests that it runs."""
        with suppress(OSError):
            self._pipe(self._process.stdin).close()
        self._process.wait()

    def _ask(self, request: dict[str, Any]) -> Answer:
        answer = ""
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self._pipe(self._process.stdin), flush=True)
            answer = self._pipe(self._process.stdout).readline()
        if not answer:
            raise CommandFailed("the interpreter that runs the tests ended", details=self.tail())
        return Answer(**json.loads(answer))

    def _pipe(self, pipe: Any) -> TextIO:
        assert pipe is not None
        return pipe  # type: ignore[no-any-return]


# the runners that nobody uses at the moment
Idle = queue.SimpleQueue[Runner]


def main() -> int:
    args = _arguments()
    try:
        return _main(args)
    except DriverforgeError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one was", file=sys.stderr)
        return 128 + signal.SIGINT


def _main(args: argparse.Namespace) -> int:
    tree = _tree()
    if missing := absent(FILES, tree):
        raise InputError(
            "the list of files to mutate names files that are not there",
            details=missing,
            resolution="correct FILES in hack/lib/mutation/listed.py",
        )
    files, unknown = chosen(args.files, FILES)
    if unknown:
        raise InputError(
            "no such file to mutate", details=unknown, resolution="hack/mutants --list shows them"
        )
    if args.list:
        _list(files)
        return 0
    changed = _changed_since(args.since) if args.since else None
    every = {file: _mutants(file) for file in files}
    _check_equivalent(line for file, found in every.items() for line in problems(EQUIVALENT, file, found))
    planned = every if changed is None else _within(every, changed)
    if args.sample:
        planned = sampled(planned, args.sample)
    if not planned:
        print(f"no line of the files that are mutated has changed since {args.since}")
        return 0
    found = _run(planned, tree)
    tallies = [marked(EQUIVALENT, tally) for tally in found]
    print()
    for line in (*table(tallies), "", *survivors(tallies)):
        print(line)
    if args.json:
        args.json.write_text(json.dumps(document(tallies), indent=1) + "\n")
    _check_equivalent(line for tally in found for line in noticed(EQUIVALENT, tally))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/mutants",
        description="Change the code that decides, one small change at a time: do its tests notice?",
        epilog="Exit status: 0 when all mutants were tried, survivors or not.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a file of the list, or the end of its path")
    parser.add_argument("--list", action="store_true", help="the files, their tests and the operators")
    parser.add_argument(
        "--since", metavar="REV", help="only the lines that have changed since this commit (--since=HEAD)"
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only N of them, the same ones while the sources are the same"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every mutant and its fate there")
    parser.add_argument("--again", action="store_true", help="forget the results of earlier runs")
    args = parser.parse_args()
    if args.again:
        shutil.rmtree(RESULTS, ignore_errors=True)
    return args


def _list(files: Sequence[str]) -> None:
    for file in files:
        print(file)
        for test in FILES[file]:
            print(f"    {test}")
    print("operators")
    for operator in OPERATORS:
        print(f"    {operator}")


def _mutants(file: str) -> list[Mutant]:
    return list(mutants(file, (TOP / file).read_text(encoding="utf-8"), OPERATORS))


def _within(every: dict[str, list[Mutant]], changed: dict[str, set[int]]) -> dict[str, list[Mutant]]:
    """The mutants of the lines that have changed, without the files that have none."""
    kept = {
        file: [one for one in found if one.line in changed.get(file, ())] for file, found in every.items()
    }
    return {file: found for file, found in kept.items() if found}


def _check_equivalent(wrong: Iterable[str]) -> None:
    """Raises InputError for an entry of the equivalent mutants that is not, or no longer, true."""
    if details := list(wrong):
        raise InputError(
            "the list of equivalent mutants is not true",
            details=details,
            resolution="correct EQUIVALENT in hack/lib/mutation/equivalent.py",
        )


# --- running


def _run(planned: dict[str, list[Mutant]], tree: Sequence[str]) -> list[Tally]:
    """Every mutant of every file, on all processors."""
    processors = len(os.sched_getaffinity(0))
    with _alone(), tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        runners = [Runner(number, tree, Path(scratch)) for number in range(processors)]
        pool = ThreadPoolExecutor(processors)
        try:
            return _tallies(runners, pool, planned, tree)
        finally:
            # in this order: a run that is interrupted does not wait for tests
            pool.shutdown(wait=False, cancel_futures=True)
            for runner in runners:
                runner.close()


def _tallies(
    runners: Sequence[Runner], pool: ThreadPoolExecutor, planned: dict[str, list[Mutant]], tree: Sequence[str]
) -> list[Tally]:
    every = list(dict.fromkeys(test for file in planned for test in FILES[file]))
    idle: Idle = queue.SimpleQueue()
    for runner, _ in zip(runners, pool.map(lambda runner: runner.warm(every), runners), strict=True):
        idle.put(runner)
    _say(f"the tests of {len(planned)} files without a mutation")
    times = list(pool.map(partial(_baseline, idle), planned))
    tallies = []
    for (file, found), baseline in zip(planned.items(), times, strict=True):
        results = _Results(file, tree)
        left = sum(mutant.key not in results.known for mutant in found)
        _say(f"{file}: {left} of {len(found)} mutants to try, its tests take {baseline:.1f} s")
        limit = LIMIT_FACTOR * baseline + LIMIT_MORE
        done = tuple(pool.map(partial(_tried, idle, results, limit), found))
        tallies.append(Tally(file=file, baseline=baseline, results=done))
    return tallies


@contextmanager
def _lent(idle: Idle) -> Iterator[Runner]:
    runner = idle.get()
    try:
        yield runner
    finally:
        idle.put(runner)


def _baseline(idle: Idle, file: str) -> float:
    """Seconds that a file's tests take without a mutation.

    Raises CommandFailed where they are not green, or do not import the file.
    """
    with _lent(idle) as runner:
        # the first time writes byte code, the second one counts
        _green(runner, file)
        seconds = _green(runner, file)
        if runner.run(FILES[file], limit=BASELINE_LIMIT, file=file, text=BROKEN).status == GREEN:
            raise CommandFailed(
                f"the tests of {file} do not import it",
                details=FILES[file],
                resolution="correct its tests in hack/lib/mutation/listed.py",
            )
    return seconds


def _green(runner: Runner, file: str) -> float:
    answer = runner.run(FILES[file], limit=BASELINE_LIMIT)
    if answer.status != GREEN:
        raise CommandFailed(
            f"the tests of {file} are not green without a mutation",
            details=[f"first failure: {answer.said or 'none was named'}", *runner.tail()],
            resolution=f".venv/bin/python -m pytest {' '.join(FILES[file])}",
        )
    return answer.seconds


def _tried(idle: Idle, results: _Results, limit: float, mutant: Mutant) -> Result:
    """What becomes of a mutant, or what became of it in an earlier run."""
    if known := results.of(mutant):
        return known
    with _lent(idle) as runner:
        answer = runner.run(FILES[mutant.file], limit=limit, file=mutant.file, text=mutant.source)
        if answer.status in NO_TESTS:
            raise CommandFailed(f"pytest ended with {answer.status}", details=runner.tail())
    fate = {None: Fate.TIMED_OUT, GREEN: Fate.SURVIVED}.get(answer.status, Fate.KILLED)
    return results.add(Result(mutant=mutant, fate=fate, seconds=answer.seconds, by=answer.said))


class _Results:
    """What earlier runs with the same sources and tests found out about a file's mutants, a line each."""

    def __init__(self, file: str, tree: Sequence[str]) -> None:
        inputs = [name for name in tree if name.startswith(INPUTS) or name in FILES[file]]
        digest = hashlib.sha256()
        for name in sorted(inputs):
            digest.update(f"{name}\0".encode() + hashlib.sha256((TOP / name).read_bytes()).digest())
        RESULTS.mkdir(parents=True, exist_ok=True)
        self._path = RESULTS / f"{file.replace('/', '.')}-{digest.hexdigest()[:16]}.jsonl"
        self._writing = threading.Lock()
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.known = {entry["key"]: entry for entry in map(json.loads, lines)}

    def of(self, mutant: Mutant) -> Result | None:
        entry = self.known.get(mutant.key)
        if entry is None:
            return None
        return Result(mutant=mutant, fate=Fate(entry["fate"]), seconds=entry["seconds"], by=entry["by"])

    def add(self, result: Result) -> Result:
        with self._writing, self._path.open("a") as out:
            out.write(json.dumps(result.document()) + "\n")
        return result


# --- the checkout and its copies


def _tree() -> list[str]:
    """The files of the working tree, as a commit of all of it would have them."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    return [name for name in listed.split("\0") if name and (TOP / name).is_file()]


def _changed_since(revision: str) -> dict[str, set[int]]:
    return changed_lines(_git("diff", "--unified=0", "--no-color", "--no-ext-diff", revision, "--", *FILES))


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(TOP), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"git {words[0]} ended with {done.returncode}", details=done.stderr.splitlines())
    return done.stdout


def _copy(files: Sequence[str], to: Path) -> None:
    """A fresh copy with the times of the originals: the byte code of earlier runs stays good."""
    shutil.rmtree(to, ignore_errors=True)
    for name in files:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, to / name, follow_symlinks=False)


def _environment(copy: Path) -> dict[str, str]:
    """Our environment, with the copy's modules for the programs that tests start.

    Hypothesis's examples are fixed (CI).
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DRIVERFORGE_FULL", "PYTEST_ADDOPTS")
    }
    return {
        **kept,
        "CI": "1",
        "PYTHONPATH": os.pathsep.join(str(copy / folder) for folder in ("tests", "builder", "entrypoints")),
        "PYTHONPYCACHEPREFIX": str(WORK / "byte-code"),
        "PYTHONHASHSEED": "0",
    }


@contextmanager
def _alone() -> Iterator[None]:
    """One run at a time: the copies are those of all runs. Raises TemporaryFailure."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TemporaryFailure(
                "another mutation run works in this checkout",
                details=[f"it holds {WORK / 'lock'}"],
                resolution="wait until it ends",
            ) from error
        yield


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
