"""containerd's configuration file, version 2 (containerd 1.6): what is written for NVIDIA, what is refused, what is undone.

Pure: bytes and values in, bytes and values out. Facts: docs/cri/config.md of containerd 1.6, and tests against its binary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driverforge_core.errors import Unsupported
from driverforge_node.runtime.document import REMOVED, Change, Path, dotted, edit, leaves, lookup, parse, table_at

CRI = ("plugins", "io.containerd.grpc.v1.cri")
CONTAINERD = (*CRI, "containerd")
RUNTIMES = (*CONTAINERD, "runtimes")
RUNC = "io.containerd.runc.v2"
CRI_NAMES = ("cri", "io.containerd.grpc.v1.cri")
VERSION = 2
IMPORTS = ("imports",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A runtime handler: the name that a RuntimeClass uses, and the program that runs containers for it."""

    name: str
    binary: str


def nvidia_handlers(folder: str) -> tuple[Handler, ...]:
    """The handlers that NVIDIA's toolkit installs, with its programs in `folder`."""
    programs = {"nvidia": "nvidia-container-runtime", "nvidia-cdi": "nvidia-container-runtime.cdi"}
    programs["nvidia-legacy"] = "nvidia-container-runtime.legacy"
    return tuple(Handler(name=name, binary=f"{folder.rstrip('/')}/{program}") for name, program in programs.items())


def check(config: Mapping[str, object], name: str) -> None:
    """Raises Unsupported for a file that must not be patched, with what to do instead."""
    version = config.get("version")
    if config and version is None:
        version = 1
    if version not in (None, VERSION):
        raise Unsupported(
            f"{name} is a version {version!r} configuration; this release of driverctl changes version 2 only",
            details=["containerd reads a file without `version` as version 1"] if version == 1 else (),
            resolution="rewrite it in version 2 (`containerd config default` prints one), restart containerd, and run this again",
        )
    disabled = config.get("disabled_plugins", [])
    if isinstance(disabled, list) and any(plugin in CRI_NAMES for plugin in disabled):
        raise Unsupported(
            f"{name} disables the CRI plugin, so no kubelet can use this containerd",
            details=[f"disabled_plugins = {disabled}"],
            resolution="take the CRI plugin out of disabled_plugins, restart containerd, and run this again",
        )


def wanted_changes(
    config: Mapping[str, object], effective: Mapping[str, object], handlers: Sequence[Handler], name: str
) -> tuple[Change, ...]:
    """Changes to the file `config` that add `handlers`; none when it has them. `effective` is what the daemon makes of the file today.

    A handler gets the settings of the node's own runc runtime (SystemdCgroup, ...) and its own program. containerd 1.x replaces its
    built-in table of runtimes by the file's: built-in ones are written down, or runc would be lost and CRI would not start.
    """
    written = table_at(config, RUNTIMES, name)
    changes = [] if "version" in config else [Change(path=("version",), value=VERSION)]
    for runtime, table in table_at(effective, RUNTIMES, name).items():
        if runtime not in written and runtime not in {handler.name for handler in handlers}:
            plain = _without_zeros(table)
            changes += [Change(path=(*RUNTIMES, runtime, *path), value=value) for path, value in leaves(plain)]
    for handler in handlers:
        table = _template(config, name)
        table["runtime_type"] = RUNC
        table["options"] = {**table_at(table, ("options",), name), "BinaryName": handler.binary}
        changes += [Change(path=(*RUNTIMES, handler.name, *path), value=value) for path, value in leaves(table)]
    return tuple(change for change in changes if lookup(config, change.path) != change.value)


def _template(config: Mapping[str, object], name: str) -> dict[str, object]:
    """Settings of the runtime that pods get by default, if it is a runc; {} where the file sets none."""
    default = table_at(config, CONTAINERD, name).get("default_runtime_name", "runc")
    for runtime in (default, "runc"):
        table = table_at(config, (*RUNTIMES, str(runtime)), name)
        if table.get("runtime_type") == RUNC:
            return _without_zeros(table)
    return {}


