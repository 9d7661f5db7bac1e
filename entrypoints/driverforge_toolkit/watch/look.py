"""Look at the node, and find out cheaply whether a look is due.

The cheap way is to compare stamps (stat(2)) of the files that matter, so an idle watch costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_host.gpu.roots import DriverRoots
from driverforge_host.ports import Files
from driverforge_toolkit.cdi import remedy, specfiles, stale
from driverforge_toolkit.cdi.verify import verify
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files, template
from driverforge_toolkit.runtime.backends.distributions import BACKENDS
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.backends.start_rules import (
    spec_files,
    start_faults,
    with_lines,
)
from driverforge_toolkit.runtime.find.daemon import daemon_behind, version_of, version_text
from driverforge_toolkit.runtime.formats.configfile import Contents
from driverforge_toolkit.runtime.model import RuntimeDaemon
from driverforge_toolkit.runtime.transaction import next_start, restore
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.watch.findings import FileState, InstalledState, Observation, RuntimeSeen, SpecSeen
from driverforge_toolkit.watch.shadow import shadowed

DRIVER_MODULE = "/sys/module/nvidia"
NS = 1_000_000_000
SECTION = template.BEGIN.encode()
Problems = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTargets:
    """What is looked at.

    `spec` is the CDI spec that the watch may write again, as our own process calls it, or ''.
    """

    system: RuntimeSystem
    layout: Layout
    roots: DriverRoots
    spec: str = ""
    folders: tuple[str, ...] = specfiles.FOLDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class _DaemonAnswer:
    """What the daemon's own program said of its files. It is asked again when one of them has changed."""

    daemon: RuntimeDaemon
    files: Contents
    stated: Mapping[str, str] | None
    refusal: tuple[str, ...]
    specs: Mapping[str, object] = field(default_factory=dict)  # the specs that it reads, with their stamps


