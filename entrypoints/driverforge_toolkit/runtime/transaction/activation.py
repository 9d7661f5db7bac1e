"""How a daemon comes to see its changed files, and the proof that it runs with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from driverforge_core import log
from driverforge_core.errors import CommandFailed, Unavailable, Unsupported
from driverforge_toolkit.runtime.find import cri
from driverforge_toolkit.runtime.find.daemon import enter
from driverforge_toolkit.runtime.find.instance import process_instance
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from driverforge_toolkit.runtime.transaction.polling import poll

LOG_LINES = 15
INTERVAL = 0.25  # seconds between two questions


def activation_text(plan: ChangePlan, system: RuntimeSystem) -> str:
    """What will be done for the daemon to see its files, for people."""
    if plan.activation == "none":
        return "not needed"
    mode, unit = system.request.restart_mode, system.unit(plan.daemon)
    if mode == "none":
        return f"left to you (restart mode none): not in force until {plan.daemon.kind} is restarted"
    if plan.activation == "reload":
        return f"SIGHUP to {plan.daemon.pid}, which reloads"
    if system.request.restart_command:
        return system.request.restart_command
    if unit:
        return f"systemctl restart {unit}"
    return (
        f"SIGHUP to {plan.daemon.pid}, which ends it"
        if mode == "signal" and _ends_of_a_hang_up(plan)
        else "needs --restart-command"
    )


def check_activation(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Raises Unsupported if the daemon has to be restarted and nobody could do that.

    Also if that is so of a revert alone, which would be too late to say then: docker takes handlers over at a
    reload, and does not forget them by one.
    """
    request = system.request
    if (
        "restart" not in (plan.activation, plan.undo)
        or request.restart_command
        or request.restart_mode == "none"
        or system.unit(plan.daemon)
    ):
        return
    if request.restart_mode == "signal" and _ends_of_a_hang_up(plan):
        return
    if not plan.daemon.pid:  # and a signal to process 0 would be one to ourselves
        raise Unsupported(
            f"this {plan.daemon.kind} is not running, and driverctl does not know how to start it",
            details=plan.daemon.evidence,
            resolution="give the command that starts it with --restart-command, or --restart-mode none to "
            "have only its files put back; nothing was changed",
        )
    later = (f"a revert of this change needs a restart of {plan.daemon.kind}",)
    raise Unsupported(
        f"this {plan.daemon.kind} is not run by systemd, so driverctl does not know how to restart it",
        details=(*(later if plan.activation != "restart" else ()), *plan.daemon.evidence),
        resolution="give the command that restarts it on this node with --restart-command; nothing was "
        "changed",
    )


def _ends_of_a_hang_up(plan: ChangePlan) -> bool:
    """Whether a SIGHUP ends the daemon, so that whoever watches it starts it anew. Others go on."""
    return plan.daemon.pid != 0 and plan.daemon.kind == "containerd"


def restart_shell(plan: ChangePlan, system: RuntimeSystem) -> str:
    """The restart as a shell command, for the node's own restore."""
    unit = system.unit(plan.daemon)
    again = f"systemctl reset-failed {unit} 2>/dev/null\nsystemctl restart {unit}" if unit else ":"
    return system.request.restart_command or again


