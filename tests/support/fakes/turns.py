"""Several writers at one registry, whose requests come in the order that a test chose."""

from __future__ import annotations

import threading

from driverforge_oci.client import RegistryClient
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response
from support.fakes.memoryregistry import MemoryRegistry


class Turns:
    """Writers in threads; `order` names the writer of each request, as long as it lasts."""

    def __init__(self, order: list[int]) -> None:
        self._order = order
        self._done: set[int] = set()
        self._turn = threading.Condition()

    def of(self, registry: MemoryRegistry, writer: int) -> RegistryClient:
        def wait(request: Request) -> Response:
            with self._turn:
                self._turn.wait_for(lambda: self._next() in (writer, None), timeout=30)
                if self._order:
                    self._order.pop(0)
                answered = registry.send(request)
                self._turn.notify_all()
            return answered

        return RegistryClient(Session(MemoryRegistry(trouble=wait)))

    def _next(self) -> int | None:
        while self._order and self._order[0] in self._done:
            self._order.pop(0)
        return self._order[0] if self._order else None

    def end(self, writer: int) -> None:
        with self._turn:
            self._done.add(writer)
            self._turn.notify_all()
