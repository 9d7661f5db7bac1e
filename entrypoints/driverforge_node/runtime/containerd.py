"""containerd's configuration, versions 2, 3 and 4: a drop-in beside the root file, whose only change is `imports`.

Pure: satisfies `model.Backend`. Facts: cmd/containerd/server/config/config.go of containerd 1.6, 1.7, 2.1, and tests against the daemons.
Before 2.1 an imported file that has any key of the CRI section replaces the whole section, so that the drop-in repeats all of it ("full");
from 2.1 on keys are merged one by one, and it holds ours alone ("minimal").
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driverforge_core.errors import Unsupported
from driverforge_node.runtime import document, nvidia
from driverforge_node.runtime.difference import differing, without_zeros
from driverforge_node.runtime.document import (
    REMOVED,
    Change,
    Path,
    edit,
    lookup,
    merged,
    parse,
    put,
    rewritten,
    table_at,
    take,
)
from driverforge_node.runtime.imports import KEY as IMPORTS
from driverforge_node.runtime.imports import declared, including, matches, pattern, read
from driverforge_node.runtime.model import Activation, Daemon, Handler, Undone, Wanted
from driverforge_node.runtime.threeway import runtime_of, undo

CRI_V1 = ("plugins", "cri")
CRI_V2 = ("plugins", "io.containerd.grpc.v1.cri")
CRI_V3 = ("plugins", "io.containerd.cri.v1.runtime")  # version 3 and later
CRI_NAMES = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
RUNTIMES = ("containerd", "runtimes")  # inside the CRI section, as the next two
DEFAULT = ("containerd", "default_runtime_name")
ENABLE_CDI = ("enable_cdi",)
VERSION = ("version",)
KNOWN_VERSIONS = (2, 3, 4)
MERGES_KEYS = (2, 1)  # the first containerd that merges imported files key by key
# what a handler gets where there is no runtime to take after
BARE: dict[str, object] = {
    "runtime_type": "",
    "runtime_root": "",
    "runtime_engine": "",
    "privileged_without_host_devices": False,
}
# keys that mean the same whatever the version of the file is
VERSIONLESS = {
    "root",
    "state",
    "temp",
    "oom_score",
    "grpc",
    "ttrpc",
    "debug",
    "metrics",
    "cgroup",
    "timeouts",
    "proxy_plugins",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Documents:
    """The parsed files, and what they say together."""

    daemon: Daemon
    root: dict[str, object]
    drop_in: dict[str, object]  # {} where there is none, or where the daemon does not read it today
    parsed: dict[str, dict[str, object]]  # the files that the daemon reads, in its order: the last one wins
    imported: bool  # the daemon reads the drop-in, or will once it exists
    effective: Mapping[str, object]

    @property
    def minimal(self) -> bool:
        return self.daemon.version >= MERGES_KEYS


def cri(config: Mapping[str, object]) -> Path:
    """The path of the CRI section: that of the document's version; the one that it has, where it has no version.

    Version 3 has both: the older one is left with the streaming server's settings.
    """
    version = config.get("version")
    if isinstance(version, int):
        return CRI_V3 if version >= 3 else CRI_V2
    return CRI_V2 if lookup(config, CRI_V3) is REMOVED else CRI_V3


def runtimes_of(config: Mapping[str, object], name: str = "containerd's configuration") -> dict[str, object]:
    """The runtimes of a document, by name. Raises InputError where there is something else in their place."""
    runtimes = table_at(config, (*cri(config), *RUNTIMES), name)
    for runtime in runtimes:
        table_at(runtimes, (runtime, "options"), f"{name}: runtimes")
    return runtimes


def handlers(effective: Mapping[str, object]) -> dict[str, str]:
    """See `Backend.handlers`."""
    return _programs(runtimes_of(effective))


def low_level_runtimes(config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Programs of the default runtime, runc and crun, as far as `config` has them; never NVIDIA's (`own`: its programs' resolved paths)."""
    return nvidia.low_level(default_of(config), handlers(config), own)


def default_of(config: Mapping[str, object]) -> str:
    return str(_or(lookup(config, (*cri(config), *DEFAULT)), ""))


def paths(daemon: Daemon) -> tuple[str, ...]:
    """See `Backend.paths`: the drop-in first, since the root file imports it."""
    return (daemon.drop_in, daemon.config)


