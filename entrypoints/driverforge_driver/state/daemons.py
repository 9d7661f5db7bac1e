"""The daemons that go with a loaded driver: their programs, and how one is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import CommandFailed
from driverforge_driver.state.records import RunningDaemon
from driverforge_host.ports import Host, text_of

# Seconds within which a daemon has to run.
START_TIMEOUT = 10.0
START_POLL = 0.1


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
PROGRAMS = (PERSISTENCED,)


def programs_of_image(host: Host) -> tuple[DaemonProgram, ...]:
    """The daemons that this image has."""
    return tuple(program for program in PROGRAMS if host.commands.find(program.argv[0]))


def programs_down(host: Host, running: Sequence[RunningDaemon]) -> tuple[DaemonProgram, ...]:
    """Those of them that do not run; `running` are the recorded ones."""
    names = {daemon.name for daemon in running}
    return tuple(
        program
        for program in programs_of_image(host)
        if program.name not in names and not pid_in_file(host, program)
    )


def pid_in_file(host: Host, program: DaemonProgram) -> int:
    """The PID in the program's PID file; 0 where no process of the program's name has it."""
    text = text_of(host.files, program.pid_file).strip()
    return int(text) if text.isdigit() and host.processes.alive(int(text), command=program.name) else 0


def start(host: Host, program: DaemonProgram) -> int:
    """Start a daemon and wait until it runs, in the foreground or with its PID in the file. Returns its PID.

    A stop signal does not cut this short. A daemon that has forked away without having written its PID would
    be unknown to our stop, which would then take it for somebody who uses the driver.

    Raises CommandFailed where it does not come up, and what keeps it from being started.
    """
    begin = host.clock.monotonic()
    child = host.commands.spawn(program.argv, log=program.log)
    while (elapsed := host.clock.monotonic() - begin) < START_TIMEOUT:
        status = host.processes.reap().get(child)
        if pid := pid_in_file(host, program):
            return pid
        if status is not None and status != 0:
            raise CommandFailed(f"exit status {status}: {last_output(host, program)}")
        if elapsed >= START_TIMEOUT / 5 and host.processes.alive(child):
            return child
        host.clock.pause(START_POLL)
    raise CommandFailed(f"not running {START_TIMEOUT:g} s after its start: {last_output(host, program)}")


def last_output(host: Host, program: DaemonProgram) -> str:
    return next(
        (line for line in reversed(text_of(host.files, program.log).splitlines()) if line.strip()),
        "no output",
    )
