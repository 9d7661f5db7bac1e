"""The transaction: journal, restore on the node, writes, restart, proof; else all of it goes back.

Each step leaves evidence before it changes anything, so that whoever comes after a kill can go on: the
journal has the old bytes before the first write, and the node's own restore is armed before the daemon can be
lost.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure
from driverforge_host.ports import Host
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.backends.candidates import remove_candidates
from driverforge_toolkit.runtime.find.supervisor import SLOW, SYSTEMD
from driverforge_toolkit.runtime.model import NO_PROCESS
from driverforge_toolkit.runtime.transaction import refused, restore, unchanged
from driverforge_toolkit.runtime.transaction.activation import (
    activate,
    check_activation,
    prove,
    restart_shell,
    with_last_start,
)
from driverforge_toolkit.runtime.transaction.change_plan import UNITS, ChangePlan, RuntimeSystem
from driverforge_toolkit.runtime.transaction.restore_script import RestoreOrder
from driverforge_toolkit.runtime.transaction.roll_back import failure_of, roll_back

DRAFT = ".driverforge-"  # of a file that is written whole (`Files.write_atomic`)


def carry_out(plan: ChangePlan, system: RuntimeSystem, *, force: bool = False) -> None:
    """Make the change, or leave the node as it was. Needs the lock of `journal.exclusive_runtime`.

    Raises Unsupported before anything is written where nobody could restart the daemon. Raises CommandFailed,
    with the daemon's own words, where the change failed; it says whether the old configuration is in force
    again. A change that failed so before is not tried again, but with `force`.
    """
    check_activation(plan, system)
    if plan.settled:
        _keep_fingerprint(plan, system)
        return
    host = system.host
    active = plan.activation != "none" and system.request.restart_mode != "none"
    digest = refused.digest_of(plan, system) if plan.keep else ""
    if digest and not force:
        refused.check_not_refused(system, plan, digest)
    if active:
        system = with_last_start(plan, system)
    host.clock.catch_signals()  # none ends us between write and restart
    # a daemon that does not run cannot be lost, and one that is not touched goes on with what it has read
    guarded = active and plan.daemon.pid != 0 and (bool(plan.writes) or plan.activation == "restart")
    name = restore.new_name(host) if guarded else ""
    entry = replace(plan.entry, state="prepared", needs=plan.activation, restore=name)
    journal.write_entry(host, entry)
    begun: list[journal.JournalFile] = []
    told = accepted = False
    try:
        if guarded:
            _arm(plan, system, entry)
        _write(plan, host, begun)
        entry = replace(entry, state="written")
        journal.write_entry(host, entry)
        told = active
        if active:
            activate(plan, system)
            prove(plan, system)
        accepted = True
        if guarded:
            restore.disarm(host, entry.restore)
    except DriverforgeError as error:
        back = roll_back(plan, system, entry, begun, active=told)
        failure = failure_of(plan, system, error, back)
        if digest and told and not accepted and back.alive:
            refused.remember(system, plan, digest, failure.details)
        raise failure from error
    _finish(plan, system, replace(entry, restore=""), active=active)


def _write(plan: ChangePlan, host: Host, begun: list[journal.JournalFile]) -> None:
    """Write the plan's files, and note in `begun` which were.

    Those have to be put back if the next one fails.
    """
    for file in plan.writes:
        begun.append(file)
        if file.written is not None:
            host.node.make_dirs(file.path.rpartition("/")[0])
        if not config_files.replaced(
            host.node, file.path, before=file.before, after=file.written, metadata=file.metadata
        ):
            begun.pop()
            raise TemporaryFailure(
                f"{file.path} was changed by somebody else just now",
                resolution="run this again; it makes a new plan, with that change in it",
            )
        log.info("wrote" if file.written is not None else "removed", file=file.path)


def _arm(plan: ChangePlan, system: RuntimeSystem, entry: journal.JournalEntry) -> None:
    """Have the node put the old files back by itself if we do not come to an end."""
    order = RestoreOrder(
        files=plan.writes,
        folders=entry.folders,
        daemon=entry.process,
        restart=restart_shell(plan, system),
        unit=system.unit(plan.daemon) or UNITS[plan.daemon.kind],
        reloads=plan.activation == "reload",
        patience=system.deadline(plan.daemon),
    )
    restore.arm(system.host, entry.restore, order)


def outlasts_a_stop(plan: ChangePlan, system: RuntimeSystem) -> bool:
    """Whether the change may take longer than a pod has between SIGTERM and SIGKILL, 30 seconds.

    That is so where a distribution starts its control plane with the daemon. Without systemd nobody else
    could make the change.
    """
    return (
        plan.activation == "restart"
        and system.request.restart_mode != "none"
        and plan.daemon.supervisor.kind in SLOW
        and bool(system.unit(plan.daemon))
        and system.host.node.exists(SYSTEMD)
    )


def hand_over(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Have the node carry out a plan that takes our change back, and do not wait for it.

    Killed in the middle of it, we would leave a restore that puts the change into force again. Needs the lock
    of `journal.exclusive_runtime`; the next driverctl waits for the node.
    """
    host = system.host
    name = restore.new_name(host)
    entry = replace(plan.entry, state="prepared", needs=plan.activation, restore=name)
    journal.write_entry(host, entry)
    order = RestoreOrder(
        files=tuple(replace(file, before=file.written, written=file.before) for file in plan.writes),
        folders=entry.earlier.folders if entry.earlier else (),
        daemon=NO_PROCESS,
        restart=restart_shell(plan, system),
        unit=system.unit(plan.daemon),
        journal=journal.path_of(entry.kind, entry.config),
    )
    restore.hand_over(host, name, order)
    log.info("the node goes on with this by itself", runtime=entry.kind, unit=order.unit, restore=name)