def patched(
    daemon: Daemon, files: Mapping[str, bytes | None], effective: Mapping[str, object], wanted: Wanted
) -> dict[str, bytes | None]:
    """See `Backend.patched`."""
    documents = _read(daemon, files, effective)
    _check(documents)
    current = files.get(daemon.drop_in)
    # what is at our path and not read today, would come into force with ours: it is put aside, and is back after a revert
    before = (current or b"") if documents.imported else b""
    data = _drop_in(before, _meant(documents, wanted), daemon.drop_in)
    root = edit(files.get(daemon.config) or b"", _root_changes(documents), daemon.config)
    return {daemon.drop_in: data, daemon.config: root or files.get(daemon.config)}


def _drop_in(before: bytes, meant: Mapping[str, object], name: str) -> bytes:
    """The drop-in with its comments; without them where its tables have a form (`{ … }`) that cannot be added to."""
    try:
        return rewritten(before, meant, name)
    except Unsupported:
        return rewritten(b"", meant, name)


def _read(daemon: Daemon, files: Mapping[str, bytes | None], effective: Mapping[str, object]) -> _Documents:
    parsed = read(daemon.config, {daemon.drop_in: None, **files})
    for path, config in parsed.items():
        runtimes_of(config, path)
    return _Documents(
        daemon=daemon,
        root=parsed[daemon.config],
        drop_in=parsed.get(daemon.drop_in, {}),
        parsed=parsed,
        imported=daemon.drop_in in parsed,
        effective=effective,
    )


def _check(documents: _Documents) -> None:
    """Raises Unsupported for files that must not be patched, with everything that is wrong and what to do instead."""
    name, root = documents.daemon.config, documents.root
    problems = []
    for path, config in {"its effective configuration": documents.effective, **documents.parsed}.items():
        disabled = config.get("disabled_plugins", [])
        if isinstance(disabled, list) and any(plugin in CRI_NAMES for plugin in disabled):
            problems.append(
                f"{path} disables the CRI plugin, so no kubelet can use this containerd: disabled_plugins = {disabled}"
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
            resolution="write it as version 2 or later with the CRI plugin enabled (`containerd config default` prints one), "
            "restart containerd, and run this again; nothing was changed",
        )


def _root_changes(documents: _Documents) -> list[Change]:
    if documents.imported:
        return []
    changes = [] if "version" in documents.root else [Change(path=VERSION, value=2)]
    return [
        *changes,
        Change(
            path=IMPORTS, value=including(documents.root, documents.daemon.drop_in, documents.daemon.config)
        ),
    ]


def _winner(documents: _Documents) -> dict[str, object]:
    """The document whose CRI section a containerd takes that takes whole sections: the last one that has any of it, the root else."""
    having = [
        path for path, document in documents.parsed.items() if lookup(document, cri(document)) is not REMOVED
    ]
    order, ours = list(documents.parsed), documents.daemon.drop_in
    later = [path for path in having if ours in order and order.index(path) > order.index(ours)]
    if later:
        raise Unsupported(
            f"{later[-1]} is read after {ours} and has a CRI section, which this containerd takes instead of ours",
            details=["containerd before 2.1 uses the CRI section of the last file that has any of it"],
            resolution=f"rename it so that it sorts before {ours}, or give a drop-in that sorts after it; nothing was changed",
        )
    return documents.parsed[having[-1]] if having else documents.root


def _meant(documents: _Documents, wanted: Wanted) -> dict[str, object]:
    """The drop-in as it shall be."""
    meant = copy.deepcopy(documents.drop_in)
    base = documents.root if documents.minimal else _winner(documents)
    section = cri(documents.drop_in or base)
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
    meant: dict[str, object], path: Path, effective: Mapping[str, object], wanted: Wanted
) -> None:
    """Built-in runtimes, which a section's own table of runtimes replaces: without runc CRI does not start."""
    names = {handler.name for handler in wanted.handlers}
    for name, table in runtimes_of(effective).items():
        if name not in names and lookup(meant, (*path, name)) is REMOVED:
            put(meant, (*path, name), without_zeros(table))


