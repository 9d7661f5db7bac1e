"""The node's `Cluster` port over a table of objects by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from driverforge_host.ports import JsonObject


@dataclass
class FakeCluster:
    """`on_create` runs after an object was made; `calls` are the writes, as 'VERB PATH'.

    Objects in `lingers` stay after their deletion until `let_go`, as pods do for their grace period.
    """

    objects: dict[str, JsonObject] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    on_create: Callable[[str], None] = lambda _: None
    listed: list[str] = field(default_factory=list)  # paths
    lingers: set[str] = field(default_factory=set)

    def get(self, path: str) -> JsonObject | None:
        return deepcopy(self.objects.get(path))

    def list(self, path: str, *, labels: str = "") -> Iterator[JsonObject]:
        self.listed.append(path)
        wanted = dict(pair.split("=", 1) for pair in labels.split(",") if pair)
        for name, found in sorted(self.objects.items()):
            if name.startswith(f"{path}/") and wanted.items() <= found["metadata"].get("labels", {}).items():
                yield deepcopy(found)

    def patch(self, path: str, change: JsonObject) -> None:
        self.calls.append(f"patch {path}")
        merge(self.objects[path], change)

    def create(self, path: str, document: JsonObject) -> None:
        full = f"{path}/{document['metadata']['name']}"
        self.calls.append(f"create {full}")
        self.objects[full] = deepcopy(document)
        self.on_create(full)

    def delete(self, path: str) -> None:
        if path in self.lingers:
            return
        if self.objects.pop(path, None) is not None:
            self.calls.append(f"delete {path}")

    def let_go(self) -> None:
        for path in self.lingers:
            self.objects.pop(path, None)
        self.lingers = set()


def merge(target: JsonObject, change: JsonObject) -> None:
    """RFC 7386."""
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
