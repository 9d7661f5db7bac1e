"""Daemons that go with a loaded driver.

They are started before the driver is ready, started again with a growing delay when they end, and reported
in the status file. A daemon that fails is no failure of ours: the driver works without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, StorageFailed
from driverforge_driver.state import daemons
from driverforge_driver.state.daemons import DaemonProgram
from driverforge_driver.state.records import RunningDaemon, record_daemons, running_daemons
from driverforge_host.ports import Host

# All in seconds. After STEADY a daemon's earlier failures are forgotten.
STEADY = 120.0
MAX_DELAY = 60.0
CHECK_EVERY = 5.0


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
    """The daemons that this image has. One that runs already is taken over."""
    recorded = {daemon.name: daemon.pid for daemon in running_daemons(host)}
    return tuple(
        SupervisedDaemon(
            program=program,
            pid=daemons.pid_in_file(host, program) or recorded.get(program.name, 0),
            started=host.clock.monotonic(),
        )
        for program in daemons.programs_of_image(host)
    )


def check_daemon(host: Host, daemon: SupervisedDaemon) -> SupervisedDaemon:
    """Look once at a daemon: start it if it is due, note if it ended. Returns its new state."""
    now = host.clock.monotonic()
    if daemon.pid:
        return daemon if host.processes.alive(daemon.pid) else after_end(daemon, now, "it ended")
    return start_daemon(host, daemon) if now >= daemon.due else daemon


def start_daemon(host: Host, daemon: SupervisedDaemon) -> SupervisedDaemon:
    """Start a daemon, and note whether it came up. Returns its new state."""
    try:
        pid = daemons.start(host, daemon.program)
    except DriverforgeError as error:
        return after_end(daemon, host.clock.monotonic(), error.brief)
    log.info("daemon runs", daemon=daemon.program.name, pid=pid)
    return replace(daemon, pid=pid, started=host.clock.monotonic(), problem="")


def supervise(
    host: Host, changed: Callable[[tuple[SupervisedDaemon, ...]], None], *, watch: Callable[[], None]
) -> str:
    """Keep the daemons running until a stop signal comes. Returns the signal's name.

    `changed` gets all daemons, at the start and whenever one of them changed. `watch` is called before each
    round, and raises where there is nothing to go on with.
    """
    host.processes.become_subreaper()
    watched = daemons_of_image(host)
    reported = None
    # After a signal that came before we were ready, nothing is started any more.
    signal = host.clock.wait(0)
    while signal is None:
        watch()
        host.processes.reap()
        watched = tuple(check_daemon(host, daemon) for daemon in watched)
        if watched != reported:
            for daemon in watched:
                if daemon.problem:
                    log.warning(
                        "daemon is down",
                        daemon=daemon.program.name,
                        problem=daemon.problem,
                        failures=daemon.failures,
                    )
            try:
                record_daemons(
                    host, (RunningDaemon(name=d.program.name, pid=d.pid) for d in watched if d.pid)
                )
                changed(watched)
                reported = watched
            except StorageFailed as error:
                # A full /run is no reason to take the driver away. The next round tries again.
                log.warning("the status cannot be written", problem=error.brief)
        signal = host.clock.wait(CHECK_EVERY)
    return signal
