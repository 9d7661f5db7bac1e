"""An apply that finds everything as the last one left it: it plans nothing, and starts no program.

What a daemon makes of its files depends on these, on its program, and on its command line; what we want
depends on the request. Where all of that is as it was when the change came into force, a plan would say that
nothing is to be done. What is left to ask is whether the running daemon has our handlers.

Kubernetes distributions are left out: they make their root file anew from others that nobody reads here.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from driverforge_core import __version__
from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import text_of
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.find.cri import RuntimeStatus
from driverforge_toolkit.runtime.find.daemon import version_of
from driverforge_toolkit.runtime.formats.configfile import Contents
from driverforge_toolkit.runtime.model import NodePath, RuntimeDaemon
from driverforge_toolkit.runtime.transaction.activation import reports
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem

ALONE = ("", "systemd")  # supervisors of a daemon whose files are its own


def settled_plan(system: RuntimeSystem) -> ChangePlan | None:
    """The plan of an apply that has nothing to do; None where only a whole plan can tell.

    Needs the lock of `journal.exclusive_runtime`.
    """
    try:
        return _settled_plan(system)
    # it ended just now, or a file is broken: whoever plans says it better
    except (DriverforgeError, FileNotFoundError):
        return None


def _settled_plan(system: RuntimeSystem) -> ChangePlan | None:
    host, socket = system.host, _socket(system)
    entry = next((entry for entry in journal.entries(host) if entry.socket == socket), None)
    if entry is None or entry.state != "in force":
        return None
    wanted = system.request.wanted.handlers
    if entry.handlers != tuple((handler.name, handler.binary) for handler in wanted):
        return None  # some stayed for pods, which may be gone by now (`held.py`)
    daemon, status = _running(system, entry)
    if fingerprint(system, daemon) != entry.fingerprint:
        return None
    if entry.default and status.default not in ("", entry.default):
        return None
    if any(not reports(status, name, program) for name, program in entry.handlers):
        return None
    files = tuple(replace(file, before=file.written) for file in entry.files)
    return ChangePlan(
        daemon=daemon,
        entry=replace(entry, files=files, earlier=entry),
        effective=(),
        activation="none",
        why="nothing has changed since the last apply",
        present=entry.handlers,
        default=entry.default,
    )


def _running(system: RuntimeSystem, entry: journal.JournalEntry) -> tuple[RuntimeDaemon, RuntimeStatus]:
    """The daemon of an entry, as it runs and as it answers. Raises Unavailable."""
    status = system.status(entry.daemon())
    daemon = replace(
        entry.daemon(),
        pid=status.pid,
        version=version_of(status.version),
        folder=NodePath(system.host.node.resolve(f"/proc/{status.pid}/cwd")),
        evidence=(f"as after the last apply: {entry.kind} at {entry.socket}, {entry.config}",),
    )
    return daemon, status


def _socket(system: RuntimeSystem) -> NodePath:
    """The socket of the daemon that is meant; '' where several may be."""
    if system.request.socket:
        return system.request.socket
    told = selection.kubelet_endpoint(system.host)
    if told is not None and not system.request.runtime:
        return told.socket
    there = [socket for socket in selection.KNOWN if system.host.node.exists(socket)]
    return there[0] if len(there) == 1 else NodePath("")


def fingerprint(
    system: RuntimeSystem, daemon: RuntimeDaemon, *, known: Contents | None = None, release: str = __version__
) -> str:
    """Of all that a plan of this release is made of, while `daemon` runs.

    Raises as `config_files.read_files`.
    """
    node, request = system.host.node, system.request
    proc = f"/proc/{daemon.pid}"
    files = config_files.read_files(system.host, daemon, to_write=True, known=known)
    parts = [
        release,
        repr((request.wanted, request.runtime, request.socket, request.config, request.drop_in)),
        repr((daemon.kind, daemon.binary, request.binary, daemon.version, daemon.config, daemon.drop_in)),
        repr([node.stamp(path) for path in (daemon.binary, f"{proc}/exe")]),
        repr([text_of(node, f"{proc}/{name}") for name in ("cmdline", "cgroup")]),
        repr({path: file.data for path, file in files.items()}),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def with_fingerprint(
    system: RuntimeSystem, entry: journal.JournalEntry, known: Contents | None = None
) -> journal.JournalEntry:
    """The entry of a change that is in force, with what tells the next apply that nothing has changed.

    `known` is as of `config_files.read_files`.
    """
    if entry.supervisor.kind not in ALONE:
        return entry
    try:
        daemon, _ = _running(system, entry)
        return replace(entry, fingerprint=fingerprint(system, daemon, known=known))
    except (DriverforgeError, FileNotFoundError):  # then the next apply plans
        return entry
