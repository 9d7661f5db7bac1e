"""Plans for `runtime apply`, `revert` and `revert --strip`.

Each observes the daemon, takes our earlier change out in thought, changes the files in thought, and asks the
daemon's own program what it makes of them. Nothing is written but the copies for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from driverforge_core.errors import DriverforgeError, Unavailable, Unsupported, UsageError
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import distributions
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.find import cri, selection
from driverforge_toolkit.runtime.find.daemon import not_running
from driverforge_toolkit.runtime.formats.values import describe
from driverforge_toolkit.runtime.model import Activation, Handler, RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.request import wanted_handlers
from driverforge_toolkit.runtime.transaction.activation import others_reported, reports
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from driverforge_toolkit.runtime.transaction.consequences import (
    changed_handlers,
    check_effective,
    check_programs,
    check_servable,
    effective_lines,
    lost_defaults,
    mended_fault,
)
from driverforge_toolkit.runtime.transaction.entry import entry_of
from driverforge_toolkit.runtime.transaction.held import (
    HeldHandlers,
    held_handlers,
    held_note,
    needed_handlers,
    pods_that_lose_theirs,
)
from driverforge_toolkit.runtime.transaction.next_start import check_restart, check_there
from driverforge_toolkit.runtime.transaction.observed import (
    ObservedRuntime,
    nvidia_handlers_of,
    observe_runtime,
    with_adopted_files,
    with_drop_in_placed,
)
from driverforge_toolkit.runtime.transaction.stopped import not_running_since, select_daemon


def apply_plan(system: RuntimeSystem) -> ChangePlan:
    """What to do for the daemon to have what is wanted.

    Raises Unavailable where no runtime runs, InputError for broken files, Unsupported where there is no
    correct result, and CommandFailed.
    """
    host = system.host
    daemon = select_daemon(system)
    _check_fallback(system, daemon)
    seen = with_adopted_files(observe_runtime(system, daemon, to_write=True))
    check_there(host, daemon, seen.clean)
    wanted = replace(system.request.wanted, default=_default(system, seen))
    clean = effective_configuration(host, daemon, seen.clean, seen.disk)
    held = held_handlers(host, seen, clean, besides=wanted.names)
    wanted = replace(wanted, handlers=(*wanted.handlers, *held.handlers))
    check_programs(host, daemon, wanted)
    seen = with_drop_in_placed(system, seen)
    daemon = seen.daemon
    planned = {**seen.clean, **seen.edit.patched(daemon, seen.clean, clean, wanted)}
    then_read, now_read = distributions.at_next_start(
        seen.edit, daemon, disk=seen.disk, clean=seen.clean, planned=planned, view=clean, wanted=wanted
    )
    now = clean if now_read == seen.clean else effective_configuration(host, daemon, now_read, seen.disk)
    after = now if then_read == now_read else effective_configuration(host, daemon, then_read, seen.disk)
    check_effective(seen.edit, daemon, (clean, after), wanted)
    check_servable(seen.edit, daemon, now, after, files=seen.clean)
    status = _status(system, seen, now)  # after the files: they say why it serves no pods
    activation, why = _activation(seen, now, after, missed=_missed(seen))
    missing = [
        handler.name
        for handler in wanted.handlers
        if status is not None and not reports(status, handler.name, handler.binary)
    ]
    if activation == "none" and missing:
        activation, why = _again(daemon), f"the running daemon does not have {', '.join(missing)} yet"
    news = check_restart(host, seen, activation, (then_read, after), (now_read, now))
    ours = [
        path
        for path in seen.edit.paths(daemon)
        if path != daemon.config or not distributions.is_generated(daemon, seen.disk[path].data)
    ]
    files = {path: planned[path] for path in ours}
    return ChangePlan(
        daemon=daemon,
        entry=entry_of(host, seen, files, wanted),
        effective=effective_lines(now, after),
        activation=activation,
        why=why,
        undo="none" if activation == "none" else _activation(seen, after, clean, missed="none")[0],
        present=tuple((handler.name, handler.binary) for handler in wanted.handlers),
        others=others_reported(status, seen.edit.handlers(after), wanted) if daemon.kind == "docker" else (),
        default=wanted.default,
        notes=(
            *filter(None, [selection.contradiction(host, daemon, system.request)]),
            *held.notes,
            *seen.kept,
            *news,
            *mended_fault(seen.edit, daemon, now),
            *changed_handlers(seen.edit, clean, after, wanted),
        ),
        read=seen.disk,
    )


def _status(
    system: RuntimeSystem, seen: ObservedRuntime, now: Mapping[str, object]
) -> cri.RuntimeStatus | None:
    """What the running daemon reports; None where it serves no pods for a fault that its files have `now`.

    Raises Unavailable where it does not answer for any other reason.
    """
    try:
        return system.status(seen.daemon)
    except cri.PluginNotLoaded as error:
        if seen.edit.unservable(now):
            return None
        unit = system.unit(seen.daemon)
        known = f"systemctl restart {unit}" if unit else "by what runs it"
        restart = system.request.restart_command or known
        raise Unavailable(
            error.brief,
            details=[*error.details, f"{seen.daemon.config} and what it imports have its default runtime"],
            resolution=f"restart it, if they were mended since it started ({restart}); {error.resolution}",
        ) from error


def _check_fallback(system: RuntimeSystem, daemon: RuntimeDaemon) -> None:
    """Raises Unavailable if docker was chosen only because the runtime that we changed before is down."""
    down = (
        []
        if daemon.kind != "docker" or system.request.socket
        else selection.entries_of_stopped(system.host, system.sockets, system.request)
    )
    if down and journal.read_entry(system.host, daemon.kind, daemon.config) is None:
        raise not_running_since(
            down,
            then="; driverctl does not use docker instead",
            way_on=f"; if docker is meant, say so with --socket {daemon.socket}",
        )


def _default(system: RuntimeSystem, seen: ObservedRuntime) -> str:
    """The default handler to write.

    The wanted one. Where nothing is said of it: the one that we made the default before, if it still is that.
    """
    wanted, ours = system.request.wanted, seen.entry.default if seen.entry else ""
    if wanted.default or wanted.release_default or ours not in (handler.name for handler in wanted.handlers):
        return wanted.default
    try:
        return ours if system.status(seen.daemon).default == ours else ""
    except DriverforgeError:
        return ""  # the files shall say first why it does not answer


def _activation(
    seen: ObservedRuntime, now: Mapping[str, object], after: Mapping[str, object], *, missed: Activation
) -> tuple[Activation, str]:
    """What the daemon needs to go from `now` to `after`, and why; at least what it `missed` earlier."""
    activation = seen.edit.activation(now, after)
    if activation == "reload":
        activation = _again(seen.daemon)
    if journal.ACTIVATIONS.index(missed) > journal.ACTIVATIONS.index(activation):
        return missed, "an earlier change was not finished, and the daemon may run without it"
    return (
        activation,
        "the effective configuration stays"
        if activation == "none"
        else "the effective configuration changes",
    )


def _missed(seen: ObservedRuntime, *, taken_back: bool = False) -> Activation:
    """What the running daemon needs at least, for an earlier change that it may not have heard of.

    `taken_back`: that change is to be reverted.
    """
    entry = seen.entry
    if entry is None or seen.settled:
        return "none"
    # it was not restarted since, and has nothing of it that only a restart takes away
    if taken_back and entry.earlier is None:
        return _again(seen.daemon)
    return "restart" if entry.needs == "restart" else _again(seen.daemon)


def _again(daemon: RuntimeDaemon) -> Activation:
    """What makes the daemon read its files again: as little as it allows."""
    return "reload" if daemon.reloads else "restart"


def revert_plan(system: RuntimeSystem, *, strip: bool = False) -> ChangePlan | None:
    """What to do to undo our change; None where we have made none. Raises as `apply_plan`.

    `strip`: a default that somebody else set to a handler of ours goes out too, where nobody has that then.
    A daemon that does not run is known by its journal entry: then the plan puts its files back and starts it.
    """
    host = system.host
    try:
        daemon = selection.select(host, system.sockets, system.request)
    except Unavailable as error:
        changed = selection.fitting_entries(host, system.request)
        told = selection.kubelet_endpoint(host)
        changed = [entry for entry in changed if told and entry.socket == told.socket] or changed
        if len(changed) != 1:
            raise not_running(system.request.socket or "the known sockets", *error.details) from error
        return _rescue_plan(system, *changed)
    if journal.read_entry(host, daemon.kind, daemon.config) is None and (
        down := selection.entries_of_stopped(host, system.sockets, system.request)
    ):
        return _rescue_plan(system, _only(down))  # what runs is not what we changed
    seen = observe_runtime(system, daemon)
    if seen.entry is None:
        return None
    ours = seen.entry.names
    check_there(host, daemon, seen.clean)
    now = effective_configuration(host, daemon, seen.disk, seen.disk)
    clean = now if seen.clean == seen.disk else effective_configuration(host, daemon, seen.clean, seen.disk)
    if strip and (lost := lost_defaults(seen.edit, seen.clean, clean)):
        seen = _stripped(seen, lost)
        clean = effective_configuration(host, daemon, seen.clean, seen.disk)
    held = held_handlers(host, seen, clean)
    if held.handlers:
        return _partial_revert(system, seen, (now, clean), held)
    absent = tuple(name for name in ours if name not in seen.edit.handlers(clean))
    _check_reverted(seen, now, clean)
    activation, why = _activation(seen, now, clean, missed=_missed(seen, taken_back=True))
    if seen.never_read:
        activation, why = "none", "the running daemon never read our files"
    there = _reported(system, daemon)
    if activation == "none" and there is None:
        activation, why = "restart", "the running daemon has not loaded its CRI plugin"
    if activation == "none" and any(name in (there or ()) for name in absent):
        activation, why = _again(daemon), "the running daemon still has our handlers"
    news = check_restart(host, seen, activation, (seen.clean, clean), (seen.disk, now))
    return ChangePlan(
        daemon=daemon,
        entry=entry_of(host, seen, seen.base),
        effective=effective_lines(now, clean),
        activation=activation,
        why=why,
        absent=absent,
        keep=False,
        notes=(*seen.kept, *news),
    )


def _stripped(seen: ObservedRuntime, names: tuple[str, ...]) -> ObservedRuntime:
    """The same without the handlers `names`, whoever wrote them, and without a default of these names."""
    clean = {**seen.clean, **seen.edit.stripped(seen.daemon, seen.clean, names)}
    changed = {path: file for path, file in clean.items() if file != seen.clean.get(path)}
    return replace(seen, base={**seen.base, **changed}, clean=clean)


def _check_reverted(seen: ObservedRuntime, now: Mapping[str, object], clean: Mapping[str, object]) -> None:
    """Raises Unsupported if the daemon could not serve pods without our change."""
    way_out = (
        "`driverctl runtime revert --strip` takes that default out too; `driverctl runtime apply` brings the "
        "handlers back"
        if lost_defaults(seen.edit, seen.clean, clean)
        else ""
    )
    check_servable(seen.edit, seen.daemon, now, clean, files=seen.clean, way_out=way_out)


def _partial_revert(
    system: RuntimeSystem,
    seen: ObservedRuntime,
    views: tuple[Mapping[str, object], Mapping[str, object]],
    held: HeldHandlers,
) -> ChangePlan:
    """A revert that leaves the handlers that pods still use, and our journal with them.

    `views` is what the daemon sees now, and what it would without anything of ours.
    """
    (now, clean), daemon, entry = views, seen.daemon, seen.entry
    asked = entry.wanted if entry and entry.wanted else wanted_handlers()
    wanted = replace(asked, handlers=held.handlers, default="", release_default=False)
    planned = seen.edit.patched(daemon, seen.clean, clean, wanted)
    after = effective_configuration(system.host, daemon, {**seen.clean, **planned}, seen.disk)
    check_effective(seen.edit, daemon, (clean, after), wanted)
    activation, why = _activation(seen, now, after, missed=_missed(seen))
    coming = ({**seen.clean, **planned}, after)
    news = check_restart(system.host, seen, activation, coming, (seen.disk, now))
    left = seen.edit.handlers(after)
    return ChangePlan(
        daemon=daemon,
        entry=entry_of(system.host, seen, planned, wanted),
        effective=effective_lines(now, after),
        activation=activation,
        why=why,
        present=tuple((handler.name, handler.binary) for handler in held.handlers),
        absent=tuple(name for name in (entry.names if entry else ()) if name not in left),
        notes=(*held.notes, *seen.kept, *news),
    )


def _reported(system: RuntimeSystem, daemon: RuntimeDaemon) -> set[str] | None:
    """The handlers that the running daemon reports; none where it does not answer.

    None where it answers and serves no pods.
    """
    try:
        return set(system.status(daemon).handlers)
    except cri.PluginNotLoaded:
        return None
    except DriverforgeError:
        return set()


def _only(down: Sequence[journal.JournalEntry]) -> journal.JournalEntry:
    """The one of these entries. Raises UsageError for several."""
    if len(down) > 1:
        raise UsageError(
            "several container runtimes that driverctl has changed are not running",
            details=[f"{entry.socket}: {entry.kind}, {entry.config}" for entry in down],
            resolution="say which one with --socket; nothing was changed",
        )
    [one] = down
    return one


def _rescue_plan(system: RuntimeSystem, entry: journal.JournalEntry) -> ChangePlan:
    """The plan for a daemon that does not run, perhaps because of our change.

    The files as they were, and a start.
    """
    daemon = entry.daemon()
    seen = observe_runtime(system, daemon)
    return ChangePlan(
        daemon=daemon,
        entry=entry_of(system.host, seen, {}),
        effective=(),
        activation="restart",
        why="it is not running",
        keep=False,
        notes=(*pods_that_lose_theirs(system.host, seen), *seen.kept),
    )


def strip_plan(system: RuntimeSystem) -> ChangePlan | None:
    """What to do to take out NVIDIA's handlers that somebody else wrote; None where there are none.

    A default that is one of them goes too, also where the handler is gone already and nothing works for it.
    Raises as `apply_plan`.
    """
    host = system.host
    daemon = select_daemon(system)
    seen = observe_runtime(system, daemon)
    now = effective_configuration(host, daemon, seen.disk, seen.disk)
    every = nvidia_handlers_of(seen.edit, now)
    lost = lost_defaults(seen.edit, seen.disk, now)
    if not every and not lost:
        return None
    used = needed_handlers(host, daemon, now)
    found = {name: program for name, program in every.items() if name not in used}
    planned = {**seen.disk, **seen.edit.stripped(daemon, seen.disk, (*found, *lost))}
    after = effective_configuration(host, daemon, planned, seen.disk)
    goes = {**found, **dict.fromkeys(lost, "")}
    wanted = WantedHandlers(
        handlers=tuple(Handler(name=name, binary=program) for name, program in goes.items()),
        release_default=True,
    )
    if foreign := seen.edit.foreign(now, after, wanted):
        raise Unsupported(
            f"refused: without NVIDIA's handlers, {daemon.kind} would see other settings change too",
            details=[describe(path, *pair) for path, pair in foreign.items()],
            resolution="nothing was changed; take them out by hand",
        )
    activation, why = _activation(seen, now, after, missed="none")
    news = check_restart(host, seen, activation, (planned, after), (seen.disk, now))
    left = [name for name in found if name in seen.edit.handlers(after)]
    stripped = replace(seen, base=planned)
    files = {path: file for path, file in planned.items() if file != seen.disk[path]}
    return ChangePlan(
        daemon=daemon,
        entry=entry_of(host, stripped, files),
        effective=effective_lines(now, after),
        activation=activation,
        why=why,
        keep=False,
        absent=tuple(name for name in found if name not in left),
        notes=(
            *(held_note(name, used[name], "revert --strip") for name in every if name in used),
            *(f"{name} is still there" for name in left),
            *news,
        ),
    )
