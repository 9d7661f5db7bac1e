"""Plans for `runtime apply` and `runtime revert`: observe, take our earlier change away in thought, patch, ask the daemon's own program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import DriverforgeError, Unavailable, Unsupported, UsageError
from driverforge_node import log
from driverforge_node.host.ports import Host, Metadata
from driverforge_node.runtime import change, discover, journal, managed, restore, sources
from driverforge_node.runtime.change import Plan, System
from driverforge_node.runtime.daemon import check_config, not_running
from driverforge_node.runtime.difference import describe, differing
from driverforge_node.runtime.document import Path, dotted
from driverforge_node.runtime.effective import clear, effective
from driverforge_node.runtime.model import Activation, Backend, Daemon, Handler, Wanted
from driverforge_node.runtime.nvidia import is_nvidia
from driverforge_node.runtime.sources import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A daemon and its files, as they are and as they would be without us."""

    daemon: Daemon
    edit: Backend
    disk: Contents
    entry: journal.Entry | None
    base: Contents  # `disk` without what we wrote
    clean: Contents  # `base` as the daemon reads it at its next start
    kept: tuple[str, ...] = ()  # what others changed in what we wrote, which stays

    @property
    def settled(self) -> bool:
        """Whether the running daemon has what the journal says: also where somebody restarted it since (restart mode none)."""
        entry = self.entry
        return (
            entry is None
            or entry.state == "in force"
            or (entry.state == "written" and entry.pid not in (0, self.daemon.pid))
        )

    @property
    def never_read(self) -> bool:
        """Whether the running daemon has read none of our files: the change was cut off before it was told of them."""
        entry = self.entry
        if entry is None or entry.earlier is not None or not entry.pid or entry.pid != self.daemon.pid:
            return False
        # one that reloads may have done so with the same PID
        return entry.state == "prepared" or (entry.state == "written" and self.daemon.kind == "containerd")


def settle(system: System) -> None:
    """Take over from a driverctl that was killed: its restore on the node is taken back, or waited for. Needs the lock."""
    host = system.host
    clear(host)
    for name in host.node.list_dir(
        restore.FOLDER
    ):  # with the lock held, none of them is of a change under way
        for line in restore.settle(host, name):
            log.info("the node's restore did this while nobody was here", said=line)


def observe(system: System, daemon: Daemon, *, to_write: bool = False) -> Observed:
    """Raises InputError for broken files, Unsupported for those of another daemon where none of ours is to go or where one is to come."""
    host = system.host
    entry = journal.read(host, daemon.kind, daemon.config)
    if (
        to_write or entry is None
    ):  # what we once wrote can be taken back, also where the daemon reads another file by now
        check_config(host, daemon, system.request)
    disk = sources.read(host, daemon)
    edit = managed.backend(daemon, disk.get(daemon.config), host.node)
    written = tuple(file.path for file in entry.files) if entry else ()
    for path in (*edit.paths(daemon), *written):
        if path not in disk:
            disk[path] = sources.contents(host.node, path)
    base, kept = dict(disk), []
    for path in written:
        base[path], keys = without_us(edit, entry, path, disk[path])
        kept += [f"{path}: {dotted(key)} was changed by somebody else, and stays" for key in keys]
    clean = managed.without_us(edit, daemon, base, entry.names if entry else ())
    return Observed(
        daemon=daemon, edit=edit, disk=disk, entry=entry, base=base, clean=clean, kept=tuple(kept)
    )


def without_us(
    edit: Backend, entry: journal.Entry | None, path: str, current: bytes | None
) -> tuple[bytes | None, tuple[Path, ...]]:
    """A file without what `entry` says that we wrote, and the keys that others changed since."""
    file = entry.file(path) if entry else None
    if entry is None or file is None:
        return current, ()
    if current == file.written:
        return file.original, ()
    if (
        current == file.before and entry.state != "in force"
    ):  # that change never came to this file, or was taken back
        return without_us(edit, entry.earlier, path, current)
    undone = edit.undone(path, original=file.original, written=file.written, current=current)
    return undone.data, undone.kept


