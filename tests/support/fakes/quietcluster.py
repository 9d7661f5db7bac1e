"""A cluster of some nodes and custom resources in which nothing happens, and that takes no write."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.ports import Conflict, Document, Event, Kind, Page
from driverforge_operator.state.kinds import NODE, CustomResource, NodeDocument


class QuietCluster:
    """Satisfies `ports.Cluster`. A node is of each letter of `names`, and has a GPU."""

    def __init__(
        self,
        stop: threading.Event,
        names: str = "abc",
        *,
        resources: Sequence[tuple[Kind[CustomResource], CustomResource]] = (),
        labels: dict[str, str] | None = None,
    ) -> None:
        self._stop = stop
        self._names = names
        self._resources = resources
        self._labels = labels or {}

    def pages(self, kind: Kind[Any], *, labels: str = "") -> Iterator[Page[Any]]:
        its = {nodekeys.GPU_FEATURES[0]: "true", **self._labels}
        nodes = [
            msgspec.convert({"metadata": {"name": name, "labels": its}}, NodeDocument) for name in self._names
        ]
        resources = [one for of, one in self._resources if of is kind]
        yield Page(items=tuple(nodes if kind is NODE else resources), version="1")

    def watch(self, kind: Kind[Any], since: str, *, labels: str = "") -> Iterator[Event[Any]]:
        self._stop.wait()
        return iter(())

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        raise Conflict("nobody asks")

    def get(self, kind: Kind[Any], name: str) -> Any:
        raise Conflict("nobody asks")

    def create(self, kind: Kind[Any], document: Document) -> Document:
        raise Conflict("nobody asks")

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        raise Conflict("nobody asks")

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        raise Conflict("nobody asks")
