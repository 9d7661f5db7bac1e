"""The bench's one place where programs start.

Every error has the complete output. No daemon outlives the test run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable

Argument = str | os.PathLike[str]

_INSTALL = "hack/test installs what the tests need; hack/test --list shows it"
_STEP = 0.02  # seconds between two looks at a condition
_TAIL = 40  # lines of a daemon's log that an error shows; the whole log stays where it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ended: exit status and all that it printed."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


def run(
    *argv: Argument,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> Finished:
    """Run a program to its end; `env` is added to this process's environment, `timeout` is in seconds.

    Raises CommandFailed with the complete output when `check` is set and the status is not 0, Unavailable
    when there is no such program.
    """
    words = tuple(os.fspath(word) for word in argv)
    try:
        done = subprocess.run(
            words,
            check=False,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{words[0]} is not installed", resolution=_INSTALL) from error
    except subprocess.TimeoutExpired as error:
        raise TemporaryFailure(
            f"{words[0]} did not end within {timeout:.0f} s", details=[" ".join(words)]
        ) from error
    if check and done.returncode != 0:
        raise CommandFailed(
            f"{Path(words[0]).name} exited with {done.returncode}",
            details=[" ".join(words), done.stdout.rstrip(), done.stderr.rstrip()],
        )
    return Finished(argv=words, status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def missing(*programs: str) -> tuple[str, ...]:
    """Those of `programs` that are not on PATH."""
    return tuple(name for name in programs if shutil.which(name) is None)


def require(*programs: str) -> None:
    """Raise Unavailable, naming all of them, unless every program is on PATH."""
    if gone := missing(*programs):
        raise Unavailable(f"not installed: {', '.join(gone)}", resolution=_INSTALL)


def start(
    argv: Sequence[Argument],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own, with its output appended to `log`.

    The kernel kills it when this process dies.
    """
    with log.open("ab") as out:
        return subprocess.Popen(
            tied(argv, os.getpid()),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=pass_fds,
        )


def tied(argv: Sequence[Argument], starter: int) -> list[Argument]:
    """The words that run `argv` for as long as its parent, the process `starter`, lives (util-linux setpriv).

    A parent that died before the kernel was asked to say so is seen by the parent that took its place.
    """
    alive = '[ "$PPID" = "$1" ] || exit 143; shift; exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", alive, "sh", str(starter), *argv]


def stop(
    child: subprocess.Popen[bytes], *, timeout: float = 15, first: signal.Signals = signal.SIGTERM
) -> None:
    """Ask a daemon to end, then kill it; returns when it was reaped."""
    if child.poll() is None:
        child.send_signal(first)
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()


def until(
    condition: Callable[[], bool],
    what: str,
    *,
    timeout: float = 60,
    child: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
) -> None:
    """Wait for a condition.

    Raises TemporaryFailure with the end of `log` after `timeout` seconds, CommandFailed as soon as `child`
    has ended.
    """
    end = time.monotonic() + timeout
    while not condition():
        if child is not None and child.poll() is not None:
            raise CommandFailed(f"{what}: the process ended with {child.returncode}", details=tail(log))
        if time.monotonic() > end:
            raise TemporaryFailure(f"{what}: not within {timeout:.0f} s", details=tail(log))
        time.sleep(_STEP)


def tail(log: Path | None, count: int = _TAIL) -> list[str]:
    """The last lines of a log, and where it is."""
    if log is None or not log.exists():
        return []
    return [*log.read_text(errors="replace").splitlines()[-count:], f"all of it: {log}"]


def children(pid: int) -> list[int]:
    """PIDs of a process's children; none where it has ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def running(pid: int) -> bool:
    """Whether a process runs.

    A zombie does not: PID 1 of a container may reap late, and kill -0 succeeds until then.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")
