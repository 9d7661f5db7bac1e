"""Lists and watches: a thread a kind tells what it sees."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_operator.ports import Cluster, Expired, Gone, Kind, Misled, Overloaded
from driverforge_operator.state.kinds import name_of

LOGGER = logging.getLogger("driverforge")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds
UNSERVED = 300.0  # seconds until a kind that the server does not know is asked for again


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a watch tells: an object, one that is gone, or that a list is whole, with its names.

    `served` is False where the server says that it does not know the kind.
    """

    kind: Kind[Any]
    item: Any = None
    deleted: bool = False
    whole: frozenset[str] | None = None
    served: bool = True


class Pause:
    """Pauses that grow from one failure to the next, and never the same for many that fail at once."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def seconds(self, at_least: float = 0) -> float:
        found, self._next = self._next, min(self._next * 2, LONGEST_PAUSE)
        return at_least + found * random.uniform(0.5, 1)  # noqa: S311 no secret

    def reset(self) -> None:
        self._next = FIRST_PAUSE


def follow(
    cluster: Cluster, kind: Kind[Any], labels: str, tell: Callable[[Told], None], stop: threading.Event
) -> None:
    """List a kind, then watch it, for as long as nobody stops us.

    A watch that breaks goes on where it was: thousands of objects are listed again only if it cannot.
    """
    pause, version = Pause(), ""
    while not stop.is_set():
        at_least = 0.0
        try:
            version = version or list_all(cluster, kind, labels, tell)
            if not version:
                stop.wait(UNSERVED)
                continue
            for event in cluster.watch(kind, version, labels=labels):
                version = event.version
                pause.reset()
                if event.item is not None:
                    tell(Told(kind=kind, item=event.item, deleted=event.deleted))
        except DriverforgeError as error:
            LOGGER.warning("%s: %s", kind.plural, line(error))
            if not isinstance(error, TemporaryFailure) or isinstance(error, (Expired, Gone, Misled)):
                version = ""
            at_least = error.seconds if isinstance(error, Overloaded) else 0.0
        # a server that ends each watch at once is not asked without end
        stop.wait(pause.seconds(at_least))


def list_all(cluster: Cluster, kind: Kind[Any], labels: str, tell: Callable[[Told], None]) -> str:
    """Tell all objects of a kind, and then that this was all; returns where a watch goes on.

    That is '' for a kind that the server does not know.
    """
    version, served = "", True
    seen: list[str] = []
    for page in cluster.pages(kind, labels=labels):
        for item in page.items:
            tell(Told(kind=kind, item=item))
        seen += [name_of(item) for item in page.items]
        version, served = page.version, page.served
    tell(Told(kind=kind, whole=frozenset(seen), served=served))
    return version


def line(error: DriverforgeError) -> str:
    """An error as one line of a log."""
    return ": ".join((error.brief, *error.details))
