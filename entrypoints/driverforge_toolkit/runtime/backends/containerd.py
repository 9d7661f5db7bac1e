"""containerd's configuration, versions 2, 3 and 4: a drop-in, and in the root file its import alone.

Pure: satisfies `model.Backend`. Facts: cmd/containerd/server/config/config.go of containerd 1.6, 1.7 and 2.1,
and tests against the daemons.

Before 2.1, an imported file that has any key of the CRI section replaces the whole section. So the drop-in
repeats all of the section ("full"). From 2.1 on, keys are merged one by one, and the drop-in holds ours alone
("minimal").
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime import nvidia_handlers
from driverforge_toolkit.runtime.backends.containerd_config import (
    CRI_V1,
    CRI_V2,
    CRI_V3,
    DEFAULT,
    DEFAULT_TABLE,
    ENABLE_CDI,
    RUNTIMES,
    VERSION,
    cri_section,
    default_of,
    default_table,
    printed_by_2,
    programs_of,
    runtimes_of,
)
from driverforge_toolkit.runtime.backends.containerd_drop_in import (
    check_patchable,
    drop_in_values,
    place_read_last,
    read_daemon_documents,
    with_import,
)
from driverforge_toolkit.runtime.backends.imports import (
    brings_in,
    declared_imports,
    import_of,
)
from driverforge_toolkit.runtime.backends.threeway import runtime_of, undo
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, toml_file, values_of
from driverforge_toolkit.runtime.formats.spelling import PROGRAM
from driverforge_toolkit.runtime.formats.values import (
    REMOVED,
    Change,
    KeyPath,
    differing,
    lookup,
    take,
)
from driverforge_toolkit.runtime.model import Activation, RuntimeDaemon, Undone, WantedHandlers


def handlers(effective: Mapping[str, object]) -> dict[str, str]:
    """See `Backend.handlers`."""
    return programs_of(runtimes_of(effective), any_case=printed_by_2(effective))


def unservable(effective: Mapping[str, object]) -> str:
    """See `Backend.unservable`: without its default runtime, the CRI plugin does not load.

    Before 2.0, a `default_runtime` table with a type counts instead of the default's name.
    """
    default, names = default_of(effective), sorted(runtimes_of(effective))
    if not default or default in names or default_table(effective):
        return ""
    return f"its default runtime is {default}, and its runtimes are: {', '.join(names) or 'none'}"


def low_level_runtimes(config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """See `Backend.low_level_runtimes`: the default runtime, runc and crun, as far as `config` has them."""
    return nvidia_handlers.low_level(default_of(config), handlers(config), own)


def paths(daemon: RuntimeDaemon) -> tuple[str, ...]:
    """See `Backend.paths`: the drop-in first, since the root file imports it."""
    return (daemon.drop_in, daemon.config)


def placed(daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
    """See `Backend.placed`. Where no name is read last, the daemon stays as it is, and `patched` refuses."""
    return place_read_last(daemon, files)


def patched(
    daemon: RuntimeDaemon,
    files: Contents,
    effective: Mapping[str, object],
    wanted: WantedHandlers,
) -> Contents:
    """See `Backend.patched`."""
    documents = read_daemon_documents(daemon, files, effective)
    check_patchable(documents)
    root = with_import(documents)
    drop_in = _drop_in(documents.drop_in, drop_in_values(documents, root, wanted))
    return {daemon.drop_in: drop_in, daemon.config: root}


def _drop_in(before: ConfigFile, meant: Mapping[str, object]) -> ConfigFile:
    """The drop-in with the values `meant`, and with its comments.

    Without them where its tables have a form (`{ … }`) that cannot be added to.
    """
    try:
        return before.rewritten(meant)
    except Unsupported:
        return before.with_data(b"").rewritten(meant)


def undone(current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
    """See `Backend.undone`."""
    return undo(current, _without_needed, original=original, written=written)


def _without_needed(
    changes: Sequence[Change], old: Mapping[KeyPath, object], present: Mapping[KeyPath, object]
) -> list[Change]:
    """Leave what the rest of the file has come to depend on.

    We wrote down some of the daemon's own settings (runc, the rest of the section). These stay beside any
    setting of others in the section, since that section replaces the daemon's as a whole. `version` stays
    beside what was written since: that was written for it.
    """
    programs = {
        runtime_of(path): value
        for path, value in present.items()
        if path[-1].lower() == PROGRAM.lower() and runtime_of(path)
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


def _may_go(path: KeyPath, programs: Mapping[str, object]) -> bool:
    """Whether a key of ours may go from a section that others have settings in.

    Handlers, the default one and the CDI switch may; what we only wrote down may not.
    """
    name = runtime_of(path)
    if name:
        return nvidia_handlers.is_nvidia(name, str(programs.get(name, "")))
    return path[:2] not in (CRI_V2, CRI_V3) or path[2:] in (DEFAULT, ENABLE_CDI)


def stripped(daemon: RuntimeDaemon, files: Contents, names: tuple[str, ...]) -> Contents:
    """See `Backend.stripped`."""
    result = {path: _without(file, names) for path, file in files.items()}
    rest = copy.deepcopy(dict(values_of(result, daemon.drop_in)))
    take(rest, cri_section(rest))
    if set(rest) <= {"version"}:
        # upstream's drop-in: the CRI section that it copied, and nothing else
        result[daemon.drop_in] = toml_file(daemon.drop_in)
        result[daemon.config] = _without_import(daemon, result)
    return result


def _without(file: ConfigFile, names: tuple[str, ...]) -> ConfigFile:
    """A file without the handlers `names`, and without a default that is one of them."""
    meant = copy.deepcopy(dict(file.values))
    for section in (CRI_V1, CRI_V2, CRI_V3):
        for name in names:
            take(meant, (*section, *RUNTIMES, name))
        if lookup(meant, (*section, *DEFAULT)) in names:
            take(meant, (*section, *DEFAULT))
    return file if meant == file.values else file.rewritten(meant)


def _without_import(daemon: RuntimeDaemon, files: Contents) -> ConfigFile:
    """The root file without the import of the drop-in's folder, if nothing else is imported by it.

    It goes away where nothing is left that it says.
    """
    root, whole = files[daemon.config], import_of(daemon.drop_in)
    others = [
        path
        for path, other in files.items()
        if other.data is not None and brings_in(whole, path, daemon.config)
    ]
    ours = (daemon.drop_in,) if others else (daemon.drop_in, whole)
    existing = declared_imports(root.values, daemon.config)
    if root.data is None or not any(item in existing for item in ours):
        return root
    left = [item for item in existing if item not in ours]
    meant = {key: value for key, value in root.values.items() if key != "imports"}
    root = root.rewritten({**meant, "imports": left} if left else meant)
    empty = not left and set(meant) <= {"version"} and b"#" not in (root.data or b"")
    return root.with_data(None) if empty else root


def foreign(
    before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
) -> dict[KeyPath, tuple[object, object]]:
    """See `Backend.foreign`."""
    given_up = wanted.release_default and default_of(before) in wanted.names
    heir = default_of(after) if given_up else ""
    return {
        path: pair for path, pair in differing(before, after).items() if not _ours(path, pair, heir, wanted)
    }


def _ours(path: KeyPath, pair: tuple[object, object], heir: str, wanted: WantedHandlers) -> bool:
    """Whether a difference is what `wanted` asks for.

    `heir` is the runtime that gets what our handler had as the default, as far as it had not that itself.
    """
    if path[:2] not in (CRI_V2, CRI_V3):
        return False
    inner = path[2:]
    if inner == DEFAULT:
        return pair[1] == wanted.default or (wanted.release_default and pair[0] in wanted.names)
    if inner[:2] == DEFAULT_TABLE:
        return wanted.default != "" and pair[1] is REMOVED
    if inner == ENABLE_CDI:
        return wanted.cdi
    runtime = inner[2] if inner[:2] == RUNTIMES and len(inner) > 2 else ""
    return runtime in wanted.names or (runtime == heir != "" and pair[0] is REMOVED)


def activation(before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
    """See `Backend.activation`: containerd reads its files at its start only, and dies on SIGHUP."""
    return "restart" if differing(before, after) else "none"
