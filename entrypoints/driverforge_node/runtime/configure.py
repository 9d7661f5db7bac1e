"""Plans for `runtime apply` and `runtime revert`: observe, patch, validate with the daemon's own binary."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_core.errors import Unavailable
from driverforge_node import log
from driverforge_node.host.ports import Host
from driverforge_node.runtime import change, journal
from driverforge_node.runtime import inplace as containerd
from driverforge_node.runtime.daemon import CONFIG, Daemon, check_version, effective, find, not_running
from driverforge_node.runtime.document import Change, dotted, edit, parse, table_at
from driverforge_node.runtime.inplace import Handler

EMPTY = b"version = 2\n"  # what containerd makes of no file at all


def apply_plan(runtime: change.Runtime, handlers: Sequence[Handler], config: str) -> tuple[change.Plan, journal.Entry]:
    """What to do for the daemon to have `handlers`. Raises Unsupported, InputError, Unavailable, CommandFailed; changes nothing."""
    host = runtime.host
    daemon = _find(runtime, config)
    check_version(host, daemon)
    current = _read(host, daemon.config)
    before = _effective(host, daemon, EMPTY if current is None else current)
    data = containerd.patched(current or b"", before, handlers, daemon.config)
    after = before if data == current else _effective(host, daemon, data)
    containerd.check_effective(before, after, handlers, daemon.config)
    seen = runtime.status().handlers
    plan = change.Plan(
        daemon=daemon,
        before=current,
        data=data,
        effective=_lines(before, after),
        present=tuple((handler.name, handler.binary) for handler in handlers),
        restart=bool(containerd.effective_changes(before, after)) or any(seen.get(handler.name) != handler.binary for handler in handlers),
    )
    return plan, _entry(host, daemon, current, data)


def _entry(host: Host, daemon: Daemon, current: bytes | None, data: bytes) -> journal.Entry:
    """The journal entry to keep: the original of the first change, with what others changed since taken over."""
    earlier = journal.read(host, daemon.config)
    original, owner = current, journal.owner(host, daemon.config)
    if earlier is not None and current is not None:
        original, owner = earlier.original, earlier.owner
        if current != earlier.written:
            original = containerd.undo(earlier.original or b"", earlier.written, current, daemon.config).data
    return journal.Entry(path=daemon.config, original=original, written=data, owner=owner, unit=daemon.unit)


def revert_plan(runtime: change.Runtime, handlers: Sequence[Handler], config: str) -> tuple[change.Plan, journal.Entry] | None:
    """What to do to undo our change; None where we have made none. Raises as apply_plan; changes nothing."""
    host = runtime.host
    try:
        daemon = _find(runtime, config)
    except Unavailable:
        return _rescue_plan(runtime, handlers, config or CONFIG)
    entry = journal.read(host, daemon.config)
    if entry is None:
        return None
    current = _read(host, daemon.config)
    data = _undone(current, entry)
    before = _effective(host, daemon, EMPTY if current is None else current)
    after = before if data == current else _effective(host, daemon, EMPTY if data is None else data)
    reports = runtime.status().handlers
    wanted = _names(after)
    plan = change.Plan(
        daemon=daemon,
        before=current,
        data=data,
        effective=_lines(before, after),
        present=(),
        absent=tuple(handler.name for handler in handlers if handler.name not in wanted),
        restart=bool(containerd.effective_changes(before, after))
        or any(handler.name in reports and handler.name not in wanted for handler in handlers),
    )
    return plan, entry


def _rescue_plan(runtime: change.Runtime, handlers: Sequence[Handler], config: str) -> tuple[change.Plan, journal.Entry]:
    """The plan for a daemon that does not run, be it for our change: the file as it was, and a start.

    Raises Unavailable where we have changed nothing.
    """
    entry = journal.read(runtime.host, config)
    if entry is None:
        raise not_running(runtime.socket)
    current = _read(runtime.host, config)
    plan = change.Plan(
        daemon=Daemon(pid=0, binary="containerd (does not run)", config=config, unit=entry.unit),
        before=current,
        data=_undone(current, entry),
        effective=(),
        present=(),
        absent=tuple(handler.name for handler in handlers) if current == entry.written else (),
        restart=True,
    )
    return plan, entry


def _undone(current: bytes | None, entry: journal.Entry) -> bytes | None:
    """The file without our change; None where it goes away."""
    if current is None:
        return None  # somebody removed the file: nothing of ours is left in it
    if current == entry.written:
        return entry.original
    undone = containerd.undo(entry.original or b"", entry.written, current, entry.path)
    for path in undone.kept:
        log.warning("kept what somebody else changed since", key=dotted(path))
    return undone.data or entry.original


def _find(runtime: change.Runtime, config: str) -> Daemon:
    try:
        return find(runtime.host, runtime.sockets, runtime.socket, config)
    except Unavailable as error:
        raise not_running(runtime.socket, *error.details) from error


def _read(host: Host, path: str) -> bytes | None:
    try:
        return host.node.read_bytes(path)
    except FileNotFoundError:
        return None


def _effective(host: Host, daemon: Daemon, data: bytes) -> dict[str, object]:
    """The effective configuration, of a copy whose relative imports are absolute: the copy comes from no folder."""
    imports = parse(data, daemon.config).get("imports", [])
    if isinstance(imports, list) and any(not str(path).startswith("/") for path in imports):
        folder = daemon.config.rpartition("/")[0]
        absolute = [str(path) if str(path).startswith("/") else f"{folder}/{path}" for path in imports]
        data = edit(data, [Change(path=("imports",), value=absolute)], daemon.config)
    return effective(host, daemon, data)


def _names(config: dict[str, object]) -> set[str]:
    return set(table_at(config, containerd.RUNTIMES, "containerd's effective configuration"))


def _lines(before: dict[str, object], after: dict[str, object]) -> tuple[str, ...]:
    changes = containerd.effective_changes(before, after)
    return tuple(containerd.describe(path, old, new) for path, (old, new) in changes.items())
