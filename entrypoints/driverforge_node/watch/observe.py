"""One look at the node, and the cheap one before it: stamps (stat(2)) of the files that matter, so that an idle watch costs little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_node.cdi import remedy, specdirs, stale, verify
from driverforge_node.cdi.roots import Roots
from driverforge_node.host.ports import Files
from driverforge_node.runtime import daemon as daemons
from driverforge_node.runtime import journal, restore, sources, template
from driverforge_node.runtime.backends import BACKENDS
from driverforge_node.runtime.change import System
from driverforge_node.runtime.effective import effective
from driverforge_node.runtime.model import Daemon
from driverforge_node.toolkit.layout import Layout
from driverforge_node.watch.findings import FileState, Installed, RuntimeSeen, Seen, SpecSeen
from driverforge_node.watch.shadow import shadowed

DRIVER_MODULE = "/sys/module/nvidia"
NS = 1_000_000_000
SECTION = template.BEGIN.encode()
Problems = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What is looked at. `spec`: the CDI spec that the watch may write anew, as our own process calls it; '' for none."""

    system: System
    layout: Layout
    roots: Roots
    spec: str = ""
    folders: tuple[str, ...] = specdirs.FOLDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the daemon's own program said of these files; asked again when one of them is another."""

    daemon: Daemon
    files: Mapping[str, bytes | None]
    stated: Mapping[str, str] | None
    refusal: tuple[str, ...]


