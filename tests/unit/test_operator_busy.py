"""One object whose writes a server puts off for ever, as an admission webhook may, and all the others; writes
that take long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.app.control import Controller
from driverforge_operator.ports import Conflict, Document, Event, Kind, Overloaded, Page
from driverforge_operator.state.kinds import NODE, NodeDocument
from support.process import until


class OneIsBusy:
    """A cluster of some nodes; the labels of `a` are put off."""

    def __init__(self, stop: threading.Event, names: str = "abc") -> None:
        self._stop = stop
        self._names = names
        self.labelled: set[str] = set()

    def pages(self, kind: Kind[Any], *, labels: str = "") -> Iterator[Page[Any]]:
        named = [{"name": name, "labels": {nodekeys.GPU_FEATURES[0]: "true"}} for name in self._names]
        nodes = tuple(msgspec.convert({"metadata": one}, NodeDocument) for one in named)
        yield Page(items=nodes if kind is NODE else (), version="1")

    def watch(self, kind: Kind[Any], since: str, *, labels: str = "") -> Iterator[Event[Any]]:
        self._stop.wait()
        return iter(())

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        if name == "a":
            raise Overloaded("a webhook answers 503")
        self.labelled.add(name)
        return "2"

    def get(self, kind: Kind[Any], name: str) -> Any:
        raise Conflict("nobody asks")

    def create(self, kind: Kind[Any], document: Document) -> Document:
        raise Conflict("nobody asks")

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        raise Conflict("nobody asks")

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        raise Conflict("nobody asks")


def test_a_write_that_is_put_off_for_ever_holds_no_other_up() -> None:
    stop = threading.Event()
    cluster = OneIsBusy(stop)
    loop = threading.Thread(target=Controller(cluster, "gpu-operator").run, args=(stop,))
    loop.start()
    try:
        until(lambda: cluster.labelled == {"b", "c"}, "the other nodes' labels")
    finally:
        stop.set()
        loop.join()


class Slow(OneIsBusy):
    """Each write takes a minute; what the controller says of itself meanwhile is kept."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(stop, names="bcdef")
        self.now = 1000.0
        self.controller = Controller(self, "gpu-operator", clock=lambda: self.now)
        self.healthy: list[bool] = []

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        self.now += 60
        self.healthy.append(self.controller.health()[0])
        return super().patch(kind, name, body, part=part)


def test_who_writes_for_minutes_while_nothing_is_told_is_not_stuck() -> None:
    stop = threading.Event()
    cluster = Slow(stop)
    loop = threading.Thread(target=cluster.controller.run, args=(stop,))
    loop.start()
    try:
        until(lambda: len(cluster.labelled) == 5, "all nodes' labels")
    finally:
        stop.set()
        loop.join()
    assert all(cluster.healthy)
