"""The way back from a change that failed: the old files, the daemon with them, and what to tell about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_host.ports import Host
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.transaction import restore
from driverforge_toolkit.runtime.transaction.activation import last_log_lines, restart_with_old_files
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """How far a roll-back came. Lists are lines for people, but `left`, which has paths."""

    active: bool  # the daemon had been told of the new files, and so had to be told of the old ones
    restored: bool  # every file that is not somebody else's has its old bytes
    alive: bool  # the daemon answers, or was never told of the change
    left: tuple[str, ...]  # files that somebody else changed meanwhile: they stay theirs
    log_lines: tuple[str, ...]  # the end of the daemon's own log
    problems: tuple[str, ...]  # what went wrong on the way back
    took: float = 0.0  # seconds until the daemon answered with its old files


def roll_back(
    plan: ChangePlan,
    system: RuntimeSystem,
    entry: journal.JournalEntry,
    begun: Sequence[journal.JournalFile],
    *,
    active: bool,
) -> RolledBack:
    """Put the files `begun` back, and have the daemon run with them.

    `active` says whether the daemon was told of the new files; where it was not, it is left alone. Goes on
    after each problem. Where not all of the files could be put back, it stops there: the daemon is left
    alone, the journal keeps the old bytes, and the node's restore stays armed, since the node may be able to
    do what we are not.
    """
    host = system.host
    problems: list[str] = []
    left = _put_files_back(plan, host, begun, problems)
    log_lines: list[str] = []
    if active:
        # asked for before the restart, and after the files: evidence must not stand in their way
        _attempt(log_lines, lambda: log_lines.extend(last_log_lines(plan, system)))
    restored = not problems
    alive = False
    took: list[float] = []
    if restored:
        alive = not active or _attempt(problems, lambda: took.append(restart_with_old_files(plan, system)))
        if entry.restore:
            _attempt(problems, lambda: restore.disarm(host, entry.restore))
        # a file that somebody else changed has ours in it still: a revert needs the journal to take that out
        if alive and not left:
            _attempt(problems, lambda: _put_journal_back(plan, host))
    return RolledBack(
        active=active,
        restored=restored,
        alive=alive,
        left=tuple(left),
        log_lines=tuple(log_lines),
        problems=tuple(problems),
        took=sum(took),
    )


def failure_of(
    plan: ChangePlan, system: RuntimeSystem, error: DriverforgeError, back: RolledBack
) -> CommandFailed:
    """The error to raise for a change that `error` ended and that was rolled back."""
    kind = plan.daemon.kind
    details = [error.brief, *error.details, *back.log_lines]
    details += [f"{path} was changed by somebody else meanwhile; it stays as it is" for path in back.left]
    details += back.problems
    patience = system.patience(plan.daemon)
    if hasty := 2 * back.took > patience:
        details.append(
            f"with its old files it answered after {back.took:.0f} s, and the patience is {patience:.0f} s"
        )
    elif back.active:
        details.append(f"it had {patience:.0f} s to answer")
    if not back.restored:
        return CommandFailed(
            "the change failed, and not all of the old files could be put back",
            details=details,
            resolution="make these files writable, then run `driverctl runtime revert`; the journal has "
            "the old bytes",
        )
    if not back.alive:
        return CommandFailed(
            f"{kind} did not accept the change, and does not answer with the old configuration either",
            details=details,
            resolution=f"the old files are back; look at journalctl -u {system.unit(plan.daemon) or kind} "
            "and start it",
        )
    if back.active:
        brief = f"{kind} did not accept the change; the old configuration is in force again"
    else:
        brief = "the change was not made; the old files are back"
    next_step = error.resolution or _next_step(plan, system, back)
    if hasty:
        next_step = f"give it more time: --patience {3 * math.ceil(back.took)}, or TOOLKIT_PATIENCE"
    return CommandFailed(brief, details=details, resolution=next_step)


def _next_step(plan: ChangePlan, system: RuntimeSystem, back: RolledBack) -> str:
    """What a person does next, where the error itself does not say."""
    if back.left:
        return (
            "run `driverctl runtime apply` to plan it again with their changes, or `driverctl runtime "
            "revert` to take ours out of these files"
        )
    kind = plan.daemon.kind
    if back.log_lines:
        return f"see {kind}'s own message above; the node is as it was"
    return (
        f"see {kind}'s own log, which driverctl does not know: no systemd unit of it has one; "
        "the node is as it was"
        if not system.unit(plan.daemon)
        else f"see journalctl -u {system.unit(plan.daemon)}; the node is as it was"
    )


def _attempt(problems: list[str], step: Callable[[], None]) -> bool:
    """Whether the step succeeded; why it did not is added to `problems`."""
    try:
        step()
    except DriverforgeError as error:
        problems += [error.brief, *error.details]
        return False
    return True


def _put_files_back(
    plan: ChangePlan, host: Host, begun: Sequence[journal.JournalFile], problems: list[str]
) -> list[str]:
    """Put the old bytes back, last written first; one file's problem does not keep the next from coming back.

    Returns the paths that have neither the old bytes nor ours: those are somebody else's, and stay.
    """
    left: list[str] = []
    for file in reversed(begun):
        _attempt(problems, partial(_put_file_back, host, file, left))
    for folder in reversed(plan.entry.folders):
        if host.node.is_dir(folder) and not host.node.list_dir(folder):
            _attempt(problems, partial(host.node.remove_tree, folder))
    return left


def _put_file_back(host: Host, file: journal.JournalFile, left: list[str]) -> None:
    """Put the old bytes back where ours are. Where neither are there, the path goes into `left`."""
    if config_files.contents(host.node, file.path) == file.before:
        return
    if not config_files.replaced(
        host.node, file.path, before=file.written, after=file.before, metadata=file.metadata
    ):
        left.append(file.path)


def _put_journal_back(plan: ChangePlan, host: Host) -> None:
    """The journal as it was before the change began."""
    if plan.entry.earlier is None:
        journal.remove_entry(host, plan.entry.kind, plan.entry.config)
    else:
        journal.write_entry(host, plan.entry.earlier)
