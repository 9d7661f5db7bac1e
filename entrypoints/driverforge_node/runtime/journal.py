"""What cannot be observed again: the bytes of a file before we changed it.

One entry a file, in the node's /var/lib/driverforge/journal. It is written before the file is, and removed after it was reverted.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from driverforge_core.errors import InputError
from driverforge_node.host.ports import Host

FOLDER = "/var/lib/driverforge/journal"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A changed file: what it was (None: it was not there), what we wrote, and whose it was ('644 0 0': mode, user, group)."""

    path: str
    original: bytes | None
    written: bytes
    owner: str
    unit: str


def place(path: str) -> str:
    return f"{FOLDER}/{path.strip('/').replace('/', '-')}.json"


def read(host: Host, path: str) -> Entry | None:
    """The entry of a file, None where we have not changed it. Raises InputError for a damaged one."""
    try:
        text = host.node.read_text(place(path))
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA or data["path"] != path:
            raise ValueError(f"schema {data['schema']} for {data['path']}")
        return Entry(
            path=path,
            original=None if data["original"] is None else base64.b64decode(data["original"], validate=True),
            written=base64.b64decode(data["written"], validate=True),
            owner=data["owner"],
            unit=data["unit"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the journal entry {place(path)} is damaged",
            details=[str(error)],
            resolution=f"take NVIDIA's handlers out of {path} by hand, then remove the journal entry",
        ) from error


def write(host: Host, entry: Entry) -> None:
    host.node.make_dirs(FOLDER, mode=0o700)
    data = {
        "schema": SCHEMA,
        "path": entry.path,
        "original": None if entry.original is None else base64.b64encode(entry.original).decode(),
        "written": base64.b64encode(entry.written).decode(),
        "owner": entry.owner,
        "unit": entry.unit,
    }
    host.node.write_atomic(place(entry.path), (json.dumps(data, indent=2) + "\n").encode(), mode=0o600)


def remove(host: Host, path: str) -> None:
    host.node.remove(place(path))


def owner(host: Host, path: str) -> str:
    """Mode, user and group of a file of the node, as numbers; '' where there is none."""
    if not host.node.exists(path):
        return ""
    return host.commands.run(["stat", "--format=%a %u %g", host.node.root.rstrip("/") + host.node.resolve(path)]).stdout.strip()


def put(host: Host, path: str, data: bytes | None, owned: str) -> None:
    """Write a file of the node, or take it away (None). One that is there keeps its mode and owner; a new one gets those of `owned`."""
    if data is None:
        host.node.remove(path)
        return
    new = not host.node.exists(path)
    host.node.make_dirs(path.rpartition("/")[0])
    host.node.write_atomic(path, data)
    if new and owned:
        mode, user, group = owned.split()
        ours = host.node.root.rstrip("/") + host.node.resolve(path)
        host.commands.run(["chown", f"{user}:{group}", ours])
        host.commands.run(["chmod", mode, ours])