def apply_plan(system: System) -> Plan:
    """What to do for the daemon to have what is wanted. Changes nothing but the copies of a check.

    Raises Unsupported, InputError, Unavailable, CommandFailed.
    """
    host = system.host
    daemon = discover.choose(host, system.sockets, system.request)
    _check_fallback(system, daemon)
    seen = observe(system, daemon, to_write=True)
    wanted = replace(system.request.wanted, default=_default(system, seen))
    clean = effective(host, daemon, seen.clean, seen.disk)
    planned = {**seen.clean, **seen.edit.patched(daemon, seen.clean, clean, wanted)}
    then_read, now_read = managed.next_start(
        seen.edit, daemon, disk=seen.disk, clean=seen.clean, planned=planned, view=clean, wanted=wanted
    )
    now = clean if now_read == seen.clean else effective(host, daemon, now_read, seen.disk)
    after = now if then_read == now_read else effective(host, daemon, then_read, seen.disk)
    check_effective(seen.edit, daemon, (clean, after), wanted)
    status = system.status(daemon)  # after the files: they say why it serves no pods
    activation, why = _activation(seen, now, after, missed=_missed(seen))
    missing = [
        handler.name
        for handler in wanted.handlers
        if not change.reports(status, handler.name, handler.binary)
    ]
    if activation == "none" and missing:
        activation, why = _again(daemon), f"the running daemon does not have {', '.join(missing)} yet"
    ours = [
        path
        for path in seen.edit.paths(daemon)
        if path != daemon.config or not managed.generated(daemon, seen.disk[path])
    ]
    files = {path: planned[path] for path in ours}
    return Plan(
        daemon=daemon,
        entry=entry_of(host, seen, files, wanted),
        effective=lines(now, after),
        activation=activation,
        why=why,
        present=tuple((handler.name, handler.binary) for handler in wanted.handlers),
        default=wanted.default,
        notes=seen.kept,
    )


def _check_fallback(system: System, daemon: Daemon) -> None:
    """Raises Unavailable where docker is only what is left, since the runtime that we changed before is down."""
    down = (
        []
        if daemon.kind != "docker" or system.request.socket
        else discover.lost(system.host, system.sockets, system.request)
    )
    if down and journal.read(system.host, daemon.kind, daemon.config) is None:
        raise Unavailable(
            f"the {down[0].kind} at {down[0].socket}, which driverctl has changed before, does not run; docker is not taken in its place",
            details=[
                f"{journal.place(entry.kind, entry.config)}: {entry.kind} at {entry.socket}, {entry.config}"
                for entry in down
            ],
            resolution="start it, or put its files back and start it with `driverctl runtime revert`; if docker is meant, say so with "
            f"--socket {daemon.socket}; nothing was changed",
        )


def _default(system: System, seen: Observed) -> str:
    """The default handler to write: the wanted one; where nothing is said of it, the one that we made it before and that still is it."""
    wanted, ours = system.request.wanted, seen.entry.default if seen.entry else ""
    if wanted.default or wanted.release_default or ours not in (handler.name for handler in wanted.handlers):
        return wanted.default
    try:
        return ours if system.status(seen.daemon).default == ours else ""
    except DriverforgeError:
        return ""  # the files shall say first why it does not answer


def _activation(
    seen: Observed, now: Mapping[str, object], after: Mapping[str, object], *, missed: Activation
) -> tuple[Activation, str]:  # fmt: skip
    activation = seen.edit.activation(now, after)
    if (missed == "restart" and activation != "restart") or (missed == "reload" and activation == "none"):
        return missed, "an earlier change was not finished, and the daemon may run without it"
    return (
        activation,
        "the effective configuration stays"
        if activation == "none"
        else "the effective configuration changes",
    )