def activate(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Have the daemon see its files, in the way that it really supports."""
    host, unit, timeout = system.host, system.unit(plan.daemon), system.restart_timeout(plan.daemon)
    if plan.activation == "restart" and system.request.restart_command:
        host.commands.run([*enter(host), "sh", "-c", system.request.restart_command], timeout=timeout)
    elif plan.activation == "restart" and unit:
        host.services.restart(unit, timeout=timeout)
    else:
        _hang_up(plan, system)
    log.info("reloaded" if plan.activation == "reload" else "restarted", runtime=plan.daemon.kind, unit=unit)


def _hang_up(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Send SIGHUP to the daemon. Raises Unavailable where another process has its PID by now."""
    began = plan.entry.process
    if not began.is_same(process_instance(system.host, began.pid)):
        raise Unavailable(f"the {plan.daemon.kind} with PID {began.pid} has ended")
    system.host.commands.run(["sh", "-c", f"kill -HUP {began.pid}"], timeout=30)


def prove(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Wait until the right process reports the right handlers. Raises CommandFailed with its last answer.

    A stop signal does not cut this short: containerd 1.6.9 and later may end our own pod when it comes back
    (gpu-operator#456).
    """
    last: list[str] = []
    for _ in poll(system.host.clock, system.patience(plan.daemon), every=INTERVAL):
        try:
            status = system.status(plan.daemon)
        except Unavailable as error:
            last = [error.brief, *error.details]
            continue
        last = status_problems(plan, status)
        if not last:
            log.info(
                "the runtime answers",
                runtime=plan.daemon.kind,
                pid=status.pid,
                handlers=",".join(status.handlers),
            )
            return
    raise CommandFailed(f"{plan.daemon.kind} did not come back with the new configuration", details=last)


def with_last_start(plan: ChangePlan, system: RuntimeSystem) -> RuntimeSystem:
    """The system, with what the daemon's unit needed to start the last time.

    Warns of a patience that was too short for that.
    """
    unit = system.unit(plan.daemon)
    system = replace(system, last_start=system.host.services.start_seconds(unit) if unit else 0.0)
    if system.last_start >= system.patience(plan.daemon):
        log.warning(
            "the patience is shorter than the runtime's last start; its change may be taken back for that",
            patience=system.patience(plan.daemon),
            last_start=round(system.last_start, 1),
            unit=unit,
        )
    return system


def restart_with_old_files(plan: ChangePlan, system: RuntimeSystem) -> float:
    """Have the daemon see its old files again, and wait until it answers: the seconds of that wait.

    Raises CommandFailed where it does not.
    """
    host, unit = system.host, system.unit(plan.daemon)
    if unit and plan.activation == "restart" and not system.request.restart_command:
        # the failed start counts against the unit's start limit: without this, systemd may refuse the next
        # one
        host.commands.run([*enter(host), "systemctl", "reset-failed", unit], check=False, timeout=30)
    activate(plan, system)
    begun, last = host.clock.monotonic(), list[str]()
    for _ in poll(system.host.clock, system.patience(plan.daemon), every=INTERVAL):
        try:
            system.status(plan.daemon)
        except Unavailable as error:
            last = [error.brief, *error.details]
            continue
        return host.clock.monotonic() - begun
    raise CommandFailed(f"{plan.daemon.kind} does not answer", details=last)


def status_problems(plan: ChangePlan, status: cri.RuntimeStatus) -> list[str]:
    """What is not as the plan says it shall be, a sentence each."""
    wrong = []
    if plan.activation == "restart" and status.pid == plan.daemon.pid:
        wrong.append(f"the process {status.pid} from before the restart still answers")
    missing = [
        f"{name} with {program}" for name, program in plan.present if not reports(status, name, program)
    ]
    wrong += [f"it does not report the handler {handler}" for handler in missing]
    wrong += [f"it still reports the handler {name}" for name in plan.absent if name in status.handlers]
    wrong += [f"it lost the handler {name}" for name in plan.others if name not in status.handlers]
    if plan.default and status.default and status.default != plan.default:
        wrong.append(f"its default handler is {status.default}, not {plan.default}")
    return wrong


def reports(status: cri.RuntimeStatus, name: str, program: str) -> bool:
    """Whether the daemon has the handler. What it does not tell is believed: a program (None), or all."""
    return status.believed((name,)).get(name, "") in (program, None)


def others_reported(
    status: cri.RuntimeStatus | None, after: Mapping[str, str], wanted: WantedHandlers
) -> tuple[str, ...]:
    """The handlers besides those of `wanted` that the daemon reports now, and shall report `after`."""
    reported = status.handlers if status else {}
    return tuple(name for name in reported if name in after and name not in wanted.names)


def last_log_lines(plan: ChangePlan, system: RuntimeSystem) -> list[str]:
    """The end of the daemon's own log."""
    kind, unit = plan.daemon.supervisor.kind, system.unit(plan.daemon)
    if kind in ("k3s", "rke2"):  # these keep containerd's log in a file
        path = f"/var/lib/rancher/{kind}/agent/containerd/containerd.log"
        if system.host.node.exists(path):
            return [f"{path}: {line}" for line in system.host.node.read_text(path).splitlines()[-LOG_LINES:]]
    return (
        [f"{unit}: {line}" for line in system.host.services.last_log_lines(unit, LOG_LINES)] if unit else []
    )