class Observer:
    """Looks at the node, and remembers what is dear to find out again.

    It starts the daemon's program only for files that it has not asked about before.
    """

    def __init__(self, targets: WatchTargets) -> None:
        self.targets = targets
        self._answers: dict[str, _DaemonAnswer] = {}
        self._paths: tuple[str, ...] = ()

    def fingerprint(self) -> object:
        """A value that stays the same as long as none of the files changes that the last look read."""
        host, targets = self.targets.system.host, self.targets
        ours = (
            targets.spec,
            targets.roots.driver_seen,
            f"{targets.roots.dev_seen.rstrip('/')}/dev",
            DRIVER_MODULE,
        )
        stamps = [host.files.stamp(path) for path in ours if path]
        return (*stamps, *(host.node.stamp(path) for path in self._paths))

    def look(self) -> Observation:
        """Look at everything. What is wrong on the node does not raise: it is in `problems`."""
        problems: Problems = {}
        node, targets = self.targets.system.host.node, self.targets
        specs, installed = self._look_at_cdi(problems)
        # the fingerprint is of what this look reads; a daemon's files are known only after it was asked
        paths = [journal.FOLDER, *targets.folders, *(spec.path for spec in specs), targets.layout.toolkit]
        runtimes = []
        for entry in self._entries(problems):
            paths += _paths_of(entry)
            try:
                seen = self._look_at_runtime(entry)
            except (DriverforgeError, FileNotFoundError) as error:
                problems[entry.config] = _lines(error)
                continue
            if answer := self._answers.get(entry.config):
                paths += (*answer.files, *answer.specs)
            runtimes += [seen] if seen else []
        self._paths = tuple(dict.fromkeys(paths))
        installed = replace(installed, release=targets.layout.current(node))
        return Observation(installed=installed, runtimes=tuple(runtimes), specs=specs, problems=problems)

    def _entries(self, problems: Problems) -> tuple[journal.JournalEntry, ...]:
        try:
            return journal.entries(self.targets.system.host)
        except DriverforgeError as error:
            problems[journal.FOLDER] = _lines(error)
            return ()

    def _look_at_runtime(self, entry: journal.JournalEntry) -> RuntimeSeen | None:
        """A daemon that driverctl changed; None while another driverctl is changing it."""
        node = self.targets.system.host.node
        if entry.restore and node.exists(f"{restore.FOLDER}/{entry.restore}/armed"):
            return None
        now = {file.path: config_files.contents(node, file.path) for file in entry.files}
        states = {file.path: _state(file, now[file.path]) for file in entry.files}
        known = self._answer_of(entry)
        self._answers[entry.config] = known
        drop_in_is_ours = states.get(entry.drop_in) is FileState.AS_WRITTEN
        reported, silence = self._ask(known.daemon, dict(entry.handlers))
        return RuntimeSeen(
            kind=entry.kind,
            config=entry.config,
            handlers=dict(entry.handlers),
            files=states,
            stated=known.stated,
            refusal=known.refusal,
            reported=reported,
            silence=silence,
            shadowed=shadowed(known.daemon, known.files, dict(entry.handlers))
            if drop_in_is_ours and known.stated is not None
            else (),
            stripped=tuple(
                file.path
                for file in entry.files
                if _has_section(file.written) and not _has_section(now[file.path])
            ),
            missing=tuple(
                dict.fromkeys(program for _, program in entry.handlers if not node.exists(program))
            ),
            unfinished=_unfinished(entry),
        )

    def _answer_of(self, entry: journal.JournalEntry) -> _DaemonAnswer:
        host, before = self.targets.system.host, self._answers.get(entry.config)
        # one that is up again after an upgrade may be another program
        same = (
            before is not None and before.daemon.pid != 0 and host.node.exists(f"/proc/{before.daemon.pid}")
        )
        daemon = before.daemon if before and same else self._find(entry)
        files = config_files.read_files(host, daemon, known=before.files if before else None)
        if (
            before
            and files == before.files
            and daemon.version == before.daemon.version
            and before.specs == {path: host.node.stamp(path) for path in before.specs}
        ):
            return replace(before, daemon=daemon)
        try:
            view = effective_configuration(host, daemon, files, files)
        except InputError as error:
            return _DaemonAnswer(daemon=daemon, files=files, stated=None, refusal=_lines(error))
        faults = self._faults(daemon, files, view)
        specs = spec_files(view) if daemon.kind == "containerd" else ()
        return _DaemonAnswer(
            daemon=daemon,
            files=files,
            stated=None if faults else BACKENDS[entry.kind].handlers(view),
            refusal=with_lines(files, faults),
            specs={path: host.node.stamp(path) for path in specs},
        )

    def _faults(self, daemon: RuntimeDaemon, files: Contents, view: Mapping[str, object]) -> tuple[str, ...]:
        """Why it would not come back from a restart; rehearsed where something changed since its start."""
        host = self.targets.system.host
        if daemon.kind != "containerd":
            return ()
        if gone := next_start.files_gone(host.node, daemon, files):
            return gone
        if not next_start.changed_since_start(host, daemon, (*files, *spec_files(view))):
            return start_faults(host.node, view, live=True)
        return next_start.faults_of_start(host, daemon, files, view, files)

    def _find(self, entry: journal.JournalEntry) -> RuntimeDaemon:
        """The daemon that runs, else the one that the journal knows."""
        system = self.targets.system
        request = replace(
            system.request,
            runtime=entry.kind,
            socket=entry.socket,
            config=entry.config,
            drop_in=entry.drop_in,
        )
        try:
            return daemon_behind(system.host, system.sockets, entry.socket, request)
        except DriverforgeError:
            known = entry.daemon()
            return replace(known, version=version_of(version_text(system.host, known)))

    def _ask(
        self, daemon: RuntimeDaemon, ours: Mapping[str, str]
    ) -> tuple[Mapping[str, str | None] | None, tuple[str, ...]]:
        try:
            return self.targets.system.status(daemon).believed(ours), ()
        except DriverforgeError as error:
            return None, _lines(error)

    def _look_at_cdi(self, problems: Problems) -> tuple[tuple[SpecSeen, ...], InstalledState]:
        """The specs of NVIDIA's devices, and the driver that is there."""
        targets, host = self.targets, self.targets.system.host
        try:
            basis = stale.observe(host, targets.roots)
            specs = [_managed(host.files, targets.spec, basis)] if targets.spec else []
            ours = host.files.identity(targets.spec) if targets.spec else None
            others = [
                file
                for file in specfiles.load(host.node, targets.folders)
                if not ours or host.node.identity(file.path) != ours
            ]
            for file in others:
                if file.spec and file.spec.kind.partition("/")[0].endswith("nvidia.com"):
                    lines = tuple(found.line() for found in verify(host, [file]) if not found.note)
                    again = remedy.rewrite_command(
                        file.spec.kind, file.path, options=remedy.generate_options(file.spec)
                    )
                    written = _written(host.node, file.path)
                    specs.append(
                        SpecSeen(path=file.path, managed=False, written=written, reasons=lines, remedy=again)
                    )
        except DriverforgeError as error:
            problems["CDI"] = _lines(error)
            return (), InstalledState()
        return tuple(specs), InstalledState(driver=basis.driver, root=basis.root)


def _managed(files: Files, path: str, basis: stale.SpecBasis) -> SpecSeen:
    reasons = stale.needs_regeneration(files, path, basis)
    return SpecSeen(path=path, managed=True, written=_written(files, path), reasons=reasons)


def _written(files: Files, path: str) -> float:
    stamp = files.stamp(path)
    return stamp[3] / NS if stamp else 0.0


def _state(file: journal.JournalFile, now: bytes | None) -> FileState:
    if now == file.written:
        return FileState.AS_WRITTEN
    return FileState.GONE if now is None else FileState.CHANGED


def _has_section(data: bytes | None) -> bool:
    return SECTION in (data or b"")


def _unfinished(entry: journal.JournalEntry) -> str:
    """Why a change is not finished: the driverctl that made it was killed. '' for any other.

    A change that waits for somebody's restart is in order.
    """
    if entry.state == "prepared" or entry.restore:
        return f"the driverctl that was changing {entry.config} ended before it was done"
    return ""


def _paths_of(entry: journal.JournalEntry) -> list[str]:
    files = [file.path for file in entry.files]
    folders = [path.rpartition("/")[0] for path in (entry.config, entry.drop_in, *files) if path]
    return [
        journal.path_of(entry.kind, entry.config),
        entry.socket,
        *files,
        *folders,
        *(program for _, program in entry.handlers),
    ]


def _lines(error: Exception) -> tuple[str, ...]:
    return (
        (error.brief, *error.details)
        if isinstance(error, DriverforgeError)
        else (f"{type(error).__name__}: {error}",)
    )