def _finish(plan: ChangePlan, system: RuntimeSystem, entry: journal.JournalEntry, *, active: bool) -> None:
    """Write down what is in force now.

    After a revert: take the journal's entry away, and the folders that we made, where they are empty.
    """
    host = system.host
    pending = plan.activation != "none" and not active
    if plan.keep:
        if pending:
            entry = replace(entry, state="written", fingerprint="", earlier=_in_force(entry.earlier))
        else:
            entry = replace(entry, state="in force", fingerprint="", earlier=None)
            entry = unchanged.with_fingerprint(system, entry, plan.read)
        journal.write_entry(host, entry)
    else:
        for folder in reversed(plan.entry.earlier.folders if plan.entry.earlier else ()):
            if host.node.is_dir(folder) and not host.node.list_dir(folder):
                host.node.remove_tree(folder)
        journal.remove_entry(host, entry.kind, entry.config)
    # after a revert too: what was refused had other files before it, and nobody asks for it any more
    refused.forget(host, plan)
    if pending:
        log.warning(
            "written, and not in force until the runtime is restarted (restart mode none)",
            runtime=plan.daemon.kind,
        )


def _in_force(entry: journal.JournalEntry | None) -> journal.JournalEntry | None:
    """The last change that came into force: the daemon runs with it for as long as nobody restarts it."""
    while entry is not None and entry.state != "in force":
        entry = entry.earlier
    return entry


def _keep_fingerprint(plan: ChangePlan, system: RuntimeSystem) -> None:
    """Have the next apply see at once that nothing is to be done."""
    earlier = plan.entry.earlier
    if earlier is not None:
        entry = unchanged.with_fingerprint(system, earlier, plan.read)
        if entry != earlier:
            journal.write_entry(system.host, entry)


def take_over(system: RuntimeSystem) -> None:
    """Take over from a driverctl that was killed: its restore on the node is taken back, or waited for.

    Needs the lock of `journal.exclusive_runtime`: with it held, no restore is of a change under way.
    """
    host = system.host
    remove_candidates(host)
    for name in host.node.list_dir(restore.FOLDER):
        for line in restore.settle_restore(host, name):
            log.info("the node's own restore did this before we came", said=line)
    restore.remove_stray_boot_units(host)
    _remove_drafts(host)
    _settle_files(host)


def _remove_drafts(host: Host) -> None:
    """Remove what a kill in the middle of a write left among our own files. Nobody else writes there."""
    for folder in (journal.FOLDER, refused.FOLDER):
        for name in host.node.list_dir(folder):
            if name.startswith(DRAFT):
                host.node.remove(f"{folder}/{name}")


def _settle_files(host: Host) -> None:
    """Clear up beside the files of a change that was killed while it wrote them."""
    with suppress(InputError):  # a damaged entry: the plan says so, if it is of the daemon that is meant
        for entry in journal.entries(host):
            for file in entry.files if entry.state != "in force" else ():
                if host.node.settle_bytes(file.path, before=file.before, after=file.written):
                    log.info("gave the file back what somebody else wrote into it", file=file.path)
