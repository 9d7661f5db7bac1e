"""The transaction: journal, host-side restore, writes, restart, proof that the runtime lives; else everything is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_node import log
from driverforge_node.host.ports import Host, Metadata
from driverforge_node.runtime import cri, discover, journal, restore, sources
from driverforge_node.runtime.daemon import enter
from driverforge_node.runtime.model import Activation, Daemon
from driverforge_node.runtime.ports import Sockets
from driverforge_node.runtime.request import Request
from driverforge_node.runtime.supervisor import SLOW

LOG_LINES = 15
PATIENCE = 60.0  # containerd needs about one second
RESTART = 180.0  # systemd gives a unit 90 seconds to stop and 90 to start
BESIDE = (
    120  # seconds of a change and of its rollback for all that is no restart and no waiting for an answer
)
INTERVAL = 0.25
UNITS = {"containerd": "containerd.service", "crio": "crio.service", "docker": "docker.service"}


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """All that a change needs: the node, the way to its daemons, and what the user asks for."""

    host: Host
    sockets: Sockets
    request: Request

    def status(self, daemon: Daemon) -> cri.RuntimeStatus:
        return discover.status(self.host, self.sockets, daemon)

    def patience(self, daemon: Daemon) -> float:
        return self.request.patience or SLOW.get(daemon.supervisor.kind, PATIENCE)

    def restart_timeout(self, daemon: Daemon) -> float:
        """Seconds for the restart command itself: that of a Type=notify unit takes as long as the daemon's start does."""
        return max(RESTART, self.patience(daemon))

    def deadline(self, daemon: Daemon) -> int:
        """Seconds until the node takes us for hung: more than a change, its proof, the restart of a rollback and the wait for that take."""
        return int(2 * (self.restart_timeout(daemon) + self.patience(daemon))) + BESIDE

    def unit(self, daemon: Daemon) -> str:
        asked = UNITS[daemon.kind] if self.request.restart_mode == "systemd" else ""
        return daemon.supervisor.unit or asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change that was validated and not yet made."""

    daemon: Daemon
    entry: journal.Entry  # its files are the change; None as `written` means that a file goes away
    effective: tuple[str, ...]  # keys whose value the daemon will see differently
    activation: Activation
    why: str  # of the activation
    present: tuple[
        tuple[str, str], ...
    ] = ()  # handlers (name, program) that the daemon shall report afterwards
    absent: tuple[str, ...] = ()  # handlers that it shall not report
    default: str = ""  # the default handler that it shall report, '' for any
    keep: bool = True  # whether a journal entry stays: not after a revert
    notes: tuple[str, ...] = ()  # for people

    @property
    def writes(self) -> tuple[journal.File, ...]:
        return tuple(file for file in self.entry.files if file.before != file.written)

    @property
    def settled(self) -> bool:
        """Nothing is to be done, the journal included."""
        earlier = self.entry.earlier
        if self.writes or self.activation != "none":
            return False
        if earlier is None:
            return not self.entry.files
        return self.keep and earlier.state == "in force" and _lasting(earlier) == _lasting(self.entry)


def _lasting(entry: journal.Entry) -> object:
    files = tuple((file.path, file.original, file.written) for file in entry.files)
    return files, entry.handlers, entry.socket, entry.supervisor


def restart_words(plan: Plan, system: System) -> str:
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
        if mode == "signal" and plan.daemon.pid
        else "needs --restart-command"
    )


def check_restart(plan: Plan, system: System) -> None:
    """Raises Unsupported before anything is written when nobody could restart the daemon."""
    request = system.request
    if (
        plan.activation != "restart"
        or request.restart_command
        or request.restart_mode == "none"
        or system.unit(plan.daemon)
    ):
        return
    if request.restart_mode == "signal" and plan.daemon.pid:
        return
    if not plan.daemon.pid:  # and a signal to process 0 would be one to ourselves
        raise Unsupported(
            f"this {plan.daemon.kind} does not run, and driverctl does not know how to start it",
            details=plan.daemon.evidence,
            resolution="give --restart-command with what starts it on this node, or --restart-mode none to have its files put back only; "
            "nothing was changed",
        )
    raise Unsupported(
        f"this {plan.daemon.kind} is not run by systemd, so driverctl does not know how to restart it",
        details=plan.daemon.evidence,
        resolution="give --restart-command with what stops and starts it on this node; nothing was changed",
    )


def carry_out(plan: Plan, system: System) -> None:
    """Make the change. Raises CommandFailed with the daemon's own words when it does not come back; the old bytes are back then."""
    check_restart(plan, system)
    if plan.settled:
        return
    host = system.host
    host.clock.wait(0)  # from here on a stop signal does not end us between write and restart
    active = plan.activation != "none" and system.request.restart_mode != "none"
    guarded = active and bool(plan.writes) and plan.daemon.pid != 0
    entry = replace(
        plan.entry, state="prepared", needs=plan.activation, restore=restore.new_name(host) if guarded else ""
    )
    journal.write(host, entry)
    begun: list[journal.File] = []
    try:
        if guarded:
            _arm(plan, system, entry)
        for file in plan.writes:
            check_unchanged(host, file)
            begun.append(file)
            put(host, file.path, file.written, file.metadata)
            log.info("wrote" if file.written is not None else "removed", file=file.path)
        entry = replace(entry, state="written")
        journal.write(host, entry)
    except DriverforgeError as error:
        raise _restored(plan, system, error, entry, begun, active=False) from error
    try:
        if active:
            activate(plan, system)
            prove(plan, system)
        if guarded:
            restore.disarm(host, entry.restore)
    except DriverforgeError as error:
        raise _restored(plan, system, error, entry, begun, active=active) from error
    _finish(plan, system, replace(entry, restore=""), active=active)


