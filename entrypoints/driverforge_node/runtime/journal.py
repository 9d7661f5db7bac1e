"""What cannot be observed again: the bytes of the files before we changed them, and how far the change came.

One entry a daemon, in the node's /var/lib/driverforge/journal, with all files of the change. It is written before the first of them is,
and removed after they were reverted. Entries of the first release (schema 1: one file, edited in place) are read too.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from driverforge_core.errors import InputError
from driverforge_node.host.ports import Host, Metadata
from driverforge_node.runtime.model import RUNC, Activation, Daemon, Handler, Kind, Supervisor, Wanted

FOLDER = "/var/lib/driverforge/journal"
SCHEMA = 2
# prepared: files may or may not be written; written: all are, the daemon may not run with them; in force: it does
State = Literal["prepared", "written", "in force"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "reload", "restart")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a change. None stands for a file that is not there."""

    path: str
    original: bytes | None  # without anything of ours
    written: bytes | None
    before: bytes | None  # when the change began: what a failed change goes back to
    metadata: Metadata | None = None  # of the file before; None where there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A change of a daemon's configuration."""

    kind: Kind
    socket: str
    binary: str
    config: str
    drop_in: str
    supervisor: Supervisor
    handlers: tuple[tuple[str, str], ...]  # (name, program) of ours; () for a revert under way
    files: tuple[File, ...]
    state: State
    pid: int = 0  # of the daemon when the change began; one with another PID has read the files since they were written
    default: str = ""  # the handler that we made the default one
    wanted: Wanted | None = None  # what was asked for; None for a revert, and in what earlier releases wrote
    folders: tuple[str, ...] = ()  # made for the files, outermost first
    restore: str = ""  # name of the host-side restore that was armed for it
    needs: Activation = "none"  # what the daemon needed to run with it when the change began
    earlier: Entry | None = None  # what was in force before, until this is

    @property
    def names(self) -> tuple[str, ...]:
        """Handlers that the daemon may have of us, also in the middle of a revert."""
        before = self.earlier.names if self.earlier else ()
        return tuple(dict.fromkeys((*(name for name, _ in self.handlers), *before)))

    def file(self, path: str) -> File | None:
        return next((file for file in self.files if file.path == path), None)

    def daemon(self) -> Daemon:
        """The daemon as the entry knows it: it may be down."""
        return Daemon(
            kind=self.kind, pid=0, binary=self.binary, version=(), socket=self.socket, config=self.config, drop_in=self.drop_in,
            supervisor=self.supervisor, evidence=(f"{place(self.kind, self.config)}: the journal's entry",),
        )  # fmt: skip


def slug(path: str) -> str:
    return path.strip("/").replace("/", "-")


def place(kind: str, config: str) -> str:
    return f"{FOLDER}/{kind}-{slug(config)}-{hashlib.sha256(config.encode()).hexdigest()[:8]}.json"


def old_place(config: str) -> str:
    """Where the first release kept the entry of a file."""
    return f"{FOLDER}/{slug(config)}.json"


def read(host: Host, kind: Kind, config: str) -> Entry | None:
    """The entry of a daemon, None where we have not changed it. Raises InputError for a damaged one."""
    found = _read(host, place(kind, config))
    if found is None and kind == "containerd":
        found = _read(host, old_place(config))
    if found is not None and found.config != config:
        raise _damaged(place(kind, config), f"it is the entry of {found.config}", config)
    return found


def entries(host: Host) -> tuple[Entry, ...]:
    """All of the node. Raises InputError for a damaged one."""
    found = (_read(host, f"{FOLDER}/{name}") for name in host.node.list_dir(FOLDER) if name.endswith(".json"))
    return tuple(entry for entry in found if entry is not None)


def write(host: Host, entry: Entry) -> None:
    host.node.make_dirs(FOLDER, mode=0o700)
    data = json.dumps({"schema": SCHEMA, **_plain(entry)}, indent=2) + "\n"
    host.node.write_atomic(place(entry.kind, entry.config), data.encode(), mode=0o600)
    host.node.remove(old_place(entry.config))


