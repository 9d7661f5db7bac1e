"""Runs tests in forks of one warm interpreter, for one copy of the checkout.

`hack/mutants` starts one for each processor. It has imported all libraries of others that the tests import,
and nothing of ours, so that a fork sees a mutated file. Each line on stdin is a request, each line on stdout
its answer, both in JSON. The end of stdin ends it, and the tests that run then.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

# no plugin of these is asked for, and each takes time
PLUGINS_OFF = ("cacheprovider", "xdist", "docker", "anyio")
# what was imported before the fork cannot be rewritten: nobody looks at the asserts in libraries
WARNINGS_OFF = ("ignore::pytest.PytestAssertRewriteWarning",)


class FirstFailure:
    """A pytest plugin that writes the name of the first test that failed."""

    def __init__(self, out: int) -> None:
        self._out = out

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self._out >= 0:
            os.write(self._out, report.nodeid.encode())
            self._out = -1


def main() -> None:
    log, scratch = sys.argv[1:]
    while line := sys.stdin.readline():
        request = json.loads(line)
        told = (
            _warm(request["warm"], log, scratch) if "warm" in request else _with_text(request, log, scratch)
        )
        print(json.dumps(told), flush=True)


def _warm(tests: Sequence[str], log: str, scratch: str) -> dict[str, Any]:
    """Import here what a collection of the tests imports from the libraries of others."""
    answer = _run(tests, log, scratch, limit=600.0, collect=True)
    for name in answer["said"].split():
        # a submodule that only some other import makes importable is no loss
        with suppress(Exception):
            importlib.import_module(name)
    # what is there now stays: a fork that collects garbage would copy all of it
    gc.collect()
    gc.freeze()
    return answer


def _with_text(request: dict[str, Any], log: str, scratch: str) -> dict[str, Any]:
    """Run the tests with another text in a file, or with the file as it is where the request has no text."""
    tests, limit = request["tests"], request["limit"]
    if "text" not in request:
        return _run(tests, log, scratch, limit=limit)
    file = Path(request["file"])
    kept, status = file.read_bytes(), file.stat()
    try:
        file.write_text(request["text"], encoding="utf-8")
        # another time than that in the byte code that the first run wrote, whatever the clock says
        os.utime(file, (status.st_atime, status.st_mtime + 10))
        return _run(tests, log, scratch, limit=limit, mutated=True)
    finally:
        file.write_bytes(kept)
        os.utime(file, (status.st_atime, status.st_mtime))


def _run(
    tests: Sequence[str],
    log: str,
    scratch: str,
    *,
    limit: float,
    collect: bool = False,
    mutated: bool = False,
) -> dict[str, Any]:
    """Fork, and run pytest there. `status` is pytest's, or None where the limit (seconds) was reached."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _in_fork(tests, log, scratch, said.fileno(), collect=collect, mutated=mutated)
        status = _wait(child, limit)
        seconds = time.monotonic() - began
        said.seek(0)
        return {"status": status, "seconds": seconds, "said": said.read().decode(errors="replace")}


def _wait(child: int, limit: float) -> int | None:
    handle = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(0, select.POLLHUP)
        seen = poll.poll(limit * 1000)
    finally:
        os.close(handle)
    # programs that tests left behind go too
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if any(descriptor == 0 for descriptor, _ in seen):
        sys.exit(0)
    if not seen:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _in_fork(
    tests: Sequence[str], log: str, scratch: str, said: int, *, collect: bool, mutated: bool
) -> NoReturn:
    status = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        if mutated:
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        options = ["-x", "-q", f"--basetemp={scratch}", *(["--collect-only"] if collect else ())]
        options += [f"-pno:{name}" for name in PLUGINS_OFF] + [f"-W{rule}" for rule in WARNINGS_OFF]
        plugins = [] if collect else [FirstFailure(said)]
        status = int(pytest.main([*options, *tests], plugins=plugins))
        if collect:
            os.write(said, " ".join(_of_others()).encode())
        sys.stdout.flush()
    finally:
        os._exit(status)


def _of_others() -> list[str]:
    """Modules that were imported from the standard library and from what is installed."""
    folders = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    return [
        name
        for name, module in list(sys.modules.items())
        if (getattr(module, "__file__", None) or "").startswith(folders) and name != "__main__"
    ]


if __name__ == "__main__":
    main()
