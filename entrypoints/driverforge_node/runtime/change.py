"""The transaction: journal, write, restart, prove that the runtime lives; else put everything back."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import CommandFailed, DriverforgeError, Unavailable, Unsupported
from driverforge_node import log
from driverforge_node.host.ports import Host
from driverforge_node.runtime import cri, journal
from driverforge_node.runtime.daemon import Daemon, enter, socket_path
from driverforge_node.runtime.ports import Sockets

LOG_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """All that a change needs: the system, the way to the daemon, and how it is restarted."""

    host: Host
    sockets: Sockets
    socket: str
    restart_command: str = ""  # for a daemon that systemd does not run
    patience: float = 60.0  # seconds for a restarted daemon to answer; containerd needs about one

    def status(self) -> cri.RuntimeStatus:
        return cri.status(self.sockets, socket_path(self.host.node, self.socket))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change that was validated and not yet made. `data` None means that the file goes away."""

    daemon: Daemon
    before: bytes | None
    data: bytes | None
    effective: tuple[str, ...]  # keys whose value the daemon will see differently
    present: tuple[tuple[str, str], ...]  # handlers (name, program) that the daemon shall report afterwards
    absent: tuple[str, ...] = ()  # handlers that it shall not report
    restart: bool

    @property
    def writes(self) -> bool:
        return self.before != self.data


def describe(plan: Plan, runtime: Runtime) -> str:
    """The plan as text: file diff, effective diff, restart."""
    daemon = plan.daemon
    lines = [f"containerd: PID {daemon.pid}, {daemon.binary}, {daemon.unit or 'not run by systemd'}", f"file: {daemon.config}"]
    if plan.writes:
        old, new = ((data or b"").decode().splitlines() for data in (plan.before, plan.data))
        lines += difflib.unified_diff(old, new, "now", "then", lineterm="")
        lines += [f"the file {'appears' if plan.before is None else 'goes away'}"] if None in (plan.before, plan.data) else []
    else:
        lines.append("the file stays as it is")
    lines += [f"effective: {line}" for line in plan.effective]
    lines.append(f"restart: {restart_words(plan, runtime)}")
    return "\n".join(lines)


def restart_words(plan: Plan, runtime: Runtime) -> str:
    if not plan.restart:
        return "not needed"
    return runtime.restart_command or (f"systemctl restart {plan.daemon.unit}" if plan.daemon.unit else "needs --restart-command")


def check_restart(plan: Plan, runtime: Runtime) -> None:
    """Raises Unsupported before anything is written when nobody could restart the daemon."""
    if plan.restart and not plan.daemon.unit and not runtime.restart_command:
        raise Unsupported(
            "this containerd is not run by systemd, so driverctl does not know how to restart it",
            details=[f"PID {plan.daemon.pid}, {plan.daemon.binary}"],
            resolution="give --restart-command with what stops and starts it on this node; nothing was changed",
        )


def carry_out(plan: Plan, runtime: Runtime, entry: journal.Entry) -> None:
    """Make the change. Raises CommandFailed with the daemon's own words when it does not come back; the old bytes are back then.

    `entry` is the file's journal entry for as long as the change is in force.
    """
    check_restart(plan, runtime)
    host = runtime.host
    host.clock.wait(0)  # from here on a stop signal does not end us between write and restart
    earlier = journal.read(host, entry.path)
    if plan.writes:
        journal.write(host, entry)
        journal.put(host, plan.daemon.config, plan.data, entry.owner)
        log.info("wrote", file=plan.daemon.config)
    if not plan.restart:
        return
    try:
        restart(plan, runtime)
        prove(plan, runtime)
    except DriverforgeError as error:
        raise _restored(plan, runtime, error, entry=entry, earlier=earlier) from error


def restart(plan: Plan, runtime: Runtime) -> None:
    if runtime.restart_command:
        runtime.host.commands.run([*enter(runtime.host), "sh", "-c", runtime.restart_command], timeout=180)
    else:
        runtime.host.services.restart(plan.daemon.unit)
    log.info("restarted containerd", unit=plan.daemon.unit)


def prove(plan: Plan, runtime: Runtime) -> None:
    """Wait until a new process answers the runtime interface and reports the right handlers. Raises CommandFailed with its last answer."""
    last: Sequence[str] = ()
    for _ in runtime.host.clock.ticks(timeout=runtime.patience, interval=0.25):
        try:
            status = runtime.status()
        except Unavailable as error:
            last = [error.brief, *error.details]
            continue
        wrong = problems(plan, status)
        if not wrong:
            log.info("containerd answers", pid=status.pid, handlers=",".join(status.handlers))
            return
        last = wrong
    raise CommandFailed("containerd did not come back with the new configuration", details=last)


def problems(plan: Plan, status: cri.RuntimeStatus) -> list[str]:
    """What is not as it shall be."""
    wrong = [f"the process {status.pid} from before the restart still answers"] if status.pid == plan.daemon.pid else []
    wrong += [
        f"it does not report the handler {name} with {program}" for name, program in plan.present if status.handlers.get(name) != program
    ]
    return wrong + [f"it still reports the handler {name}" for name in plan.absent if name in status.handlers]


def _restored(
    plan: Plan, runtime: Runtime, error: DriverforgeError, *, entry: journal.Entry, earlier: journal.Entry | None
) -> DriverforgeError:
    """Put the old file in force again; the error to raise, with the daemon's own log lines."""
    host = runtime.host
    said = host.services.last_log_lines(plan.daemon.unit, LOG_LINES) if plan.daemon.unit else ()
    details = [error.brief, *error.details, *(f"{plan.daemon.unit}: {line}" for line in said)]
    if plan.writes:
        journal.put(host, plan.daemon.config, plan.before, entry.owner)
        if earlier is None:
            journal.remove(host, plan.daemon.config)
        else:
            journal.write(host, earlier)
    try:
        restart(plan, runtime)
        for _ in host.clock.ticks(timeout=runtime.patience, interval=0.25):
            try:
                runtime.status()
            except Unavailable:
                continue
            return CommandFailed(
                "containerd did not accept the change; the old configuration is in force again",
                details=details,
                resolution="see containerd's own message above; the node is as it was",
            )
    except DriverforgeError as second:
        details += [second.brief, *second.details]
    return CommandFailed(
        "containerd did not accept the change, and does not answer with the old configuration either",
        details=details,
        resolution=f"the old file is back in {plan.daemon.config}; look at journalctl -u {plan.daemon.unit or 'containerd'} and start it",
    )
