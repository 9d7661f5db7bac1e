"""docker's daemon.json: runtimes, the default one, the switch for CDI.

Pure: satisfies `model.Backend`. Facts: dockerd's documentation, and tests against dockerd 26 and 28. docker
has no drop-in: its configuration is this file and its options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime import nvidia_handlers
from driverforge_toolkit.runtime.backends.threeway import all_of_them, undo
from driverforge_toolkit.runtime.find.procfs import option_value, option_values
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents
from driverforge_toolkit.runtime.formats.values import REMOVED, Change, KeyPath, leaves, lookup, same
from driverforge_toolkit.runtime.model import Activation, Handler, RuntimeDaemon, Undone, WantedHandlers

RUNTIMES = "runtimes"
DEFAULT = "default-runtime"
CDI = ("features", "cdi")
BUILT_IN = "runc"  # dockerd has it without being told


def paths(daemon: RuntimeDaemon) -> tuple[str, ...]:
    """See `Backend.paths`."""
    return (daemon.config,)


def placed(daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
    """See `Backend.placed`. docker has one file."""
    return daemon


def patched(
    daemon: RuntimeDaemon,
    files: Contents,
    effective: Mapping[str, object],
    wanted: WantedHandlers,
) -> Contents:
    """See `Backend.patched`. `wanted`'s annotations, runtime_type and options have no counterpart here."""
    file = files[daemon.config]
    config = file.values
    check(config, daemon.config)
    changes = [
        Change(path=(RUNTIMES, handler.name), value=_runtime(config, handler)) for handler in wanted.handlers
    ]
    if wanted.default:
        changes.append(Change(path=(DEFAULT,), value=wanted.default))
    if wanted.cdi:
        changes.append(Change(path=CDI, value=True))
    changes = [change for change in changes if not same(lookup(config, change.path), change.value)]
    return {daemon.config: file.edited(changes)}


def _runtime(config: Mapping[str, object], handler: Handler) -> dict[str, object]:
    """A handler's entry. One of NVIDIA's that is there keeps its arguments; a shim's options are not ours."""
    existing = lookup(config, (RUNTIMES, handler.name))
    known = dict(existing) if isinstance(existing, Mapping) and "runtimeType" not in existing else {}
    return {**known, "path": handler.binary} if known else {"path": handler.binary, "args": []}


def check(config: Mapping[str, object], name: str) -> None:
    """Raises InputError for values of a wrong type in our keys, with all of them."""
    runtimes, features = config.get(RUNTIMES, {}), config.get("features", {})
    problems = []
    if not isinstance(runtimes, dict):
        problems.append(f"{name}: `runtimes` is not an object")
    else:
        problems += [
            f"{name}: runtimes.{key} is not an object"
            for key, value in runtimes.items()
            if not isinstance(value, dict)
        ]
    if not isinstance(config.get(DEFAULT, ""), str):
        problems.append(f"{name}: `{DEFAULT}` is not a text")
    if not isinstance(features, dict):
        problems.append(f"{name}: `features` is not an object")
    if problems:
        raise InputError(
            problems[0],
            details=problems,
            resolution="repair the file (`dockerd --validate` checks it); nothing was changed",
        )


def with_options(document: Mapping[str, object], options: Sequence[str]) -> dict[str, object]:
    """What a document and the options of dockerd's command line say together.

    Runtimes come from both, and the document's win; of a default runtime, only one of them may speak.
    """
    named = dict(value.partition("=")[::2] for value in option_values(options, ("--add-runtime",)))
    found = {name: {"path": path} for name, path in named.items()}
    runtimes, whole = document.get(RUNTIMES, {}), dict(document)
    if found and isinstance(runtimes, Mapping):
        whole[RUNTIMES] = {**found, **runtimes}
    if default := option_value(options, (f"--{DEFAULT}",)):
        whole[DEFAULT] = default
    return whole


def undone(current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
    """See `Backend.undone`."""
    return undo(current, all_of_them, original=original, written=written)


def stripped(daemon: RuntimeDaemon, files: Contents, names: tuple[str, ...]) -> Contents:
    """See `Backend.stripped`. `features.cdi` stays, since others use it too."""
    file = files[daemon.config]
    config = file.values
    check(config, daemon.config)
    changes = [
        Change(path=(RUNTIMES, name), value=REMOVED)
        for name in names
        if lookup(config, (RUNTIMES, name)) is not REMOVED
    ]
    if config.get(DEFAULT) in names:
        changes.append(Change(path=(DEFAULT,), value=REMOVED))
    return {daemon.config: file.edited(changes)}


def unservable(effective: Mapping[str, object]) -> str:
    """See `Backend.unservable`: dockerd does not start with a default runtime that it does not know.

    It knows runc, and a shim by its name (io.containerd.kata.v2).
    """
    default, names = str(effective.get(DEFAULT, BUILT_IN)), sorted({BUILT_IN, *handlers(effective)})
    if default in names or default.startswith("io.containerd."):
        return ""
    return f"its default runtime is {default}, and its runtimes are: {', '.join(names)}"


def handlers(effective: Mapping[str, object]) -> dict[str, str]:
    """See `Backend.handlers`."""
    runtimes = effective.get(RUNTIMES, {})
    tables = runtimes.items() if isinstance(runtimes, Mapping) else ()
    return {name: str(table.get("path", "")) for name, table in tables if isinstance(table, Mapping)}


def low_level_runtimes(config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """See `Backend.low_level_runtimes`: the default runtime, runc and crun."""
    return nvidia_handlers.low_level(
        str(config.get(DEFAULT, BUILT_IN)), {BUILT_IN: "", **handlers(config)}, own
    )


def _differing(
    before: Mapping[str, object], after: Mapping[str, object]
) -> dict[KeyPath, tuple[object, object]]:
    old, new = dict(leaves(before)), dict(leaves(after))
    pairs = {path: (old.get(path, REMOVED), new.get(path, REMOVED)) for path in {**old, **new}}
    return {
        path: pair
        for path, pair in pairs.items()
        if not same(*pair) and not all(value in ({}, REMOVED) for value in pair)
    }


def foreign(
    before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
) -> dict[KeyPath, tuple[object, object]]:
    """See `Backend.foreign`."""
    names = wanted.names
    ours = {(RUNTIMES, name) for name in names}
    found = {
        path: pair
        for path, pair in _differing(before, after).items()
        if path[:2] not in ours and not (path == CDI and wanted.cdi)
    }
    pair = found.get((DEFAULT,))
    if pair is not None and (pair[1] == wanted.default or (wanted.release_default and pair[0] in names)):
        del found[(DEFAULT,)]
    return found


def activation(before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
    """See `Backend.activation`.

    On SIGHUP dockerd takes over runtimes and the default runtime as far as the file still has these keys: one
    that is gone keeps its old value. CDI is set up at its start only.
    """
    changed = _differing(before, after)
    if not changed:
        return "none"
    live = all(path[0] in (RUNTIMES, DEFAULT) and path[0] in after for path in changed)
    return "reload" if live else "restart"
