"""Daemons that go with a loaded driver: started after it is ready, restarted with a growing delay, reported in the status file.

A failing daemon is not fatal: the driver works without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from driverforge_core.errors import DriverforgeError, StorageFailed
from driverforge_node import log
from driverforge_node.driver import paths
from driverforge_node.driver.observe import read
from driverforge_node.host.ports import Host

START_TIMEOUT = 10.0  # seconds for a daemon to be there
START_POLL = 0.1
STEADY = 120.0  # seconds after which a daemon counts as healthy again
MAX_DELAY = 60.0
CHECK_EVERY = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A daemon: how to start it and the PID file that it writes when it goes to the background."""

    name: str
    argv: tuple[str, ...]
    pid_file: str
    log: str


PERSISTENCED = Program(
    name="nvidia-persistenced",
    argv=("nvidia-persistenced", "--persistence-mode"),
    pid_file="/var/run/nvidia-persistenced/nvidia-persistenced.pid",
    log="/var/log/nvidia-persistenced.out",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """A daemon's state; times are of the monotonic clock."""

    program: Program
    pid: int = 0  # 0: not running
    failures: int = 0  # in a row
    started: float = 0.0
    due: float = 0.0  # not started again before
    problem: str = ""


def delay(failures: int) -> float:
    """Seconds until the next start after so many failures in a row."""
    return min(MAX_DELAY, 2.0 ** min(max(0, failures - 1), 16))


def ended(daemon: Supervised, now: float, problem: str) -> Supervised:
    """The state after a daemon ended, or did not come up."""
    failures = 1 if daemon.pid and now - daemon.started >= STEADY else daemon.failures + 1
    return replace(daemon, pid=0, failures=failures, due=now + delay(failures), problem=problem)


def present(host: Host) -> tuple[Supervised, ...]:
    """The daemons that this image has; one that still runs from before is taken over."""
    found = []
    for program in (PERSISTENCED,):
        if host.commands.find(program.argv[0]):
            pid = pid_in_file(host, program)
            found.append(Supervised(program=program, pid=pid, started=host.clock.monotonic()))
    return tuple(found)


def pid_in_file(host: Host, program: Program) -> int:
    """The PID that the program's file names, 0 unless a process of that name has it."""
    text = read(host.files, program.pid_file).strip()
    return int(text) if text.isdigit() and host.processes.alive(int(text), command=program.name) else 0


def check(host: Host, daemon: Supervised) -> Supervised:
    """One look: start it when it is due, note when it ended."""
    now = host.clock.monotonic()
    if daemon.pid:
        return daemon if host.processes.alive(daemon.pid) else ended(daemon, now, "it ended")
    return start(host, daemon) if now >= daemon.due else daemon


def start(host: Host, daemon: Supervised) -> Supervised:
    """Start it and wait until it is there: in the foreground, or in the background with its PID in a file.

    A stop signal does not cut this short: a daemon that forked away and has not written its PID yet would be a foreign user to our stop.
    """
    program, begin = daemon.program, host.clock.monotonic()
    try:
        child = host.commands.spawn(program.argv, log=program.log)
    except DriverforgeError as error:
        return ended(daemon, begin, error.brief)
    while (elapsed := host.clock.monotonic() - begin) < START_TIMEOUT:
        status = host.processes.reap().get(child)
        pid = pid_in_file(host, program)
        if pid:
            return running(host, daemon, pid)
        if status is not None and status != 0:
            return ended(daemon, host.clock.monotonic(), f"exit status {status}: {last_line(host, program)}")
        if elapsed >= START_TIMEOUT / 5 and host.processes.alive(child):
            return running(host, daemon, child)
        host.clock.pause(START_POLL)
    return ended(
        daemon,
        host.clock.monotonic(),
        f"not running {START_TIMEOUT:g} s after its start: {last_line(host, program)}",
    )


def running(host: Host, daemon: Supervised, pid: int) -> Supervised:
    log.info("daemon runs", daemon=daemon.program.name, pid=pid)
    return replace(daemon, pid=pid, started=host.clock.monotonic(), problem="")


def last_line(host: Host, program: Program) -> str:
    return next(
        (line for line in reversed(read(host.files, program.log).splitlines()) if line.strip()), "no output"
    )


def note(host: Host, daemons: tuple[Supervised, ...]) -> None:
    """Leave the PIDs where a later start finds them: its in-use check has to tell our daemons from users."""
    entries = [{"name": d.program.name, "pid": d.pid} for d in daemons if d.pid]
    host.files.make_dirs(paths.STATE)
    host.files.write_atomic(paths.DAEMONS, (json.dumps(entries) + "\n").encode())


def supervise(host: Host, changed: Callable[[tuple[Supervised, ...]], None]) -> str:
    """Until a stop signal comes; returns its name. `changed` gets the daemons at the start and whenever one of them changed."""
    host.processes.become_subreaper()
    daemons = present(host)
    reported = None
    signal = host.clock.wait(0)  # one that came before ready: nothing is started any more
    while signal is None:
        host.processes.reap()
        daemons = tuple(check(host, daemon) for daemon in daemons)
        if daemons != reported:
            for daemon in daemons:
                if daemon.problem:
                    log.warning(
                        "daemon is down",
                        daemon=daemon.program.name,
                        problem=daemon.problem,
                        failures=daemon.failures,
                    )
            try:
                note(host, daemons)
                changed(daemons)
                reported = daemons
            except (
                StorageFailed
            ) as error:  # a full /run is no reason to take a driver away: the next round tries again
                log.warning("the status cannot be written", problem=error.brief)
        signal = host.clock.wait(CHECK_EVERY)
    return signal