def _template(
    documents: _Documents, meant: Mapping[str, object], wanted: Wanted
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
    return nvidia.template(
        default, others, _programs(others), [handler.binary for handler in wanted.handlers]
    )


def _default(documents: _Documents) -> str:
    """The default runtime's name as the files have it, else as the daemon says."""
    named = [default_of(document) for document in documents.parsed.values()]
    return next((name for name in reversed(named) if name), "") or default_of(documents.effective)


def _handler(handler: Handler, template: Mapping[str, object] | None, wanted: Wanted) -> dict[str, object]:
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


def _set_default(documents: _Documents, meant: dict[str, object], section: Path, wanted: Wanted) -> None:
    """The wanted default; else the one that is there, unless it is to be released."""
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


def undone(path: str, *, original: bytes | None, written: bytes | None, current: bytes | None) -> Undone:
    """See `Backend.undone`."""
    return undo(path, document, _without_needed, original=original, written=written, current=current)


def _without_needed(
    changes: Sequence[Change], old: Mapping[Path, object], present: Mapping[Path, object]
) -> list[Change]:
    """Leave what the rest of the file depends on by now.

    What we only wrote down of the daemon's own settings (runc, the rest of the section) stays beside any setting of others in the section,
    which replaces the daemon's as a whole. `version` stays beside what was written since, as the version that it was written for.
    """
    programs = {
        runtime_of(path): value
        for path, value in present.items()
        if path[-1] == "BinaryName" and runtime_of(path)
    }
    removed = {change.path for change in changes if change.value is REMOVED}
    if any(path[:2] in (CRI_V2, CRI_V3) and path not in removed for path in present):
        changes = [
            change for change in changes if change.value is not REMOVED or _may_go(change.path, programs)
        ]
        removed = {change.path for change in changes if change.value is REMOVED}
    if any(path not in removed and path not in old for path in present if path != VERSION):
        changes = [change for change in changes if change.path != VERSION]
    return list(changes)


def _may_go(path: Path, programs: Mapping[str, object]) -> bool:
    name = runtime_of(path)
    if name:
        return nvidia.is_nvidia(name, str(programs.get(name, "")))
    return path[:2] not in (CRI_V2, CRI_V3) or path[2:] in (DEFAULT, ENABLE_CDI)


def stripped(
    daemon: Daemon, files: Mapping[str, bytes | None], names: tuple[str, ...]
) -> dict[str, bytes | None]:
    """See `Backend.stripped`."""
    result = dict(files)
    for path, data in files.items():
        if data is not None:
            result[path] = _without(data, path, names)
    rest = parse(result.get(daemon.drop_in) or b"", daemon.drop_in)
    take(rest, cri(rest))
    if set(rest) <= {"version"}:
        result[daemon.drop_in] = None  # upstream's drop-in: the CRI section that it copied, and nothing else
        result[daemon.config] = _without_import(daemon, result)
    return result


def _without(data: bytes, path: str, names: tuple[str, ...]) -> bytes:
    meant = parse(data, path)
    before = copy.deepcopy(meant)
    for section in (CRI_V1, CRI_V2, CRI_V3):
        for name in names:
            take(meant, (*section, *RUNTIMES, name))
        if lookup(meant, (*section, *DEFAULT)) in names:
            take(meant, (*section, *DEFAULT))
    return data if meant == before else rewritten(data, meant, path)


def _without_import(daemon: Daemon, files: Mapping[str, bytes | None]) -> bytes | None:
    """The root file without the import of the drop-in's folder, where nothing else is imported by it; None where it says nothing then."""
    data = files.get(daemon.config)
    meant = parse(data or b"", daemon.config)
    ours = pattern(daemon.drop_in)
    others = [
        path for path, other in files.items() if other is not None and matches(path, daemon.config, ours)
    ]
    existing = declared(meant, daemon.config)
    if data is None or ours not in existing or others:
        return data
    left = [item for item in existing if item != ours]
    meant = (
        {**meant, "imports": left}
        if left
        else {key: value for key, value in meant.items() if key != "imports"}
    )
    data = rewritten(data, meant, daemon.config)
    return None if set(meant) <= {"version"} and b"#" not in data else data


def foreign(
    before: Mapping[str, object], after: Mapping[str, object], wanted: Wanted
) -> dict[Path, tuple[object, object]]:
    """See `Backend.foreign`."""
    names = {handler.name for handler in wanted.handlers}
    return {
        path: pair for path, pair in differing(before, after).items() if not _ours(path, pair, names, wanted)
    }


def _ours(path: Path, pair: tuple[object, object], names: set[str], wanted: Wanted) -> bool:
    if path[:2] not in (CRI_V2, CRI_V3):
        return False
    inner = path[2:]
    if inner == DEFAULT:
        return pair[1] == wanted.default or (wanted.release_default and pair[0] in names)
    if inner == ENABLE_CDI:
        return wanted.cdi
    return inner[:2] == RUNTIMES and inner[2:3] != () and inner[2] in names


def activation(before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
    """See `Backend.activation`: containerd reads its files at its start only, and dies on SIGHUP."""
    return "restart" if differing(before, after) else "none"


def _programs(runtimes: Mapping[str, object]) -> dict[str, str]:
    tables = {name: table for name, table in runtimes.items() if isinstance(table, Mapping)}
    return {name: str(_or(lookup(table, ("options", "BinaryName")), "")) for name, table in tables.items()}


def _or(value: object, default: str) -> object:
    return default if value is REMOVED else value