def _missed(seen: Observed, *, taken_back: bool = False) -> Activation:
    """What the running daemon needs at least, for an earlier change that it may not have heard of."""
    entry = seen.entry
    if entry is None or seen.settled:
        return "none"
    if (
        taken_back and entry.earlier is None
    ):  # it was not restarted since, and has nothing of it that only a restart takes away
        return _again(seen.daemon)
    return "restart" if entry.needs == "restart" else _again(seen.daemon)


def _again(daemon: Daemon) -> Activation:
    return "reload" if daemon.kind in ("docker", "crio") else "restart"


def check_effective(
    edit: Backend, daemon: Daemon, views: tuple[Mapping[str, object], Mapping[str, object]], wanted: Wanted
) -> None:
    """Raises Unsupported when the daemon would see anything else change than our keys, or would not see our handlers."""
    before, after = views
    if foreign := edit.foreign(before, after, wanted):
        raise Unsupported(
            f"refused: with NVIDIA's handlers, {daemon.kind} would see other settings change too",
            details=[describe(path, *pair) for path, pair in foreign.items()],
            resolution="nothing was changed; move these settings into one file, or report this configuration",
        )
    seen = edit.handlers(after)
    gone = [handler for handler in wanted.handlers if seen.get(handler.name) != handler.binary]
    if gone:
        raise Unsupported(
            f"refused: {daemon.kind} would not see the handler {gone[0].name}",
            details=[
                f"{handler.name}: {seen.get(handler.name, 'not there')}, not {handler.binary}"
                for handler in gone
            ],
            resolution="nothing was changed; another file of its configuration wins over ours (put all of it into one file), "
            "or ours has a higher version than the root file (driverctl doctor says so)",
        )


