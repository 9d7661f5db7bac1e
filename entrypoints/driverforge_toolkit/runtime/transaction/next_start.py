"""Whether a daemon comes back from a restart with files that are to come, and what it would read anew.

A daemon runs for months with what it read at its start. What somebody changed since comes into force with the
next restart, together with our change; where it keeps the daemon down, no roll-back helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driverforge_core import log
from driverforge_core.errors import Unsupported
from driverforge_host.ports import Files, Host
from driverforge_toolkit.runtime.backends import distributions
from driverforge_toolkit.runtime.backends.places import place_faults
from driverforge_toolkit.runtime.backends.rehearsal import rehearse
from driverforge_toolkit.runtime.backends.start_rules import (
    missing_imports,
    spec_files,
    start_faults,
    with_lines,
)
from driverforge_toolkit.runtime.find.daemon import CONFIG_OPTIONS
from driverforge_toolkit.runtime.find.procfs import option_value, options_of
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of
from driverforge_toolkit.runtime.model import Activation, RuntimeDaemon
from driverforge_toolkit.runtime.transaction.observed import ObservedRuntime

View = Mapping[str, object]


def check_there(host: Host, daemon: RuntimeDaemon, files: Contents) -> None:
    """Raises Unsupported if one of the files that the daemon is told to read is not there.

    containerd does not start then. From 2.0 on its `config dump` says nothing of an import that is gone, and
    leaves out what comes after it.
    """
    gone = files_gone(host.node, daemon, files)
    if gone:
        raise _refusal(daemon, files, gone)


def files_gone(node: Files, daemon: RuntimeDaemon, files: Contents) -> tuple[str, ...]:
    """The files that a containerd is told to read by their names and that are not there, a sentence each."""
    if daemon.kind != "containerd":
        return ()
    named = option_value(options_of(node, daemon.pid), CONFIG_OPTIONS["containerd"])
    if named and data_of(files, daemon.config) is None and not distributions.is_generated(daemon, None):
        return (f"{daemon.config}, which its command line names, is not there",)
    return tuple(
        f"{path}, which {importer} imports, is not there"
        for path, importer in missing_imports(node, daemon, files).items()
    )


def check_restart(
    host: Host,
    seen: ObservedRuntime,
    activation: Activation,
    coming: tuple[Contents, View],
    there: tuple[Contents, View],
) -> tuple[str, ...]:
    """What else a restart puts in force, a sentence each.

    `coming` is what the daemon reads then, `there` what it would read today, each with its view of these
    files. Raises Unsupported if it would not serve pods, and as `distributions.next_root`.
    """
    if activation != "restart":
        return ()
    distributions.next_root(seen.edit, seen.daemon, disk=seen.disk, planned=coming[0], node=host.node)
    _check_start(host, seen, coming, there)
    return _news(host, seen, there[1])


def _check_start(
    host: Host, seen: ObservedRuntime, coming: tuple[Contents, View], there: tuple[Contents, View]
) -> None:
    daemon, disk = seen.daemon, seen.disk
    faults = faults_of_start(host, daemon, *coming, disk)
    if not faults:
        return
    already = faults_of_start(host, daemon, *there, disk)
    if already:
        raise _refusal(daemon, there[0], already)
    raise Unsupported(
        f"refused: {daemon.kind} would not serve pods with this change",
        details=with_lines(coming[0], faults),
        resolution="nothing was changed; what its own program says of it is above",
    )


def faults_of_start(
    host: Host, daemon: RuntimeDaemon, files: Contents, view: View, disk: Contents
) -> tuple[str, ...]:
    """Why the daemon would not serve pods if it were started with `files`, a sentence each.

    By a rehearsal, or by rules where there can be none.
    """
    if daemon.kind != "containerd":
        return ()
    taken = place_faults(host.node, daemon, view)
    if taken:
        return taken
    outcome = rehearse(host, daemon, files, disk, view)
    if outcome.no_verdict:
        log.info("no rehearsal of the restart; rules take its place", why=outcome.no_verdict)
        return start_faults(host.node, view, live=True)
    return outcome.faults


def _refusal(daemon: RuntimeDaemon, files: Contents, faults: tuple[str, ...]) -> Unsupported:
    return Unsupported(
        f"refused: {daemon.kind} would not come back from a restart, with its files as they are",
        details=with_lines(files, faults),
        resolution="it runs with what it read at its start; repair what it names, then run this again; "
        "nothing was changed",
    )


def _news(host: Host, seen: ObservedRuntime, view: View) -> tuple[str, ...]:
    written = seen.entry.files if seen.entry else ()
    ours = {file.path for file in written if data_of(seen.disk, file.path) == file.written}
    return tuple(
        f"a restart puts this in force, too: {path}, which changed since the daemon's start"
        for path in changed_since_start(host, seen.daemon, (*seen.disk, *spec_files(view)))
        if path not in ours
    )


def changed_since_start(host: Host, daemon: RuntimeDaemon, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of the files that changed since containerd's start, which is when its socket was made."""
    began = host.node.stamp(daemon.socket) if daemon.pid and daemon.kind == "containerd" else None
    return tuple(
        path
        for path in paths
        if began is not None and (stamp := host.node.stamp(path)) is not None and stamp[3] > began[3]
    )
