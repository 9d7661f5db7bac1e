"""What cannot be observed again: the bytes of the files before we changed them, and how far a change came.

There is one entry a daemon, in /var/lib/driverforge/journal of the node, with all files of the change. It is
written before the first of these files, and removed after they were reverted.

The format has a number, `schema`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import Any, Literal

from driverforge_core.errors import InputError, NotPermitted, TemporaryFailure
from driverforge_host.ports import Host, Metadata
from driverforge_toolkit.runtime.model import (
    NO_PROCESS,
    Activation,
    DaemonPath,
    Handler,
    NodePath,
    ProcessInstance,
    RuntimeDaemon,
    RuntimeKind,
    Supervisor,
    WantedHandlers,
)

FOLDER = "/var/lib/driverforge/journal"
SCHEMA = 3
# prepared: files may or may not be written; written: all are, the daemon may not run with them; in force: it
# does
ChangeState = Literal["prepared", "written", "in force"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "reload", "restart")  # each one does more than that before it


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFile:
    """A file of a change. None stands for a file that is not there."""

    path: str
    original: bytes | None  # without anything of ours
    written: bytes | None
    before: bytes | None  # when the change began: what a failed change goes back to
    metadata: Metadata | None = None  # of the file before; None where there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A change of a daemon's configuration."""

    kind: RuntimeKind
    socket: NodePath
    binary: DaemonPath
    config: NodePath
    drop_in: NodePath
    supervisor: Supervisor
    handlers: tuple[tuple[str, str], ...]  # (name, program) of ours; () for a revert under way
    files: tuple[JournalFile, ...]
    state: ChangeState
    # the daemon when the change began; another one has read the files since they were written
    process: ProcessInstance = NO_PROCESS
    default: str = ""  # the handler that we made the default one
    # what was asked for; None for a revert
    wanted: WantedHandlers | None = None
    folders: tuple[str, ...] = ()  # made for the files, outermost first
    restore: str = ""  # name of the host-side restore that was armed for it
    needs: Activation = "none"  # what the daemon needed to run with it when the change began
    fingerprint: str = ""  # once it is in force: of all that it was made from (`transaction/unchanged.py`)
    earlier: JournalEntry | None = None  # what was in force before, until this is

    @property
    def names(self) -> tuple[str, ...]:
        """The handlers of ours that the daemon may have, also in the middle of a revert."""
        before = self.earlier.names if self.earlier else ()
        return tuple(dict.fromkeys((*(name for name, _ in self.handlers), *before)))

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """(name, program) of the handlers of ours that the daemon may have; the latest program of a name."""
        return tuple(dict((*(self.earlier.programs if self.earlier else ()), *self.handlers)).items())

    def file(self, path: str) -> JournalFile | None:
        """The file of that path, None where the change has none."""
        return next((file for file in self.files if file.path == path), None)

    def daemon(self) -> RuntimeDaemon:
        """The daemon as the entry knows it. It may be down."""
        return RuntimeDaemon(
            kind=self.kind,
            pid=0,
            binary=self.binary,
            version=(),
            socket=self.socket,
            config=self.config,
            drop_in=self.drop_in,
            supervisor=self.supervisor,
            evidence=(f"{path_of(self.kind, self.config)}: the journal's entry",),
        )


def slug(path: str) -> str:
    return path.strip("/").replace("/", "-")


def name_of(kind: str, config: str) -> str:
    """The name of a file about a daemon. The hash keeps two paths apart whose slugs are equal."""
    return f"{kind}-{slug(config)}-{hashlib.sha256(config.encode()).hexdigest()[:8]}.json"


def path_of(kind: str, config: str) -> str:
    """Where the entry of a daemon is."""
    return f"{FOLDER}/{name_of(kind, config)}"


def read_entry(host: Host, kind: RuntimeKind, config: str) -> JournalEntry | None:
    """The entry of a daemon, None where we have not changed it. Raises InputError for a damaged one."""
    found = _read(host, path_of(kind, config))
    if found is not None and found.config != config:
        raise _damaged(path_of(kind, config), f"it is the entry of {found.config}", config)
    return found


def entries(host: Host) -> tuple[JournalEntry, ...]:
    """All entries of the node. Raises InputError for a damaged one."""
    found = (_read(host, f"{FOLDER}/{name}") for name in host.node.list_dir(FOLDER) if name.endswith(".json"))
    return tuple(entry for entry in found if entry is not None)


