"""The page that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class MetricsServer(Protocol):
    """A page that Prometheus reads."""

    def serve(self, port: int, page: Callable[[], str]) -> AbstractContextManager[int]:
        """Serve what `page` gives at /metrics for as long as the context lasts; yields the port.

        Port 0 takes a free one. Raises Unavailable where the port is taken.
        """
