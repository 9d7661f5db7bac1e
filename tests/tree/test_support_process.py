"""How the bench starts programs: complete errors, daemons that end with their starter."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from support import process


def test_a_failure_has_the_whole_output() -> None:
    with pytest.raises(CommandFailed) as failure:
        process.run("sh", "-c", "seq 1 3000; echo problem >&2; exit 3")
    assert failure.value.brief == "sh exited with 3"
    text = "\n".join(failure.value.details)
    assert "\n2999\n" in text
    assert "problem" in text


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match="no-such-program is not installed"):
        process.run("no-such-program")
    with pytest.raises(Unavailable, match="no-such-a, no-such-b"):
        process.require("sh", "no-such-a", "no-such-b")


def test_a_program_that_hangs_is_given_up() -> None:
    with pytest.raises(TemporaryFailure, match="did not end"):
        process.run("sleep", "60", timeout=0.05)


def test_a_daemon_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = process.start(["sh", "-c", "echo cannot listen; exit 4"], log=log)
    with pytest.raises(CommandFailed) as failure:
        process.until(lambda: False, "the daemon", child=child, log=log)
    assert "ended with 4" in failure.value.brief
    assert failure.value.details[0] == "cannot listen"


def test_stop_kills_what_ignores_the_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = process.start(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do read line; done </dev/zero"], log=log
    )
    process.until(lambda: "ready" in log.read_text(), "the trap", child=child)
    process.stop(child, timeout=0.1)
    assert child.returncode == -signal.SIGKILL


def test_a_daemon_dies_with_its_starter(tmp_path: Path) -> None:
    """A killed test run leaves no guest and no registry behind."""
    program = f"""
import sys, time; sys.path[:0] = {sys.path!r}
from pathlib import Path
from support import process
child = process.start(["sleep", "1000"], log=Path({str(tmp_path / "log")!r}))
Path({str(tmp_path / "pid.new")!r}).write_text(str(child.pid))
Path({str(tmp_path / "pid.new")!r}).rename({str(tmp_path / "pid")!r})
time.sleep(1000)
"""
    starter = process.start([sys.executable, "-c", program], log=tmp_path / "starter")
    process.until((tmp_path / "pid").exists, "the starter", child=starter, log=tmp_path / "starter")
    daemon = int((tmp_path / "pid").read_text())
    assert process.running(daemon)
    starter.kill()
    starter.wait()
    process.until(lambda: not process.running(daemon), "the daemon's end", timeout=10)


def test_a_daemon_whose_starter_died_before_it_began_does_not_begin(tmp_path: Path) -> None:
    """A starter that is killed in the moment between fork and prctl."""
    words = process.tied(["touch", tmp_path / "ran"], starter=os.getpid() + 1)
    assert process.run(*words, check=False).status == 143
    assert not (tmp_path / "ran").exists()
    process.run(*process.tied(["touch", tmp_path / "ran"], starter=os.getpid()))
    assert (tmp_path / "ran").exists()


def test_a_zombie_does_not_run() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    process.until(lambda: not process.running(pid), "the child's end", timeout=10)
    os.kill(pid, 0)  # it is still there
    os.waitpid(pid, 0)
    assert not process.running(pid)


def test_waiting_ends_with_the_time_given() -> None:
    began = time.monotonic()
    with pytest.raises(TemporaryFailure, match="a thing: not within 0 s"):
        process.until(lambda: False, "a thing", timeout=0.05)
    assert time.monotonic() >= began + 0.05
