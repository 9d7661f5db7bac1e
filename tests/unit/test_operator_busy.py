"""One object whose writes a server puts off for ever, as an admission webhook may, and all the others; writes
that take long."""

from __future__ import annotations

import threading
from typing import Any

from driverforge_operator.app.control import Controller
from driverforge_operator.ports import Document, Kind, Overloaded
from support.fakes.quietcluster import QuietCluster
from support.process import until


class OneIsBusy(QuietCluster):
    """The labels of `a` are put off."""

    def __init__(self, stop: threading.Event, names: str = "abc") -> None:
        super().__init__(stop, names)
        self.labelled: set[str] = set()

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        if name == "a":
            raise Overloaded("a webhook answers 503")
        self.labelled.add(name)
        return "2"


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
