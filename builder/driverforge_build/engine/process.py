"""Child processes of the builder's engine. They start here, and their output is kept whole in a file."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from driverforge_core.errors import CommandFailed, StorageFailed, TemporaryFailure, Unavailable

TAIL = 30
PATIENCE_S = 60.0
"""For a short command. The docker command waits for ever for an engine that takes its call and says nothing.
"""
_TIED = ("setpriv", "--pdeathsig", "KILL", "--")
"""The kernel kills a program that begins so when the thread that started it ends, however it does."""


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    patience: float = PATIENCE_S,
    install: str = "",
) -> tuple[int, str]:
    """Exit status of a short command and what it printed; where it failed, what it complained of as well.

    What is read is not mixed with warnings, as podman's of control groups. Raises Unavailable, with what to
    `install`, when there is no such program, TemporaryFailure when it does not end in `patience` seconds.
    """
    try:
        done = subprocess.run(
            list(argv),
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired as error:
        raise TemporaryFailure(
            f"{argv[0]} says nothing for {patience:g} s",
            details=[f"command: {shlex.join(argv)}"],
            resolution="the engine that DOCKER_HOST or docker's context names may hang: restart it, or name "
            "another",
        ) from error
    except OSError as error:
        raise _absent(argv[0], error, install) from error
    said = done.stdout + done.stderr if done.returncode else done.stdout
    return done.returncode, said.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a program said that was given something to read."""

    status: int
    output: bytes
    errors: str


def require_program(program: str, option: str) -> None:
    """Raises Unavailable where the program that an option names is not there, before it is needed."""
    if shutil.which(program) is None:
        raise Unavailable(
            f"{program} of {option} cannot be started: there is no such program",
            resolution=f"install it, or correct {option}",
        )


def converse(
    argv: Sequence[str],
    given: bytes,
    *,
    environment: Mapping[str, str] | None = None,
    patience: float = PATIENCE_S,
) -> Said:
    """Run a short program that reads `given`.

    It stays in our process group: one that asks for a PIN at the terminal would be stopped in another. Raises
    OSError where it cannot be started, TimeoutError where it does not end in `patience` seconds.
    """
    try:
        done = subprocess.run(
            list(argv),
            env=_environment(environment),
            input=given,
            capture_output=True,
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    return Said(
        status=done.returncode, output=done.stdout, errors=done.stderr.decode("utf-8", errors="replace")
    )


def answer(argv: Sequence[str], given: bytes, *, patience: float = PATIENCE_S) -> tuple[int, bytes]:
    """Exit status and standard output of a short program that reads `given`; its errors go nowhere.

    Raises as `converse` does.
    """
    said = converse(argv, given, patience=patience)
    return said.status, said.output


def run_logged(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda _: None,
    passing: Callable[[Iterable[str]], str] = lambda _: "",
) -> None:
    """Run a long command with its output in `log`.

    Raises CommandFailed with the command, its exit status, its last lines and the log's path; Unavailable
    when there is no such program; StorageFailed when the log cannot be written. `passing` is asked for the
    reason among the last lines that will pass: where there is one, TemporaryFailure is raised with it.
    """
    tail: deque[str] = deque(maxlen=TAIL)
    with open_log(log) as stream:
        stream.write(f"$ cd {cwd} && {shlex.join(argv)}\n")
        try:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise _absent(argv[0], error) from error
        with child:
            assert child.stdout is not None
            try:
                for raw in child.stdout:
                    line = raw.decode(errors="replace").rstrip("\n")
                    stream.write(line + "\n")
                    stream.flush()
                    tail.append(line)
                    on_line(line)
            except BaseException:
                child.terminate()
                raise
    if child.returncode:
        reason = passing(tail)
        raise (TemporaryFailure if reason else CommandFailed)(
            f"{argv[0]} {argv[1]} exited {child.returncode}" + (f": {reason}" if reason else ""),
            details=[f"command: {shlex.join(argv)}", f"whole output: {log}", "last lines:", *tail],
            resolution=f"read {log}; the first ERROR names the step that failed",
        )


def follow(
    argv: Sequence[str], *, errors: Path, silence: Callable[[], float], on_line: Callable[[str], None]
) -> int | None:
    """Run a program that may hang, and tell each whole line of its standard output as it comes.

    Its errors go to a file. Returns its exit status, None where it said nothing for `silence()` seconds and
    was killed. The kernel kills it when this thread ends, however it does. Raises OSError where it cannot be
    started.
    """
    tied = [*_TIED, "prlimit", "--core=0", *argv]
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr) as child,
    ):
        assert child.stdout is not None
        stream, pending = child.stdout.fileno(), b""
        try:
            while select.select([stream], [], [], silence())[0]:
                if not (piece := os.read(stream, 1 << 16)):
                    return child.wait()
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    on_line(line.decode(errors="replace"))
            return None
        finally:
            child.kill()


def open_log(log: Path) -> TextIO:
    """A log's file, for writing. Raises StorageFailed."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("w", encoding="utf-8")
    except OSError as error:
        raise StorageFailed(
            f"the log {log} cannot be written: {error.strerror}", resolution="give another --cache-dir"
        ) from error


def short(instruction: str) -> str:
    """What a RUN does, without its mounts."""
    words = [word for word in instruction.split() if not word.startswith("--mount=")]
    return " ".join(words)[:100]


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(extra or {})}


def _absent(program: str, error: OSError, install: str = "") -> Unavailable:
    return Unavailable(
        f"{program} cannot be started: {error.strerror}",
        resolution=install or f"install {program}, or put it on PATH",
    )
