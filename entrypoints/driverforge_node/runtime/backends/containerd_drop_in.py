"""What our drop-in for containerd has to say, and what the root file needs to import it. Pure.

See `containerd` for the two forms of a drop-in, "full" and "minimal".
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core.errors import Unsupported
from driverforge_node.runtime import nvidia_handlers
from driverforge_node.runtime.backends.containerd_config import (
    CRI_NAMES,
    DEFAULT,
    ENABLE_CDI,
    MERGES_KEYS,
    RUNTIMES,
    VERSION,
    VERSIONLESS,
    cri_section,
    default_of,
    programs_of,
    runtimes_of,
)
from driverforge_node.runtime.backends.imports import IMPORTS, glob_base, imports_with, read_documents
from driverforge_node.runtime.formats.values import (
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
from driverforge_node.runtime.model import Handler, RuntimeDaemon, WantedHandlers

KNOWN_VERSIONS = (2, 3, 4)
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
    root: dict[str, object]
    drop_in: dict[str, object]  # {} where there is none, or where the daemon does not read it today
    parsed: dict[str, dict[str, object]]  # the files that the daemon reads, in its order: the last one wins
    imported: bool  # the daemon reads the drop-in, or will once it exists
    effective: Mapping[str, object]

    @property
    def minimal(self) -> bool:
        return self.daemon.version >= MERGES_KEYS


def read_daemon_documents(
    daemon: RuntimeDaemon, files: Mapping[str, bytes | None], effective: Mapping[str, object]
) -> DaemonDocuments:
    """Parse the files that the daemon reads. Raises InputError for a broken one."""
    parsed = read_documents(daemon.config, {daemon.drop_in: None, **files}, glob_base(daemon))
    for path, config in parsed.items():
        runtimes_of(config, path)
    return DaemonDocuments(
        daemon=daemon,
        root=parsed[daemon.config],
        drop_in=parsed.get(daemon.drop_in, {}),
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


def root_changes(documents: DaemonDocuments) -> list[Change]:
    """What the root file needs for the daemon to read the drop-in: nothing where it does already."""
    if documents.imported:
        return []
    changes = [] if "version" in documents.root else [Change(path=VERSION, value=2)]
    return [
        *changes,
        Change(
            path=IMPORTS,
            value=imports_with(
                documents.root,
                documents.daemon.drop_in,
                documents.daemon.config,
                glob_base(documents.daemon),
            ),
        ),
    ]


def _winner(documents: DaemonDocuments) -> dict[str, object]:
    """The document whose CRI section counts for a containerd that takes whole sections.

    That is the last one that has any of the section, else the root file. Raises Unsupported where it is read
    after ours: ours would not count.
    """
    having = [
        path
        for path, document in documents.parsed.items()
        if lookup(document, cri_section(document)) is not REMOVED
    ]
    order, ours = list(documents.parsed), documents.daemon.drop_in
    later = [path for path in having if ours in order and order.index(path) > order.index(ours)]
    if later:
        raise Unsupported(
            f"{later[-1]} is read after {ours} and has a CRI section, which this containerd takes instead "
            "of ours",
            details=["containerd before 2.1 uses the CRI section of the last file that has any of it"],
            resolution=f"rename it so that it sorts before {ours}, or give a drop-in that sorts after it; "
            "nothing was changed",
        )
    return documents.parsed[having[-1]] if having else documents.root


def drop_in_values(documents: DaemonDocuments, wanted: WantedHandlers) -> dict[str, object]:
    """The drop-in as it shall be, as values. Raises Unsupported where a file that is read later would win."""
    meant = copy.deepcopy(documents.drop_in)
    base = documents.root if documents.minimal else _winner(documents)
    section = cri_section(documents.drop_in or base)
    if not meant:
        meant = {"version": base.get("version", 2)}
    if not documents.minimal:
        full = copy.deepcopy(table_at(base, section, documents.daemon.config))
        if full:
            put(meant, section, full)
        _write_down(meant, (*section, *RUNTIMES), documents.effective, wanted)
    known = _template(documents, meant, wanted)
    for handler in wanted.handlers:
        put(meant, (*section, *RUNTIMES, handler.name), _handler(handler, known, wanted))
    _set_default(documents, meant, section, wanted)
    if wanted.cdi:
        put(meant, (*section, *ENABLE_CDI), True)
    return meant


def _write_down(
    meant: dict[str, object], path: KeyPath, effective: Mapping[str, object], wanted: WantedHandlers
) -> None:
    """Add the daemon's built-in runtimes to the section `path` of `meant`.

    A section's own table of runtimes replaces them, and without runc the CRI plugin does not start.
    """
    names = {handler.name for handler in wanted.handlers}
    for name, table in runtimes_of(effective).items():
        if name not in names and lookup(meant, (*path, name)) is REMOVED:
            put(meant, (*path, name), without_zeros(table))


def _template(
    documents: DaemonDocuments, meant: Mapping[str, object], wanted: WantedHandlers
) -> Mapping[str, object] | None:
    """The table that a handler takes after, None where there is none."""
    if documents.minimal:
        tables: dict[str, object] = {
            name: without_zeros(table) for name, table in runtimes_of(documents.effective).items()
        }
        for document in documents.parsed.values():
            tables = merged(tables, runtimes_of(document))
        default = _default(documents)
    else:
        tables = runtimes_of(meant)
        default = default_of(meant)
    names = {handler.name for handler in wanted.handlers}
    others = {name: table for name, table in tables.items() if name not in names}
    return nvidia_handlers.template(
        default, others, programs_of(others), [handler.binary for handler in wanted.handlers]
    )


def _default(documents: DaemonDocuments) -> str:
    """The default runtime's name as the files have it, else as the daemon says."""
    named = [default_of(document) for document in documents.parsed.values()]
    return next((name for name in reversed(named) if name), "") or default_of(documents.effective)


def _handler(
    handler: Handler, template: Mapping[str, object] | None, wanted: WantedHandlers
) -> dict[str, object]:
    """The table of a handler: the template's settings, with NVIDIA's program and what is asked for."""
    table = dict(copy.deepcopy(BARE if template is None else template))
    if wanted.annotations:
        existing = table.get("container_annotations")
        table["container_annotations"] = list(
            dict.fromkeys([*wanted.annotations, *(existing if isinstance(existing, list) else [])])
        )
    if not table.get("runtime_type"):
        table["runtime_type"] = wanted.runtime_type
    options = table.get("options")
    table["options"] = {
        **(options if isinstance(options, dict) else {}),
        **wanted.options,
        "BinaryName": handler.binary,
    }
    return table


def _set_default(
    documents: DaemonDocuments, meant: dict[str, object], section: KeyPath, wanted: WantedHandlers
) -> None:
    """Set the wanted default. Without one, leave the default as it is, unless it is to be released."""
    path = (*section, *DEFAULT)
    names = {handler.name for handler in wanted.handlers}
    if wanted.default:
        put(meant, path, wanted.default)
    if wanted.default or not wanted.release_default:
        return
    if lookup(meant, path) in names:
        take(meant, path)
    elsewhere = {
        path: document for path, document in documents.parsed.items() if path != documents.daemon.drop_in
    }
    if (
        documents.minimal
        and lookup(meant, path) is REMOVED
        and any(default_of(document) in names for document in elsewhere.values())
    ):
        put(meant, path, "runc")  # merging key by key cannot take a key away
