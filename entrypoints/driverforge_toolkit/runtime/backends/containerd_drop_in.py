"""What our drop-in for containerd has to say, and what the root file needs to import it. Pure.

See `containerd` for the two forms of a drop-in, "full" and "minimal".
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime import nvidia_handlers
from driverforge_toolkit.runtime.backends.containerd_config import (
    CDI_ALWAYS,
    CRI_NAMES,
    CRI_V3,
    DEFAULT,
    ENABLE_CDI,
    MERGES_KEYS,
    RUNTIMES,
    VERSION,
    VERSIONLESS,
    cri_section,
    cri_sections,
    default_of,
    default_table,
    newest_version,
    options_of,
    overlaid,
    programs_of,
    runtimes_of,
)
from driverforge_toolkit.runtime.backends.imports import IMPORTS, glob_base, imports_with, read_documents
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, data_of, toml_file
from driverforge_toolkit.runtime.formats.spelling import PROGRAM, respelled, settled, takes_any_case
from driverforge_toolkit.runtime.formats.values import (
    REMOVED,
    Change,
    KeyPath,
    lookup,
    merged,
    put,
    table_at,
    take,
    without_zeros,
)
from driverforge_toolkit.runtime.model import Handler, NodePath, RuntimeDaemon, WantedHandlers

KNOWN_VERSIONS = (2, 3, 4)
# shims that are in no containerd from 2.0 on; the first one never knew the option BinaryName
OLDEST_SHIM = "io.containerd.runtime.v1.linux"
OLD_SHIMS = (OLDEST_SHIM, "io.containerd.runc.v1")
# for a drop-in that has to be read after others of its folder, or, with the last one, after other imports
LATER_NAMES = ("zz-nvidia.toml", "zzzz-nvidia.toml", "~nvidia.toml", "99-nvidia.last")
# what a handler gets where there is no runtime to take after
BARE: dict[str, object] = {
    "runtime_type": "",
    "runtime_root": "",
    "runtime_engine": "",
    "privileged_without_host_devices": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonDocuments:
    """The parsed files of a daemon, and what they say together."""

    daemon: RuntimeDaemon
    files: Contents
    # what the daemon reads, in its order: the last one wins
    parsed: Mapping[str, Mapping[str, object]]
    imported: bool  # the daemon reads the drop-in, or will once it exists
    effective: Mapping[str, object]

    @property
    def root(self) -> Mapping[str, object]:
        return self.parsed[self.daemon.config]

    @property
    def drop_in(self) -> ConfigFile:
        """Our drop-in, as far as the daemon reads it today.

        What is at our path and not read would come into force with ours. It is put aside, and is back after a
        revert.
        """
        file = self.files[self.daemon.drop_in]
        return file if self.imported else file.with_data(None)

    @property
    def minimal(self) -> bool:
        return self.daemon.version >= MERGES_KEYS

    @property
    def default_elsewhere(self) -> str:
        """The default runtime that files beside our drop-in name, as far as it counts beside ours."""
        others = [document for path, document in self.parsed.items() if path != self.daemon.drop_in]
        version = self.daemon.version
        named = [default_of(document, daemon=version) for document in others] if self.minimal else []
        return next((name for name in reversed(named) if name), "")


def read_daemon_documents(
    daemon: RuntimeDaemon, files: Contents, effective: Mapping[str, object]
) -> DaemonDocuments:
    """What the files say that the daemon reads. Raises InputError for a broken one."""
    own = (daemon.drop_in, daemon.config)
    files = {**{path: toml_file(path) for path in own}, **files}
    parsed = read_documents(daemon.config, files, glob_base(daemon))
    for path, config in parsed.items():
        runtimes_of(config, path, daemon=daemon.version)
    return DaemonDocuments(
        daemon=daemon,
        files=files,
        parsed=parsed,
        imported=daemon.drop_in in parsed,
        effective=effective,
    )


def check_patchable(documents: DaemonDocuments) -> None:
    """Raises Unsupported for files that must not be patched.

    It has everything that is wrong, and what to do instead.
    """
    name, root = documents.daemon.config, documents.root
    problems = []
    for path, config in {"its effective configuration": documents.effective, **documents.parsed}.items():
        disabled = config.get("disabled_plugins", [])
        if isinstance(disabled, list) and any(plugin in CRI_NAMES for plugin in disabled):
            problems.append(
                f"{path} disables the CRI plugin, so no kubelet can use this containerd: disabled_plugins = "
                f"{disabled}"
            )
    version = root.get("version")
    if version is None and not set(root) <= VERSIONLESS:
        problems.append(
            f"{name} is a version 1 configuration (it has no `version`), to which no drop-in can be added"
        )
    elif version is not None and (isinstance(version, bool) or version not in KNOWN_VERSIONS):
        problems.append(
            f"{name} is a version {version!r} configuration; driverctl changes versions 2, 3 and 4"
        )
    if problems:
        raise Unsupported(
            problems[-1],
            details=problems[:-1],
            resolution="write it as version 2 or later with the CRI plugin enabled (`containerd config "
            "default` prints one), restart containerd, and run this again; nothing was changed",
        )


def with_import(documents: DaemonDocuments) -> ConfigFile:
    """The root file with the import of our drop-in; as it is where the daemon reads that already."""
    root = documents.files[documents.daemon.config]
    if documents.imported:
        return root
    # other keys of a file without a version may mean something else in a later one (`grpc` in 4)
    version = 2 if documents.root else newest_version(documents.daemon.version)
    changes = [] if "version" in documents.root else [Change(path=VERSION, value=version)]
    names = imports_with(
        documents.root,
        documents.daemon.drop_in,
        documents.daemon.config,
        glob_base(documents.daemon),
        documents.daemon.beside,
    )
    return root.edited([*changes, Change(path=IMPORTS, value=names)])


def place_read_last(daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
    """The daemon with a drop-in after which no CRI section is read, where there is a name for one."""
    if daemon.version >= MERGES_KEYS or not _replaced_by(daemon, files):
        return daemon
    folder = daemon.drop_in.rpartition("/")[0]
    for name in LATER_NAMES:
        other = replace(daemon, drop_in=NodePath(f"{folder}/{name}"))
        free = other.drop_in not in daemon.beside and data_of(files, other.drop_in) is None
        if free and not _replaced_by(other, files):
            return other
    return daemon


def _replaced_by(daemon: RuntimeDaemon, files: Contents) -> list[str]:
    documents = read_daemon_documents(daemon, files, {})
    return later_sections(documents, with_import(documents))


def later_sections(documents: DaemonDocuments, root: ConfigFile) -> list[str]:
    """The files with a CRI section that the daemon would read after our drop-in; `root` imports that."""
    daemon = documents.daemon
    then = {**documents.files, daemon.config: root, daemon.drop_in: documents.drop_in}
    read = read_documents(daemon.config, then, glob_base(daemon))
    order = list(read)
    later = order[order.index(daemon.drop_in) + 1 :]
    return [path for path in later if has_section(read[path], daemon)]


def has_section(document: Mapping[str, object], daemon: RuntimeDaemon) -> bool:
    sections = cri_sections(document, daemon.version)
    return any(lookup(document, section) is not REMOVED for section in sections)


def _section_of(document: Mapping[str, object], daemon: RuntimeDaemon) -> KeyPath:
    """Where a document has its CRI section, or would have it for this daemon."""
    sections = cri_sections(document, daemon.version)
    there = [path for path in sections if lookup(document, path) is not REMOVED]
    return CRI_V3 if there == [CRI_V3] else cri_section(document)


def _winner(documents: DaemonDocuments, root: ConfigFile) -> Mapping[str, object]:
    """The document whose CRI section counts for a containerd that takes whole sections.

    That is the last one that has any of the section, else the root file. Raises Unsupported where it is read
    after ours: ours would not count.
    """
    if later := later_sections(documents, root):
        ours = documents.daemon.drop_in
        raise Unsupported(
            f"{later[-1]} is read after {ours} and has a CRI section, which this containerd takes instead "
            "of ours",
            details=["containerd before 2.1 uses the CRI section of the last file that has any of it"],
            resolution="import it before our folder, in the root file's own `imports`; nothing was changed",
        )
    daemon = documents.daemon
    having = [document for document in documents.parsed.values() if has_section(document, daemon)]
    return having[-1] if having else documents.root


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuntimes:
    """The runtimes that are there without us, and which of them is the default."""

    tables: Mapping[str, object]
    default: str
    any_case: bool  # see `spelling.counting`
    merged: bool  # what is written of them is merged with them key by key, and does not replace them

    def programs(self, tables: Mapping[str, object]) -> dict[str, str]:
        return programs_of(tables, any_case=self.any_case)

    def options(self, runtime: str) -> dict[str, object]:
        """The options of a runtime that what is written of it has to overrule."""
        return options_of(self.tables.get(runtime)) if self.merged else {}


def drop_in_values(documents: DaemonDocuments, root: ConfigFile, wanted: WantedHandlers) -> dict[str, object]:
    """The drop-in as it shall be, as values; `root` is the root file that imports it.

    Raises Unsupported where a file that is read later would win.
    """
    before = documents.drop_in.values
    base = documents.root if documents.minimal else _winner(documents, root)
    above = root.values if base is documents.root else base
    meant = copy.deepcopy(dict(before)) or {"version": above.get("version", 2)}
    section = _section_of(before or {**base, **meant}, documents.daemon)
    if not documents.minimal:
        full = copy.deepcopy(table_at(base, section, documents.daemon.config))
        if full:
            put(meant, section, full)
        _write_down(meant, (*section, *RUNTIMES), documents.effective, wanted)
    known = _known_runtimes(documents, meant)
    for handler in wanted.handlers:
        table = _handler(handler, known, wanted)
        if table["runtime_type"] in (OLD_SHIMS if documents.daemon.version >= (2,) else (OLDEST_SHIM,)):
            table["runtime_type"] = wanted.runtime_type
        put(meant, (*section, *RUNTIMES, handler.name), table)
    if wanted.default:
        _make_default(meant, section, wanted.default)
    elif wanted.release_default and known.default in wanted.names:
        _give_up_default(documents, meant, section, known, wanted)
    if wanted.cdi and documents.daemon.version < CDI_ALWAYS:
        put(meant, (*section, *ENABLE_CDI), True)
    return meant


def _write_down(
    meant: dict[str, object], path: KeyPath, effective: Mapping[str, object], wanted: WantedHandlers
) -> None:
    """Add the daemon's built-in runtimes to the section `path` of `meant`.

    A section's own table of runtimes replaces them, and without runc the CRI plugin does not start.
    """
    names = wanted.names
    for name, table in runtimes_of(effective).items():
        if name not in names and lookup(meant, (*path, name)) is REMOVED:
            put(meant, (*path, name), without_zeros(table))


def _known_runtimes(documents: DaemonDocuments, meant: Mapping[str, object]) -> KnownRuntimes:
    """What the files say, and what the daemon says beside them.

    The default runtime is the one that the files name, else the one that the daemon says.
    """
    if documents.minimal:
        seen, version = runtimes_of(documents.effective), documents.daemon.version
        tables: dict[str, object] = {name: without_zeros(table) for name, table in seen.items()}
        for document in documents.parsed.values():
            tables = merged(tables, runtimes_of(document, daemon=version))
        default = default_of(documents.effective)
    else:
        tables, default = copy.deepcopy(runtimes_of(meant)), default_of(meant)
    return KnownRuntimes(
        tables=tables,
        default=default or default_of(documents.effective),
        any_case=takes_any_case(documents.daemon.version),
        merged=documents.minimal,
    )


def _template(name: str, known: KnownRuntimes, wanted: WantedHandlers) -> Mapping[str, object] | None:
    """The table that the handler `name` takes after, None where there is none.

    A handler of NVIDIA's that is there already has been set up for this node, and so has the runtime that
    runs containers: what the handler does not say (the cgroup driver, the base spec) is as with that one.
    """
    ours = wanted.names
    own = [handler.binary for handler in wanted.handlers]
    programs = known.programs(known.tables)
    others = {key: table for key, table in known.tables.items() if key not in ours}
    below = nvidia_handlers.template(known.default, others, programs, own)
    above = nvidia_handlers.existing(name, known.default, known.tables, programs, own)
    if below is None or above is None:
        return above if below is None else below
    return overlaid(below, above, any_case=known.any_case)


def _handler(handler: Handler, known: KnownRuntimes, wanted: WantedHandlers) -> dict[str, object]:
    """The table of a handler: its template's settings, with NVIDIA's program and what is asked for."""
    template = _template(handler.name, known, wanted)
    table = dict(copy.deepcopy(BARE if template is None else template))
    if wanted.annotations:
        existing = table.get("container_annotations")
        table["container_annotations"] = list(
            dict.fromkeys([*wanted.annotations, *(existing if isinstance(existing, list) else [])])
        )
    if not table.get("runtime_type"):
        table["runtime_type"] = wanted.runtime_type
    options = settled(options_of(table), any_case=known.any_case)
    options |= {**settled(wanted.options, any_case=True), PROGRAM: handler.binary}
    return {**table, "options": respelled(options, known.options(handler.name))}


def _make_default(meant: dict[str, object], section: KeyPath, name: str) -> None:
    """Make a handler the default. A `default_runtime` table would count instead of the name."""
    put(meant, (*section, *DEFAULT), name)
    if table := default_table(meant):
        take(meant, table)


def _give_up_default(
    documents: DaemonDocuments,
    meant: dict[str, object],
    section: KeyPath,
    known: KnownRuntimes,
    wanted: WantedHandlers,
) -> None:
    """Have another runtime than ours be the default again, with the settings of the one that was.

    Pods that name no handler were run with these: the systemd cgroup driver, a base spec. What the other
    runtime says of itself stays.
    """
    path, names = (*section, *DEFAULT), wanted.names
    take(meant, path)
    left = default_of(meant, daemon=documents.daemon.version) or documents.default_elsewhere
    others = {name: table for name, table in known.tables.items() if name not in names}
    name = left if left and left not in names else nvidia_handlers.replacement(others, known.programs(others))
    if name != (left or nvidia_handlers.LOW_LEVEL[0]):
        put(meant, path, name)  # merging key by key cannot take a key away
    added, options = _lacking(name, known)
    if added or options:
        runtime = (*section, *RUNTIMES, name)
        there = table_at(meant, runtime, documents.daemon.drop_in)
        options = {**options_of(there), **respelled(options, options_of(known.tables.get(name)))}
        put(meant, runtime, {**there, **added, **({"options": options} if options else {})})


def _lacking(name: str, known: KnownRuntimes) -> tuple[dict[str, object], dict[str, object]]:
    """What the default runtime has and the runtime `name` has not: of its table, and of its options.

    Never a program.
    """
    found = [known.tables.get(each) for each in (name, known.default)]
    here, given = (table if isinstance(table, Mapping) else {} for table in found)
    has, options = (settled(options_of(table), any_case=known.any_case) for table in (here, given))
    return (
        {key: value for key, value in given.items() if value and key != "options" and not here.get(key)},
        {key: value for key, value in options.items() if value and key != PROGRAM and not has.get(key)},
    )
