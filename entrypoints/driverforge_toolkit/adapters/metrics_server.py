"""The page that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from driverforge_kube.endpoints import serving


class HttpMetrics:
    """The `MetricsServer` of the exporter."""

    def serve(self, port: int, page: Callable[[], str]) -> AbstractContextManager[int]:
        pages = {"/metrics": lambda: (True, page())}
        taken = "set METRICS_PORT to a port that nothing else on the node uses"
        return serving(("", port), pages, resolution=taken)
