"""The one place where processes start."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from driverforge_core import log
from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_host.adapters.processes import KernelProcesses
from driverforge_host.ports import Result

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# what children get of our environment: where programs are, and how to reach a mirror
INHERITED = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
PROXIES = (*_PROXIES, *(name.lower() for name in _PROXIES))
SIGNALS_RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
POLL = 0.2


def minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """PATH, HOME, proxies and CA files; a fixed locale, since we read what programs print."""
    kept = {name: environ[name] for name in (*INHERITED, *PROXIES) if environ.get(name)}
    return {"PATH": DEFAULT_PATH, "HOME": "/root", **kept, "LC_ALL": "C.UTF-8"}


def pasteable(argv: Sequence[str], env: Mapping[str, str] | None) -> str:
    """A line to paste into a shell, without the values of variables that may hold a password."""
    shown = [
        f"{name}={shlex.quote(value)}" for name, value in (env or {}).items() if "proxy" not in name.lower()
    ]
    return " ".join([*shown, shlex.join(argv)])


class SystemCommands:
    """The `Commands` port.

    `stop_requested` names a stop signal that came: it ends a command whose output streams.
    """

    def __init__(
        self, environ: Mapping[str, str], stop_requested: Callable[[], str | None] = lambda: None
    ) -> None:
        self._env = minimal_environment(environ)
        self._stop_requested = stop_requested

    def find(self, name: str) -> str | None:
        return shutil.which(name, path=self._env["PATH"])

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        shown = pasteable(argv, env)
        start = time.monotonic()
        # files, not pipes: a daemon that the program leaves behind would keep a pipe open, and us waiting
        with (
            tempfile.TemporaryFile("w+b") as out,
            tempfile.TemporaryFile("w+b") as err,
            tempfile.TemporaryFile("w+b") as stdin,
        ):
            stdin.write((input_text or "").encode())
            stdin.seek(0)
            try:
                child = subprocess.Popen(
                    list(argv),
                    stdin=stdin,
                    stdout=out,
                    stderr=subprocess.STDOUT if stream else err,
                    env={**self._env, **(env or {})},
                    cwd=cwd,
                    start_new_session=stream,
                )
            except FileNotFoundError as error:
                if cwd and not os.path.isdir(cwd):
                    raise CommandFailed(f"cannot run {argv[0]} in {cwd}: no such folder") from error
                raise Unavailable(
                    f"program not found: {argv[0]}", details=[f"$ {shown}", f"PATH={self._env['PATH']}"]
                ) from error
            except PermissionError as error:
                raise Unavailable(
                    f"program may not be run: {argv[0]}", details=[f"$ {shown}", str(error)]
                ) from error
            self._wait(child, shown, timeout, out.fileno() if stream else None)
            out.seek(0)
            err.seek(0)
            result = Result(
                argv=tuple(argv),
                status=child.returncode,
                stdout=out.read().decode("utf-8", "replace"),
                stderr=err.read().decode("utf-8", "replace"),
            )
        log.LOGGER.debug(
            "ran",
            extra={
                "fields": {
                    "cmd": shown,
                    "status": result.status,
                    "seconds": round(time.monotonic() - start, 2),
                }
            },
        )
        if check and not result.ok:
            raise CommandFailed(
                f"{argv[0]} failed with status {result.status}", details=[f"$ {shown}", *_output(result)]
            )
        return result

    def _wait(
        self, child: subprocess.Popen[bytes], shown: str, timeout: float | None, follow: int | None
    ) -> None:
        """Wait until the child ends, its time is up or, while its output is followed, a stop signal came."""
        if follow is None:
            try:
                child.wait(timeout)
            except subprocess.TimeoutExpired as error:
                stuck = (
                    () if _killed(child) else (f"process {child.pid} is still in the kernel, after SIGKILL",)
                )
                raise TemporaryFailure(
                    f"{child.args[0]!r} took longer than {timeout:g} s",  # type: ignore[index]
                    details=[f"$ {shown}", *stuck],
                ) from error
            return
        try:
            self._follow(child, shown, timeout, Follower(follow))
        # KeyboardInterrupt too: the child has a session of its own, so Ctrl-C reaches us alone
        except BaseException:
            if not _end_group(child):
                log.warning("a program is still in the kernel, after SIGKILL", pid=child.pid, command=shown)
            raise

    def _follow(
        self, child: subprocess.Popen[bytes], shown: str, timeout: float | None, lines: Follower
    ) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        program = os.fsdecode(child.args[0])  # type: ignore[index,arg-type]
        while True:
            try:
                child.wait(POLL)
                break
            except subprocess.TimeoutExpired:
                lines.log_new()
            late = deadline is not None and time.monotonic() > deadline
            if late or self._stop_requested():
                why = f"took longer than {timeout:g} s" if late else f"stopped by {self._stop_requested()}"
                hint = (
                    "its last lines above say what it waited for; start again once that is there"
                    if late
                    else ""
                )
                raise TemporaryFailure(f"{program} {why}", details=[f"$ {shown}"], resolution=hint)
        lines.log_new(last=True)

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        program = self.find(argv[0])
        if program is None:
            raise Unavailable(f"program not found: {argv[0]}", details=[f"PATH={self._env['PATH']}"])
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions += [
            (os.POSIX_SPAWN_OPEN, 1, log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        ]
        dup = (os.POSIX_SPAWN_DUP2, 1, 2)
        try:
            return os.posix_spawn(
                program,
                list(argv),
                {**self._env, **(env or {})},
                file_actions=[*actions, dup],
                setsid=True,
                setsigdef=SIGNALS_RESET,
            )
        except OSError as error:
            raise CommandFailed(
                f"cannot start {argv[0]}: {error.strerror}", details=[f"$ {shlex.join(argv)}"]
            ) from error


class Follower:
    """Logs each line that a child adds to its output file."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._offset = 0
        self._rest = b""

    def log_new(self, *, last: bool = False) -> None:
        while chunk := os.pread(self._handle, 65536, self._offset):
            self._offset += len(chunk)
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        if last and self._rest:
            lines.append(self._rest)
        for line in lines:
            log.info(line.decode("utf-8", "replace"))


def _output(result: Result) -> list[str]:
    return [line for line in (*result.stdout.splitlines(), *result.stderr.splitlines()) if line.strip()]


def _killed(child: subprocess.Popen[bytes]) -> bool:
    """Kill a child. False where it has not ended after five seconds: modprobe may wait within the kernel."""
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)
    return child.returncode is not None


def _end_group(child: subprocess.Popen[bytes]) -> bool:
    """End the child's whole session: SIGTERM, and SIGKILL to what is left of it after five seconds.

    It returns when none of it runs. The caller removes the folders that these processes write into, so a
    dying one must be gone by then, not only signalled. False where the child has not ended five seconds after
    SIGKILL: nothing ends one that waits within the kernel (a dead NFS server).
    """
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(5)
        os.killpg(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    processes = KernelProcesses()
    while (child.poll() is None or processes.group(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return child.poll() is not None
