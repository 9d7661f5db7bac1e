"""Daemons that go with a loaded driver.

They start after the driver is ready, are started again with a growing delay when they end, and are reported
in the status file. A daemon that fails is no failure of ours: the driver works without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from driverforge_core.errors import DriverforgeError, StorageFailed
from driverforge_node import log
from driverforge_node.driver.state.records import RunningDaemon, record_daemons
from driverforge_node.ports import Host, text_of

# All in seconds. Within START_TIMEOUT a daemon has to run; after STEADY its earlier failures are forgotten.
START_TIMEOUT = 10.0
START_POLL = 0.1
STEADY = 120.0
MAX_DELAY = 60.0
CHECK_EVERY = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonProgram:
    """A daemon's program: how to start it, and the PID file that it writes when it goes to the background."""

    name: str
    argv: tuple[str, ...]
    pid_file: str
    log: str


PERSISTENCED = DaemonProgram(
    name="nvidia-persistenced",
    argv=("nvidia-persistenced", "--persistence-mode"),
    pid_file="/var/run/nvidia-persistenced/nvidia-persistenced.pid",
    log="/var/log/nvidia-persistenced.out",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedDaemon:
    """The state of a daemon. Times are seconds of the monotonic clock."""

    program: DaemonProgram
    # 0: it does not run
    pid: int = 0
    # in a row
    failures: int = 0
    started: float = 0.0
    # it is not started again before
    due: float = 0.0
    # why it does not run, '' while it does
    problem: str = ""


def restart_delay(failures: int) -> float:
    """Seconds until the next start after so many failures in a row: 1, 2, 4, …, at most MAX_DELAY."""
    return min(MAX_DELAY, 2.0 ** min(max(0, failures - 1), 16))


def after_end(daemon: SupervisedDaemon, now: float, problem: str) -> SupervisedDaemon:
    """The state of a daemon that ended or did not come up, at the time `now`."""
    failures = 1 if daemon.pid and now - daemon.started >= STEADY else daemon.failures + 1
    return replace(daemon, pid=0, failures=failures, due=now + restart_delay(failures), problem=problem)


def daemons_of_image(host: Host) -> tuple[SupervisedDaemon, ...]:
    """The daemons that this image has. One that still runs from before is taken over."""
    found = []
    for program in (PERSISTENCED,):
        if host.commands.find(program.argv[0]):
            pid = pid_in_file(host, program)
            found.append(SupervisedDaemon(program=program, pid=pid, started=host.clock.monotonic()))
    return tuple(found)


def pid_in_file(host: Host, program: DaemonProgram) -> int:
    """The PID in the program's PID file; 0 where no process of the program's name has it."""
    text = text_of(host.files, program.pid_file).strip()
    return int(text) if text.isdigit() and host.processes.alive(int(text), command=program.name) else 0


def check_daemon(host: Host, daemon: SupervisedDaemon) -> SupervisedDaemon:
    """Look once at a daemon: start it if it is due, note if it ended. Returns its new state."""
    now = host.clock.monotonic()
    if daemon.pid:
        return daemon if host.processes.alive(daemon.pid) else after_end(daemon, now, "it ended")
    return start_daemon(host, daemon) if now >= daemon.due else daemon


def start_daemon(host: Host, daemon: SupervisedDaemon) -> SupervisedDaemon:
    """Start a daemon and wait until it runs, in the foreground or with its PID in the file.

    A stop signal does not cut this short. A daemon that has forked away without having written its PID would
    be unknown to our stop, which would then take it for somebody who uses the driver.
    """
    program, begin = daemon.program, host.clock.monotonic()
    try:
        child = host.commands.spawn(program.argv, log=program.log)
    except DriverforgeError as error:
        return after_end(daemon, begin, error.brief)
    while (elapsed := host.clock.monotonic() - begin) < START_TIMEOUT:
        status = host.processes.reap().get(child)
        pid = pid_in_file(host, program)
        if pid:
            return after_start(host, daemon, pid)
        if status is not None and status != 0:
            return after_end(
                daemon, host.clock.monotonic(), f"exit status {status}: {last_output(host, program)}"
            )
        if elapsed >= START_TIMEOUT / 5 and host.processes.alive(child):
            return after_start(host, daemon, child)
        host.clock.pause(START_POLL)
    return after_end(
        daemon,
        host.clock.monotonic(),
        f"not running {START_TIMEOUT:g} s after its start: {last_output(host, program)}",
    )


def after_start(host: Host, daemon: SupervisedDaemon, pid: int) -> SupervisedDaemon:
    log.info("daemon runs", daemon=daemon.program.name, pid=pid)
    return replace(daemon, pid=pid, started=host.clock.monotonic(), problem="")


def last_output(host: Host, program: DaemonProgram) -> str:
    return next(
        (line for line in reversed(text_of(host.files, program.log).splitlines()) if line.strip()),
        "no output",
    )


def supervise(
    host: Host, changed: Callable[[tuple[SupervisedDaemon, ...]], None], *, watch: Callable[[], None]
) -> str:
    """Keep the daemons running until a stop signal comes. Returns the signal's name.

    `changed` gets all daemons, at the start and whenever one of them changed. `watch` is called before each
    round, and raises where there is nothing to go on with.
    """
    host.processes.become_subreaper()
    daemons = daemons_of_image(host)
    reported = None
    # After a signal that came before we were ready, nothing is started any more.
    signal = host.clock.wait(0)
    while signal is None:
        watch()
        host.processes.reap()
        daemons = tuple(check_daemon(host, daemon) for daemon in daemons)
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
                record_daemons(
                    host, (RunningDaemon(name=d.program.name, pid=d.pid) for d in daemons if d.pid)
                )
                changed(daemons)
                reported = daemons
            except StorageFailed as error:
                # A full /run is no reason to take the driver away. The next round tries again.
                log.warning("the status cannot be written", problem=error.brief)
        signal = host.clock.wait(CHECK_EVERY)
    return signal