def _without_zeros(table: object) -> dict[str, object]:
    """A table without keys that are empty, 0 or false: containerd prints all of a structure's fields."""
    if not isinstance(table, Mapping):
        return {}
    pairs = {key: _without_zeros(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in pairs.items() if value}


def effective_changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[Path, tuple[object, object]]:
    """Keys whose value the daemon sees differently, as (before, after); REMOVED where there is none. Zeros count as not there."""
    old, new = dict(leaves(_without_zeros(before))), dict(leaves(_without_zeros(after)))
    differing = [path for path in {**old, **new} if old.get(path, REMOVED) != new.get(path, REMOVED)]
    # the list of imports names the file that was read
    return {path: (old.get(path, REMOVED), new.get(path, REMOVED)) for path in differing if path != IMPORTS}


def check_effective(before: Mapping[str, object], after: Mapping[str, object], handlers: Sequence[Handler], name: str) -> None:
    """Raises Unsupported when the daemon would see anything else change than our handlers, or would not see these."""
    ours = {(*RUNTIMES, handler.name) for handler in handlers}
    foreign = {path: pair for path, pair in effective_changes(before, after).items() if path[: len(RUNTIMES) + 1] not in ours}
    if foreign:
        raise Unsupported(
            f"refused: with NVIDIA's handlers in {name}, containerd would see other settings change too",
            details=[describe(path, *pair) for path, pair in foreign.items()],
            resolution="nothing was changed; move these settings into the same file, or report this file",
        )
    for handler in handlers:
        seen = lookup(after, (*RUNTIMES, handler.name, "options", "BinaryName"))
        if seen != handler.binary:
            raise Unsupported(
                f"refused: containerd does not see the handler {handler.name} that {name} would have",
                details=["containerd 1.x takes the whole CRI section from an imported file that has any of it"],
                resolution="nothing was changed; take the CRI section out of the files under `imports`, or put all of it into one file",
            )


def describe(path: Path, before: object, after: object) -> str:
    shown = ["(not set)" if value is REMOVED else repr(value) for value in (before, after)]
    return f"{dotted(path)}: {shown[0]} -> {shown[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A file without what we wrote, and the keys that others changed since, which stay."""

    data: bytes
    kept: tuple[Path, ...]


def undo(original: bytes, written: bytes, current: bytes, name: str) -> Undone:
    """`current` without the difference between `original` and `written`: the exact original bytes where nobody changed the file since."""
    if current == written:
        return Undone(data=original, kept=())
    base, ours, now = (parse(data, name) for data in (original, written, current))
    old, new, present = dict(leaves(base)), dict(leaves(ours)), dict(leaves(now))
    touched = [path for path, value in new.items() if old.get(path, REMOVED) != value and path in present]
    changed = {path for path in touched if present[path] != new[path]}
    changes = [Change(path=path, value=old.get(path, REMOVED)) for path in touched if path not in changed]
    changes = _without_needed(changes, tuple(present), changed)
    return Undone(data=edit(current, changes, name, keep=base), kept=tuple(sorted(changed)))


def _runtime(path: Path) -> str:
    """The runtime that a key belongs to, '' for other keys."""
    return path[len(RUNTIMES)] if path[: len(RUNTIMES)] == RUNTIMES and len(path) > len(RUNTIMES) else ""


def _without_needed(changes: Sequence[Change], present: Sequence[Path], changed: set[Path]) -> list[Change]:
    """Leave what the rest of the file depends on by now.

    A handler that somebody changed stays whole. Runtimes that we only wrote down (runc) stay beside any other runtime, or CRI would
    not start. `version` stays as long as there is anything it is the version of.
    """
    whole = {_runtime(path) for path in changed} - {""}
    changes = [change for change in changes if _runtime(change.path) not in whole]
    removed = {change.path for change in changes if change.value is REMOVED}
    staying = {_runtime(path) for path in present if path not in removed} - {""}
    if staying:
        handlers = {_runtime(path) for path in present if path[len(RUNTIMES) + 1 :] == ("options", "BinaryName")}
        changes = [c for c in changes if not _runtime(c.path) or _runtime(c.path) in handlers or c.path not in removed]
    removed = {change.path for change in changes if change.value is REMOVED}
    if any(path not in removed for path in present if path != ("version",)):
        changes = [change for change in changes if change.path != ("version",)]
    return changes


def patched(data: bytes, effective: Mapping[str, object], handlers: Sequence[Handler], name: str) -> bytes:
    """The file with `handlers`. Raises InputError (broken, wrong types), Unsupported (see `check`)."""
    config = parse(data, name)
    check(config, name)
    return edit(data, wanted_changes(config, effective, handlers, name), name)
