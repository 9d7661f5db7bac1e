"""CRI-O's configuration: a drop-in in crio.conf.d. The root file is never written.

Pure: satisfies `model.Backend`. Facts, of cri-o/cri-o up to 1.35: a later file's key replaces an earlier
one's, and a runtime's whole table is one key (pkg/config/config.go, UpdateFromDropInFile: the decoder makes a
table of a map anew). A SIGHUP is no way to a new handler: status and `/config` show it, pods do not get it
(cri-o/cri-o#10202); a restart is, and containers outlive that. CDI is always on.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from driverforge_toolkit.runtime import nvidia_handlers
from driverforge_toolkit.runtime.backends.threeway import all_of_them, undo
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, toml_file
from driverforge_toolkit.runtime.formats.values import (
    REMOVED,
    KeyPath,
    differing,
    lookup,
    merged,
    put,
    table_at,
    take,
    without_zeros,
)
from driverforge_toolkit.runtime.model import Activation, Handler, RuntimeDaemon, Undone, WantedHandlers

RUNTIME = ("crio", "runtime")
RUNTIMES = (*RUNTIME, "runtimes")
DEFAULT = (*RUNTIME, "default_runtime")
TYPE = "oci"  # what NVIDIA's program is, whatever the runtime is that it takes after
# of that runtime: other programs in place of the handler's, and what CRI-O accepts of another type only
ITS_OWN = ("inherit_default_runtime", "platform_runtime_paths", "runtime_config_path", "stream_websockets")


def paths(daemon: RuntimeDaemon) -> tuple[str, ...]:
    """See `Backend.paths`."""
    return (daemon.drop_in,)


def placed(daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
    """See `Backend.placed`. Our handlers are tables of their own, and those of other files stay."""
    return daemon


def patched(
    daemon: RuntimeDaemon,
    files: Contents,
    effective: Mapping[str, object],
    wanted: WantedHandlers,
) -> Contents:
    """See `Backend.patched`. `wanted`'s CDI switch and annotations have no counterpart here."""
    parsed = {path: file.values for path, file in files.items()}
    for path, config in parsed.items():
        runtimes_of(config, path)
    drop_in = _drop_in(daemon, files)
    meant = copy.deepcopy(dict(drop_in.values))
    tables, default = _known_runtimes(parsed, effective)
    for handler in wanted.handlers:
        template = _template(handler.name, tables, default, wanted)
        put(meant, (*RUNTIMES, handler.name), _handler(handler, template, wanted))
    if wanted.default:
        put(meant, DEFAULT, wanted.default)
    elif wanted.release_default and default in wanted.names:
        take(meant, DEFAULT)
        others = {path: config for path, config in parsed.items() if path != daemon.drop_in}
        if _known_runtimes(others, {})[1] in wanted.names:
            rest = {name: table for name, table in tables.items() if name not in wanted.names}
            put(meant, DEFAULT, nvidia_handlers.replacement(rest, _programs(rest)))
    return {daemon.drop_in: drop_in.rewritten(meant)}


def _drop_in(daemon: RuntimeDaemon, files: Contents) -> ConfigFile:
    return files.get(daemon.drop_in) or toml_file(daemon.drop_in)


def runtimes_of(config: Mapping[str, object], name: str = "CRI-O's configuration") -> dict[str, object]:
    """The runtimes of a document, by name. Raises InputError where something else is in their place."""
    runtimes = table_at(config, RUNTIMES, name)
    for runtime in runtimes:
        table_at(config, (*RUNTIMES, runtime), name)
    return runtimes


def layered(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """What CRI-O makes of two documents. A runtime of `above` replaces all of the one of `below`."""
    # `merged` hands on the tables of one document as they are, and these are the file's own
    whole = copy.deepcopy(merged(below, above))
    runtimes = {**runtimes_of(below), **runtimes_of(above)}
    if runtimes:
        put(whole, RUNTIMES, runtimes)
    return whole


def _known_runtimes(
    parsed: Mapping[str, Mapping[str, object]], effective: Mapping[str, object]
) -> tuple[dict[str, object], str]:
    """The runtimes that are there without us, and the name of the default one ('' where nobody says)."""
    whole: dict[str, object] = {}
    for config in parsed.values():
        whole = layered(whole, config)
    named = [lookup(each, DEFAULT) for each in (effective, whole)]
    default = next((name for name in named if name is not REMOVED), "")
    tables = {name: without_zeros(table) for name, table in runtimes_of(effective).items()}
    return tables | runtimes_of(whole), str(default)


def _template(
    name: str, tables: Mapping[str, object], default: str, wanted: WantedHandlers
) -> Mapping[str, object]:
    """The table that the handler `name` takes after: NVIDIA's that is there, over that of the low level."""
    own, programs = [handler.binary for handler in wanted.handlers], _programs(tables)
    others = {key: table for key, table in tables.items() if key not in wanted.names}
    below = nvidia_handlers.template(default, others, programs, own)
    above = nvidia_handlers.existing(name, default, tables, programs, own)
    return {**(below or {}), **(above or {})}


def _handler(handler: Handler, template: Mapping[str, object], wanted: WantedHandlers) -> dict[str, object]:
    taken = {key: value for key, value in template.items() if key not in ITS_OWN}
    return {
        **copy.deepcopy(taken),
        **wanted.options,
        "runtime_path": handler.binary,
        "runtime_type": TYPE,
    }


def unservable(effective: Mapping[str, object]) -> str:
    """See `Backend.unservable`: `crio config` itself refuses a default runtime that has no table."""
    return ""


def undone(current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
    """See `Backend.undone`."""
    return undo(current, all_of_them, original=original, written=written)


def stripped(daemon: RuntimeDaemon, files: Contents, names: tuple[str, ...]) -> Contents:
    """See `Backend.stripped`. A drop-in of which nothing is left goes away."""
    drop_in = _drop_in(daemon, files)
    meant = copy.deepcopy(dict(drop_in.values))
    for name in names:
        take(meant, (*RUNTIMES, name))
    if lookup(meant, DEFAULT) in names:
        take(meant, DEFAULT)
    if meant == drop_in.values:
        return {daemon.drop_in: drop_in}
    return {daemon.drop_in: drop_in.rewritten(meant) if meant else drop_in.with_data(None)}


def _programs(runtimes: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(table.get("runtime_path", ""))
        for name, table in runtimes.items()
        if isinstance(table, Mapping)
    }


def handlers(effective: Mapping[str, object]) -> dict[str, str]:
    """See `Backend.handlers`."""
    return _programs(runtimes_of(effective))


def low_level_runtimes(config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """See `Backend.low_level_runtimes`: the default runtime, runc and crun, as far as `config` has them."""
    default = lookup(config, DEFAULT)
    return nvidia_handlers.low_level("" if default is REMOVED else str(default), handlers(config), own)


def foreign(
    before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
) -> dict[KeyPath, tuple[object, object]]:
    """See `Backend.foreign`."""
    names = wanted.names
    found = differing(before, after)
    found = {
        path: pair
        for path, pair in found.items()
        if path[:3] != RUNTIMES or path[3:4] == () or path[3] not in names
    }
    pair = found.get(DEFAULT)
    if pair is not None and (pair[1] == wanted.default or (wanted.release_default and pair[0] in names)):
        del found[DEFAULT]
    return found


def activation(before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
    """See `Backend.activation`: pods get what CRI-O read at its start."""
    return "restart" if differing(before, after) else "none"