def write_entry(host: Host, entry: JournalEntry) -> None:
    host.node.make_dirs(FOLDER, mode=0o700)
    data = json.dumps({"schema": SCHEMA, **_plain(entry)}, indent=2) + "\n"
    host.node.write_atomic(path_of(entry.kind, entry.config), data.encode(), mode=0o600)


def remove_entry(host: Host, kind: RuntimeKind, config: str) -> None:
    host.node.remove(path_of(kind, config))


def _read(host: Host, name: str) -> JournalEntry | None:
    try:
        text = host.node.read_text(name)
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        if data["schema"] > SCHEMA:
            raise _newer(name, data["schema"])
        # keys of another number may have the same names, and mean something else
        if data["schema"] != SCHEMA:
            raise ValueError(f"its format is {data['schema']}; this release reads format {SCHEMA}")
        return _entry(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, f"{type(error).__name__}: {error}", "the runtime's configuration") from error


def _damaged(name: str, why: str, config: str) -> InputError:
    return InputError(
        f"the journal entry {name} is damaged",
        details=[why],
        resolution=f"mv {quote(name)} /root/ && driverctl runtime revert --strip  # takes NVIDIA's handlers "
        f"out of {config}",
    )


def _newer(name: str, schema: int) -> InputError:
    return InputError(
        f"a newer driverctl wrote the journal entry {name}",
        details=[f"its format is {schema}; this release reads format {SCHEMA}"],
        resolution="use that release, or have it revert its change first; nothing was changed",
    )


def _plain(entry: JournalEntry) -> dict[str, Any]:
    data = asdict(replace(entry, earlier=None))
    for file in data["files"]:
        file.update({key: _encoded(file[key]) for key in ("original", "written", "before")})
    data["earlier"] = _plain(entry.earlier) if entry.earlier else None
    return data


def _entry(data: dict[str, Any]) -> JournalEntry:
    return JournalEntry(
        kind=data["kind"],
        socket=NodePath(str(data["socket"])),
        binary=DaemonPath(str(data["binary"])),
        config=NodePath(str(data["config"])),
        drop_in=NodePath(str(data["drop_in"])),
        supervisor=Supervisor(**data["supervisor"]),
        handlers=tuple((str(name), str(program)) for name, program in data["handlers"]),
        files=tuple(_file(file) for file in data["files"]),
        state=_state(data["state"]),
        process=_process(data["process"]),
        default=str(data["default"]),
        wanted=_wanted(data["wanted"]) if data["wanted"] else None,
        folders=tuple(map(str, data["folders"])),
        restore=str(data["restore"]),
        needs=_needs(data["needs"]),
        fingerprint=str(data["fingerprint"]),
        earlier=_entry(data["earlier"]) if data["earlier"] else None,
    )


def _process(data: dict[str, Any]) -> ProcessInstance:
    return ProcessInstance(pid=int(data["pid"]), start=int(data["start"]), boot=str(data["boot"]))


def _wanted(data: dict[str, Any]) -> WantedHandlers:
    return WantedHandlers(
        handlers=tuple(
            Handler(name=str(handler["name"]), binary=str(handler["binary"])) for handler in data["handlers"]
        ),
        default=str(data["default"]),
        release_default=bool(data["release_default"]),
        cdi=bool(data["cdi"]),
        annotations=tuple(map(str, data["annotations"])),
        runtime_type=str(data["runtime_type"]),
        options=dict(data["options"]),
    )


def _file(data: dict[str, Any]) -> JournalFile:
    return JournalFile(
        path=str(data["path"]),
        original=_decoded(data["original"]),
        written=_decoded(data["written"]),
        before=_decoded(data["before"]),
        metadata=Metadata(**data["metadata"]) if data["metadata"] else None,
    )


def _state(text: str) -> ChangeState:
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


@contextmanager
def exclusive_runtime(host: Host) -> Iterator[None]:
    """Hold the lock of this node's runtime: one driverctl at a time changes it.

    The others may be in a pod, in a shell of that pod, or on the node itself. Raises TemporaryFailure while
    another one works on this node's runtime, NotPermitted on a node that cannot be written.
    """
    try:
        host.node.make_dirs(FOLDER, mode=0o700)
    except NotPermitted as error:
        raise NotPermitted(
            f"{FOLDER} of the node cannot be written, and driverctl changes no file without a journal entry",
            details=[error.brief, *error.details],
            resolution="where the node's root is read-only (Talos, Bottlerocket), put the handlers into "
            "its own machine configuration",
        ) from error
    with host.node.lock(f"{FOLDER}/lock", text="driverctl runtime\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl is changing this node's runtime",
                resolution="wait for it to end, then run this again",
            )
        yield