def lines(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    """The effective difference, a key a line."""
    return tuple(describe(path, old, new) for path, (old, new) in differing(before, after).items())


def entry_of(
    host: Host, seen: Observed, files: Mapping[str, bytes | None], wanted: Wanted | None = None
) -> journal.Entry:
    """The journal's entry of a change that makes `files`. What only the earlier change wrote is written back."""
    daemon, earlier = seen.daemon, seen.entry
    every = {**{file.path: seen.base[file.path] for file in (earlier.files if earlier else ())}, **files}
    changed = {path: data for path, data in every.items() if not data == seen.disk[path] == seen.base[path]}
    return journal.Entry(
        kind=daemon.kind, socket=daemon.socket, binary=daemon.binary, config=daemon.config, drop_in=daemon.drop_in,
        supervisor=daemon.supervisor, handlers=tuple((handler.name, handler.binary) for handler in (wanted.handlers if wanted else ())),
        default=wanted.default if wanted else "", wanted=wanted,
        files=tuple(
            journal.File(
                path=path, original=seen.base[path], written=data, before=seen.disk[path],
                metadata=_metadata(host, earlier, path),
            )
            for path, data in changed.items()
        ),
        state="prepared", pid=daemon.pid, folders=_folders(host, earlier, list(changed)), earlier=earlier,
    )  # fmt: skip


def _metadata(host: Host, earlier: journal.Entry | None, path: str) -> Metadata | None:
    """Whose the file is; of one that is gone, whose it was."""
    known = earlier.file(path) if earlier else None
    return host.node.metadata(path) or (known.metadata if known else None)


def _folders(host: Host, earlier: journal.Entry | None, paths: Sequence[str]) -> tuple[str, ...]:
    """Folders that have to be made, outermost first, and those that were."""
    found = list(earlier.folders) if earlier else []
    for path in paths:
        parts = path.split("/")[1:-1]
        every = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
        found += [folder for folder in every if folder not in found and not host.node.is_dir(folder)]
    return tuple(found)


def revert_plan(system: System) -> Plan | None:
    """What to do to undo our change; None where we have made none. Raises as apply_plan; changes nothing."""
    host = system.host
    try:
        daemon = discover.choose(host, system.sockets, system.request)
    except Unavailable as error:
        changed = discover.fitting(host, system.request)
        if len(changed) != 1:
            raise not_running(system.request.socket or "the known sockets", *error.details) from error
        return _rescue_plan(system, changed[0])
    if journal.read(host, daemon.kind, daemon.config) is None and (
        down := discover.lost(host, system.sockets, system.request)
    ):
        return _rescue_plan(system, _only(down))  # what runs is not what we changed
    seen = observe(system, daemon)
    if seen.entry is None:
        return None
    now = effective(host, daemon, seen.disk, seen.disk)
    after = now if seen.clean == seen.disk else effective(host, daemon, seen.clean, seen.disk)
    absent = tuple(name for name in seen.entry.names if name not in seen.edit.handlers(after))
    activation, why = _activation(seen, now, after, missed=_missed(seen, taken_back=True))
    if seen.never_read:
        activation, why = "none", "the running daemon never read our files"
    there = _reported(system, daemon)
    if activation == "none" and any(name in there for name in absent):
        activation, why = _again(daemon), "the running daemon still has our handlers"
    return Plan(
        daemon=daemon, entry=entry_of(host, seen, {}), effective=lines(now, after),
        activation=activation, why=why, absent=absent, keep=False, notes=seen.kept,
    )  # fmt: skip


def _reported(system: System, daemon: Daemon) -> set[str]:
    """Handlers of the running daemon; none where it does not answer, be it for our change."""
    try:
        return set(system.status(daemon).handlers)
    except DriverforgeError:
        return set()


def _only(down: Sequence[journal.Entry]) -> journal.Entry:
    if len(down) > 1:
        raise UsageError(
            "several container runtimes that driverctl has changed do not run",
            details=[f"{entry.socket}: {entry.kind}, {entry.config}" for entry in down],
            resolution="say which one with --socket; nothing was changed",
        )
    return down[0]


def _rescue_plan(system: System, entry: journal.Entry) -> Plan:
    """The plan for a daemon that does not run, be it for our change: the files as they were, and a start."""
    daemon = entry.daemon()
    seen = observe(system, daemon)
    return Plan(
        daemon=daemon, entry=entry_of(system.host, seen, {}), effective=(), activation="restart",
        why="it does not run", keep=False, notes=seen.kept,
    )  # fmt: skip


def strip_plan(system: System) -> Plan | None:
    """What to do to take out NVIDIA's handlers that somebody else wrote; None where there are none."""
    host = system.host
    daemon = discover.choose(host, system.sockets, system.request)
    seen = observe(system, daemon)
    now = effective(host, daemon, seen.disk, seen.disk)
    found = foreign_handlers(seen.edit, now)
    if not found:
        return None
    planned = {**seen.disk, **seen.edit.stripped(daemon, seen.disk, tuple(found))}
    after = effective(host, daemon, planned, seen.disk)
    wanted = Wanted(handlers=tuple(Handler(name=name, binary=program) for name, program in found.items()))
    if foreign := seen.edit.foreign(now, after, wanted):
        raise Unsupported(
            f"refused: without NVIDIA's handlers, {daemon.kind} would see other settings change too",
            details=[describe(path, *pair) for path, pair in foreign.items()],
            resolution="nothing was changed; take them out by hand",
        )
    left = [name for name in found if name in seen.edit.handlers(after)]
    stripped = replace(seen, base=planned)
    files = {path: data for path, data in planned.items() if data != seen.disk[path]}
    return Plan(
        daemon=daemon, entry=entry_of(host, stripped, files), effective=lines(now, after),
        activation=seen.edit.activation(now, after), why="the effective configuration changes", keep=False,
        absent=tuple(name for name in found if name not in left), notes=tuple(f"{name} is still there" for name in left),
    )  # fmt: skip


def foreign_handlers(edit: Backend, view: Mapping[str, object]) -> dict[str, str]:
    """NVIDIA's handlers that a daemon sees, whoever wrote them."""
    return {name: program for name, program in edit.handlers(view).items() if is_nvidia(name, program)}
