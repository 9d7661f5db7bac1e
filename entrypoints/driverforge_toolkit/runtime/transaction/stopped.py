"""A runtime that does not run, and that driverctl has changed before: perhaps that is why."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_core.errors import InputError, Unavailable
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.model import RuntimeDaemon
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem


def select_daemon(system: RuntimeSystem) -> RuntimeDaemon:
    """The daemon to work on. Raises as `selection.select`, and tells of our change of one that is down."""
    try:
        return selection.select(system.host, system.sockets, system.request)
    except Unavailable as error:
        try:
            down = selection.entries_of_stopped(system.host, system.sockets, system.request)
        except InputError:  # the journal is damaged: that the daemon is down is what was asked
            raise error from None
        if not down:
            raise
        raise not_running_since(down, details=(error.brief, *error.details)) from error


def not_running_since(
    down: Sequence[journal.JournalEntry], *, then: str = "", details: Sequence[str] = (), way_on: str = ""
) -> Unavailable:
    """The error for a changed daemon that is down.

    `then` ends its sentence, `way_on` is one more next step.
    """
    return Unavailable(
        f"the {down[0].kind} at {down[0].socket}, which driverctl has changed before, is not running{then}",
        details=[
            *(
                f"{journal.path_of(entry.kind, entry.config)}: {entry.kind} at {entry.socket}, {entry.config}"
                for entry in down
            ),
            *details,
        ],
        resolution="start it, or run `driverctl runtime revert`, which puts its files back and starts "
        f"it{way_on}; nothing was changed",
    )