def remove(host: Host, kind: Kind, config: str) -> None:
    host.node.remove(place(kind, config))
    host.node.remove(old_place(config))


def _read(host: Host, name: str) -> Entry | None:
    try:
        text = host.node.read_text(name)
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        if data["schema"] == 1:
            return _first_release(data)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}")
        return _entry(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, f"{type(error).__name__}: {error}", "the runtime's configuration") from error


def _damaged(name: str, why: str, config: str) -> InputError:
    return InputError(
        f"the journal entry {name} is damaged",
        details=[why],
        resolution=f"take NVIDIA's handlers out of {config} (driverctl runtime revert --strip), or remove the journal entry first",
    )


def _plain(entry: Entry) -> dict[str, Any]:
    data = asdict(replace(entry, earlier=None))
    for file in data["files"]:
        file.update({key: _encoded(file[key]) for key in ("original", "written", "before")})
    data["earlier"] = _plain(entry.earlier) if entry.earlier else None
    return data


def _entry(data: dict[str, Any]) -> Entry:
    return Entry(
        kind=data["kind"],
        socket=str(data["socket"]),
        binary=str(data["binary"]),
        config=str(data["config"]),
        drop_in=str(data["drop_in"]),
        supervisor=Supervisor(**data["supervisor"]),
        handlers=tuple((str(name), str(program)) for name, program in data["handlers"]),
        files=tuple(_file(file) for file in data["files"]),
        state=_state(data["state"]),
        pid=int(data.get("pid", 0)),
        default=str(data.get("default", "")),
        wanted=_wanted(data["wanted"]) if data.get("wanted") else None,
        folders=tuple(map(str, data["folders"])),
        restore=str(data["restore"]),
        needs=_needs(data.get("needs", "none")),
        earlier=_entry(data["earlier"]) if data["earlier"] else None,
    )


def _wanted(data: dict[str, Any]) -> Wanted:
    return Wanted(
        handlers=tuple(
            Handler(name=str(handler["name"]), binary=str(handler["binary"])) for handler in data["handlers"]
        ),
        default=str(data["default"]),
        release_default=bool(data["release_default"]),
        cdi=bool(data["cdi"]),
        annotations=tuple(map(str, data["annotations"])),
        runtime_type=str(data["runtime_type"] or RUNC),
        options=dict(data["options"]),
    )


def _file(data: dict[str, Any]) -> File:
    return File(
        path=str(data["path"]),
        original=_decoded(data["original"]),
        written=_decoded(data["written"]),
        before=_decoded(data["before"]),
        metadata=Metadata(**data["metadata"]) if data["metadata"] else None,
    )


def _state(text: str) -> State:
    for state in ("prepared", "written", "in force"):
        if text == state:
            return state
    raise ValueError(f"state {text!r}")


def _needs(text: str) -> Activation:
    for activation in ACTIVATIONS:
        if text == activation:
            return activation
    raise ValueError(f"needs {text!r}")


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _first_release(data: dict[str, Any]) -> Entry:
    """One containerd file with the handlers in it; `owner` is '644 0 0'."""
    original, written = _decoded(data["original"]), _decoded(data["written"])
    mode, user, group = data["owner"].split() if data["owner"] else ("", "", "")
    metadata = Metadata(mode=int(mode, 8), user=int(user), group=int(group)) if mode else None
    return Entry(
        kind="containerd",
        socket="/run/containerd/containerd.sock",
        binary="containerd",
        config=data["path"],
        drop_in="",
        supervisor=Supervisor(kind="systemd" if data["unit"] else "", unit=data["unit"]),
        handlers=(),
        files=(
            File(path=data["path"], original=original, written=written, before=original, metadata=metadata),
        ),
        state="in force",
    )