class Eyes:
    """Looks, and remembers what is dear to find out again: it starts the daemon's program only for files that it has not seen."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self._known: dict[str, _Known] = {}
        self._paths: tuple[str, ...] = ()

    def fingerprint(self) -> object:
        """Equal for two moments between which none of the files changed that the last look went by."""
        host, targets = self.targets.system.host, self.targets
        ours = (
            targets.spec,
            targets.roots.driver_seen,
            f"{targets.roots.dev_seen.rstrip('/')}/dev",
            DRIVER_MODULE,
        )
        stamps = [host.files.stamp(path) for path in ours if path]
        return (*stamps, *(host.node.stamp(path) for path in self._paths))

    def look(self) -> Seen:
        """The whole look. Never raises for what is wrong on the node: that is in `problems`."""
        problems: Problems = {}
        node, targets = self.targets.system.host.node, self.targets
        specs, installed = self._cdi(problems)
        paths = [journal.FOLDER, *targets.folders, *(spec.path for spec in specs), targets.layout.toolkit]
        runtimes = []
        for entry in self._entries(problems):
            paths += _paths_of(entry)
            try:
                seen = self._runtime(entry)
            except (DriverforgeError, FileNotFoundError) as error:
                problems[entry.config] = _lines(error)
                continue
            paths += self._known[entry.config].files if entry.config in self._known else ()
            runtimes += [seen] if seen else []
        self._paths = tuple(dict.fromkeys(paths))
        installed = replace(installed, release=targets.layout.current(node))
        return Seen(installed=installed, runtimes=tuple(runtimes), specs=specs, problems=problems)

    def _entries(self, problems: Problems) -> tuple[journal.Entry, ...]:
        try:
            return journal.entries(self.targets.system.host)
        except DriverforgeError as error:
            problems[journal.FOLDER] = _lines(error)
            return ()

    def _runtime(self, entry: journal.Entry) -> RuntimeSeen | None:
        """None while a driverctl works on it."""
        node = self.targets.system.host.node
        if entry.restore and node.exists(f"{restore.FOLDER}/{entry.restore}/armed"):
            return None
        now = {file.path: sources.contents(node, file.path) for file in entry.files}
        states = {file.path: _state(file, now[file.path]) for file in entry.files}
        known = self._daemon_says(entry)
        self._known[entry.config] = known
        drop_in_is_ours = states.get(entry.drop_in) == "as written"
        reported, silence = self._reported(known.daemon)
        return RuntimeSeen(
            kind=entry.kind, config=entry.config, handlers=dict(entry.handlers), files=states,
            stated=known.stated, refusal=known.refusal, reported=reported, silence=silence,
            shadowed=shadowed(known.daemon, known.files, dict(entry.handlers)) if drop_in_is_ours and known.stated is not None else (),
            stripped=tuple(file.path for file in entry.files if _has_section(file.written) and not _has_section(now[file.path])),
            missing=tuple(dict.fromkeys(program for _, program in entry.handlers if not node.exists(program))),
            unfinished=_unfinished(entry),
        )  # fmt: skip

    def _daemon_says(self, entry: journal.Entry) -> _Known:
        host, before = self.targets.system.host, self._known.get(entry.config)
        # one that is up again after an upgrade may be another program
        same = (
            before is not None and before.daemon.pid != 0 and host.node.exists(f"/proc/{before.daemon.pid}")
        )
        daemon = before.daemon if before and same else self._find(entry)
        files = sources.read(host, daemon)
        if before and files == before.files and daemon.version == before.daemon.version:
            return replace(before, daemon=daemon)
        try:
            view = effective(host, daemon, files, files)
        except InputError as error:
            return _Known(daemon=daemon, files=files, stated=None, refusal=_lines(error))
        return _Known(daemon=daemon, files=files, stated=BACKENDS[entry.kind].handlers(view), refusal=())

    def _find(self, entry: journal.Entry) -> Daemon:
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
            return daemons.find(system.host, system.sockets, entry.socket, request)
        except DriverforgeError:
            known = entry.daemon()
            return replace(known, version=daemons.version_of(daemons.version_text(system.host, known)))

    def _reported(self, daemon: Daemon) -> tuple[Mapping[str, str | None] | None, tuple[str, ...]]:
        try:
            return self.targets.system.status(daemon).handlers, ()
        except DriverforgeError as error:
            return None, _lines(error)

    def _cdi(self, problems: Problems) -> tuple[tuple[SpecSeen, ...], Installed]:
        """The specs of NVIDIA's devices, and the driver that is there."""
        targets, host = self.targets, self.targets.system.host
        try:
            facts = stale.observe(host, targets.roots)
            specs = [_managed(host.files, targets.spec, facts)] if targets.spec else []
            ours = host.files.identity(targets.spec) if targets.spec else None
            others = [
                file
                for file in specdirs.load(host.node, targets.folders)
                if not ours or host.node.identity(file.path) != ours
            ]
            for file in others:
                if file.spec and file.spec.kind.partition("/")[0].endswith("nvidia.com"):
                    lines = tuple(found.line() for found in verify.verify(host, [file]) if not found.note)
                    again = remedy.rewrite(file.spec.kind, file.path, options=remedy.options_of(file.spec))
                    written = _written(host.node, file.path)
                    specs.append(
                        SpecSeen(path=file.path, managed=False, written=written, reasons=lines, remedy=again)
                    )
        except DriverforgeError as error:
            problems["CDI"] = _lines(error)
            return (), Installed()
        return tuple(specs), Installed(driver=facts.driver, root=facts.root)


def _managed(files: Files, path: str, facts: stale.Facts) -> SpecSeen:
    reasons = stale.needs_regeneration(files, path, facts)
    return SpecSeen(path=path, managed=True, written=_written(files, path), reasons=reasons)


def _written(files: Files, path: str) -> float:
    stamp = files.stamp(path)
    return stamp[3] / NS if stamp else 0.0


def _state(file: journal.File, now: bytes | None) -> FileState:
    if now == file.written:
        return "as written"
    return "gone" if now is None else "changed"


def _has_section(data: bytes | None) -> bool:
    return SECTION in (data or b"")


def _unfinished(entry: journal.Entry) -> str:
    """Only a change that a killed driverctl left: one that waits for somebody's restart is in order."""
    if entry.state == "prepared" or entry.restore:
        return f"a driverctl that changed {entry.config} ended before it was done"
    return ""


def _paths_of(entry: journal.Entry) -> list[str]:
    files = [file.path for file in entry.files]
    folders = [path.rpartition("/")[0] for path in (entry.config, entry.drop_in, *files) if path]
    return [
        journal.place(entry.kind, entry.config),
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