def check_unchanged(host: Host, file: journal.File) -> None:
    """Raises TemporaryFailure for a file that is not what the plan was made from."""
    if sources.contents(host.node, file.path) != file.before:
        raise TemporaryFailure(
            f"{file.path} was changed by somebody else just now",
            resolution="run this again: it is planned anew, with that change in it",
        )


def _arm(plan: Plan, system: System, entry: journal.Entry) -> None:
    restore.arm(
        system.host, entry.restore, plan.writes, folders=entry.folders, daemon=plan.daemon.pid,
        restart=restart_shell(plan, system), reloads=plan.activation == "reload", patience=system.deadline(plan.daemon),
    )  # fmt: skip


def _finish(plan: Plan, system: System, entry: journal.Entry, *, active: bool) -> None:
    pending = plan.activation != "none" and not active
    if plan.keep:
        journal.write(system.host, replace(entry, state="written" if pending else "in force", earlier=None))
    else:
        for folder in reversed(plan.entry.earlier.folders if plan.entry.earlier else ()):
            if system.host.node.is_dir(folder) and not system.host.node.list_dir(folder):
                system.host.node.remove_tree(folder)
        journal.remove(system.host, entry.kind, entry.config)
    if pending:
        log.warning(
            "written, and not in force until the runtime is restarted (restart mode none)",
            runtime=plan.daemon.kind,
        )


def put(host: Host, path: str, data: bytes | None, metadata: Metadata | None) -> None:
    """Write a file of the node, or take it away (None). One that is there keeps its mode and owner; a new one gets `metadata`."""
    if data is None:
        host.node.remove(host.node.resolve(path))
        return
    new = not host.node.exists(path)
    host.node.make_dirs(path.rpartition("/")[0])
    host.node.write_atomic(path, data)
    if new and metadata is not None:
        host.node.set_metadata(path, metadata)


def restart_shell(plan: Plan, system: System) -> str:
    """The restart as a shell command, for the node's own restore."""
    unit = system.unit(plan.daemon)
    again = f"systemctl reset-failed {unit} 2>/dev/null\nsystemctl restart {unit}" if unit else ":"
    again = system.request.restart_command or again
    return (
        f"kill -HUP {plan.daemon.pid} 2>/dev/null && return\n{again}"
        if plan.activation == "reload"
        else again
    )


def activate(plan: Plan, system: System) -> None:
    """Have the daemon see its files, the way that it really supports."""
    host, unit, timeout = system.host, system.unit(plan.daemon), system.restart_timeout(plan.daemon)
    if plan.activation == "restart" and system.request.restart_command:
        host.commands.run([*enter(host), "sh", "-c", system.request.restart_command], timeout=timeout)
    elif plan.activation == "restart" and unit:
        host.services.restart(unit, timeout=timeout)
    else:
        host.commands.run(["sh", "-c", f"kill -HUP {plan.daemon.pid}"], timeout=30)
    log.info("reloaded" if plan.activation == "reload" else "restarted", runtime=plan.daemon.kind, unit=unit)


def prove(plan: Plan, system: System) -> None:
    """Wait until the right process reports the right handlers. Raises CommandFailed with its last answer.

    A stop signal does not cut this short: containerd 1.6.9 and later may end our own pod when it comes back (gpu-operator#456).
    """
    last: list[str] = []
    for _ in looks(system, system.patience(plan.daemon)):
        try:
            status = system.status(plan.daemon)
        except Unavailable as error:
            last = [error.brief, *error.details]
            continue
        last = problems(plan, status)
        if not last:
            log.info(
                "the runtime answers",
                runtime=plan.daemon.kind,
                pid=status.pid,
                handlers=",".join(status.handlers),
            )
            return
    raise CommandFailed(f"{plan.daemon.kind} did not come back with the new configuration", details=last)


def looks(system: System, patience: float) -> Iterator[None]:
    """At once and then every INTERVAL, until `patience` seconds have passed."""
    clock = system.host.clock
    end = clock.monotonic() + patience
    yield
    while clock.monotonic() < end:
        clock.pause(INTERVAL)
        yield


def problems(plan: Plan, status: cri.RuntimeStatus) -> list[str]:
    """What is not as it shall be."""
    wrong = []
    if plan.activation == "restart" and status.pid == plan.daemon.pid:
        wrong.append(f"the process {status.pid} from before the restart still answers")
    missing = [
        f"{name} with {program}" for name, program in plan.present if not reports(status, name, program)
    ]
    wrong += [f"it does not report the handler {handler}" for handler in missing]
    wrong += [f"it still reports the handler {name}" for name in plan.absent if name in status.handlers]
    if plan.default and status.default and status.default != plan.default:
        wrong.append(f"its default handler is {status.default}, not {plan.default}")
    return wrong


