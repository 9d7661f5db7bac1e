"""A daemon and its files: as they are, and as they would be without anything of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files, distributions, imports
from driverforge_toolkit.runtime.find.daemon import check_config_is_read
from driverforge_toolkit.runtime.find.instance import process_instance
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, toml_file
from driverforge_toolkit.runtime.formats.values import Change, KeyPath, dotted
from driverforge_toolkit.runtime.model import Backend, ProcessInstance, RuntimeDaemon
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRuntime:
    """A daemon, its files, and our earlier change of them."""

    daemon: RuntimeDaemon
    process: ProcessInstance  # the daemon's, as it is now
    edit: Backend
    disk: Contents
    entry: journal.JournalEntry | None
    base: Contents  # `disk` without what we wrote
    clean: Contents  # `base` as the daemon reads it at its next start
    kept: tuple[str, ...] = ()  # what others changed in what we wrote, which stays

    @property
    def settled(self) -> bool:
        """Whether the running daemon has what the journal says.

        It may have, although nobody told us: with restart mode none, somebody else restarts it later.
        """
        entry = self.entry
        if entry is None or entry.state == "in force":
            return True
        began = entry.process
        if began.boot and began.boot != self.process.boot:
            return True  # it was started after all that was written before the reboot
        return entry.state == "written" and began.pid != 0 and not began.is_same(self.process)

    @property
    def never_read(self) -> bool:
        """Whether the running daemon has read none of our files.

        That is so where the change was cut off before the daemon was told of them.
        """
        entry = self.entry
        if entry is None or entry.earlier is not None or not entry.process.pid:
            return False
        if not entry.process.is_same(self.process):
            return False
        # one that reloads may have done so with the same PID
        return entry.state == "prepared" or (entry.state == "written" and self.daemon.kind != "docker")


def observe_runtime(
    system: RuntimeSystem, daemon: RuntimeDaemon, *, to_write: bool = False
) -> ObservedRuntime:
    """Read the daemon's files, and take out of them, in thought, what we wrote earlier.

    Raises InputError for a broken file, and with `to_write` for what keeps containerd from starting
    (`config_files.read_files`). Raises Unsupported if the daemon reads another file than the one given; but
    what we once wrote can be taken back there too, so that this is not checked for a revert of ours
    (`to_write` is False).
    """
    host = system.host
    entry = journal.read_entry(host, daemon.kind, daemon.config)
    # what we once wrote can be taken back, also where the daemon reads another file by now
    if to_write or entry is None:
        check_config_is_read(host, daemon, system.request)
    disk = config_files.read_files(host, daemon, to_write=to_write)
    edit = distributions.backend_of(daemon, disk[daemon.config], host.node)
    written = tuple(file.path for file in entry.files) if entry else ()
    for path in (*edit.paths(daemon), *written):
        if path not in disk:
            disk[path] = config_files.read_file(host.node, daemon.kind, path)
    base, kept = dict(disk), []
    for path in written:
        base[path], keys = without_ours(edit, entry, disk[path])
        kept += [f"{path}: {dotted(key)} was changed by somebody else; it stays" for key in keys]
    clean = distributions.without_handlers(edit, daemon, base, entry.names if entry else ())
    return ObservedRuntime(
        daemon=daemon,
        process=process_instance(host, daemon.pid),
        edit=edit,
        disk=disk,
        entry=entry,
        base=base,
        clean=clean,
        kept=tuple(kept),
    )


def with_drop_in_placed(system: RuntimeSystem, seen: ObservedRuntime) -> ObservedRuntime:
    """The same with the drop-in where it counts, and with what else is in its folder."""
    node = system.host.node
    daemon = replace(seen.daemon, beside=config_files.beside(node, seen.daemon, seen.disk))
    daemon = seen.edit.placed(daemon, seen.clean)
    if daemon.drop_in == seen.daemon.drop_in:
        return replace(seen, daemon=daemon)
    # a name that nobody has, but for a drop-in of ours that is known already
    found: Contents = {} if daemon.drop_in in seen.disk else {daemon.drop_in: toml_file(daemon.drop_in)}
    how = f"drop-in: {daemon.drop_in} (read after all that would replace it; not {seen.daemon.drop_in})"
    return replace(
        seen,
        daemon=replace(daemon, evidence=(*daemon.evidence, how)),
        disk={**seen.disk, **found},
        base={**seen.base, **found},
        clean={**seen.clean, **found},
    )


def with_adopted_files(seen: ObservedRuntime) -> ObservedRuntime:
    """The same with files of others that came into force by our import of the folder: that import stays.

    Else the next change would take them out of force again.
    """
    daemon, entry = seen.daemon, seen.entry
    if daemon.kind != "containerd" or entry is None or entry.file(daemon.config) is None:
        return seen
    base, root = imports.glob_base(daemon), seen.clean[daemon.config]
    now, before = (
        imports.read_documents(
            daemon.config, {path: file for path, file in files.items() if file.data is not None}, base
        )
        for files in (seen.disk, seen.clean)
    )
    ours = {daemon.drop_in, *(file.path for file in entry.files)}
    if not now.keys() - before.keys() - ours:
        return seen
    names = imports.imports_with(root.values, daemon.drop_in, daemon.config, base)
    root = root.edited([Change(path=imports.IMPORTS, value=names)])
    return replace(seen, clean={**seen.clean, daemon.config: root})


def without_ours(
    edit: Backend, entry: journal.JournalEntry | None, current: ConfigFile
) -> tuple[ConfigFile, tuple[KeyPath, ...]]:
    """A file without what `entry` says that we wrote, and the keys that others changed since.

    Where the change of `entry` never came to this file, the change before it counts.
    """
    file = entry.file(current.path) if entry else None
    if entry is None or file is None:
        return current, ()
    if current.data == file.written:
        return current.with_data(file.original), ()
    # that change never came to this file, or was taken back
    if current.data == file.before and entry.state != "in force":
        return without_ours(edit, entry.earlier, current)
    undone = edit.undone(current, original=file.original, written=file.written)
    return undone.file, undone.kept


def nvidia_handlers_of(edit: Backend, view: Mapping[str, object]) -> dict[str, str]:
    """NVIDIA's handlers that a daemon sees, whoever wrote them."""
    return {name: program for name, program in edit.handlers(view).items() if is_nvidia(name, program)}