def reports(status: cri.RuntimeStatus, name: str, program: str) -> bool:
    """Whether the daemon has the handler; one that tells no programs (None) is believed."""
    return name in status.handlers and status.handlers[name] in (program, None)


def _restored(
    plan: Plan,
    system: System,
    error: DriverforgeError,
    entry: journal.Entry,
    begun: Sequence[journal.File],
    *,
    active: bool,
) -> DriverforgeError:
    """Put the old files in force again, those that were `begun`; the error to raise, with the daemon's own log lines."""
    host, kind = system.host, plan.daemon.kind
    problems: list[str] = []
    left = _put_back(plan, host, begun, problems)
    words: list[str] = []  # evidence, which must not stand in the way of the files
    if active:
        _try(words, lambda: words.extend(last_words(plan, system)))
    details = [error.brief, *error.details, *words]
    details += [f"{path} was changed by somebody else meanwhile, and stays so" for path in left]
    if problems:  # the journal keeps the old bytes, and the restore stays armed: the node may be able to what we are not
        return CommandFailed(
            "the change failed, and not all of the old files could be put back",
            details=[*details, *problems],
            resolution="make these files writable, then `driverctl runtime revert`: the journal has the old bytes",
        )
    alive = not active or _try(problems, lambda: _again(plan, system))
    if entry.restore:
        _try(problems, lambda: restore.disarm(host, entry.restore))
    if alive:
        if not left:  # else a revert needs it, to take ours out of their file
            _try(problems, lambda: _journal_back(plan, host))
        said = "the old configuration is in force again" if active else "the old files are back"
        return CommandFailed(
            f"{kind} did not accept the change; {said}" if active else f"the change was not made; {said}",
            details=[*details, *problems],
            resolution=error.resolution or _next_step(kind, left),
        )
    return CommandFailed(
        f"{kind} did not accept the change, and does not answer with the old configuration either",
        details=[*details, *problems],
        resolution=f"the old files are back; look at journalctl -u {system.unit(plan.daemon) or kind} and start it",
    )


def _next_step(kind: str, left: Sequence[str]) -> str:
    if left:
        return "`driverctl runtime apply` plans it anew with their changes, `driverctl runtime revert` takes ours out of these files"
    return f"see {kind}'s own message above; the node is as it was"


def _try(problems: list[str], step: Callable[[], None]) -> bool:
    try:
        step()
    except DriverforgeError as error:
        problems += [error.brief, *error.details]
        return False
    return True


def _put_back(plan: Plan, host: Host, begun: Sequence[journal.File], problems: list[str]) -> list[str]:
    """The old bytes of every file that has ours; what stands in the way of one does not keep the next from coming back.

    Paths that have neither the old bytes nor ours: somebody else's, which stay.
    """
    left: list[str] = []
    for file in reversed(begun):
        _try(problems, partial(_put_file_back, host, file, left))
    for folder in reversed(plan.entry.folders):
        if host.node.is_dir(folder) and not host.node.list_dir(folder):
            _try(problems, partial(host.node.remove_tree, folder))
    return left


def _put_file_back(host: Host, file: journal.File, left: list[str]) -> None:
    current = sources.contents(host.node, file.path)
    if current not in (file.before, file.written):
        left.append(file.path)
    elif current != file.before:
        put(host, file.path, file.before, file.metadata)


def _journal_back(plan: Plan, host: Host) -> None:
    if plan.entry.earlier is None:
        journal.remove(host, plan.entry.kind, plan.entry.config)
    else:
        journal.write(host, plan.entry.earlier)


def _again(plan: Plan, system: System) -> None:
    """Restart with the old files, and wait for an answer. Raises CommandFailed."""
    host, unit = system.host, system.unit(plan.daemon)
    if unit and plan.activation == "restart" and not system.request.restart_command:
        host.commands.run(
            [*enter(host), "systemctl", "reset-failed", unit], check=False, timeout=30
        )  # or systemd counts this one too
    activate(plan, system)
    last: list[str] = []
    for _ in looks(system, system.patience(plan.daemon)):
        try:
            system.status(plan.daemon)
        except Unavailable as error:
            last = [error.brief, *error.details]
            continue
        return
    raise CommandFailed(f"{plan.daemon.kind} does not answer", details=last)


def last_words(plan: Plan, system: System) -> list[str]:
    """The end of the daemon's own log."""
    kind, unit = plan.daemon.supervisor.kind, system.unit(plan.daemon)
    if kind in ("k3s", "rke2"):  # these keep containerd's log in a file
        path = f"/var/lib/rancher/{kind}/agent/containerd/containerd.log"
        if system.host.node.exists(path):
            return [f"{path}: {line}" for line in system.host.node.read_text(path).splitlines()[-LOG_LINES:]]
    return (
        [f"{unit}: {line}" for line in system.host.services.last_log_lines(unit, LOG_LINES)] if unit else []
    )
