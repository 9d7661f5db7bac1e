"""The node status exporter: look at the node now and then, serve what was seen, until a stop signal."""

from __future__ import annotations

from driverforge_core import log
from driverforge_host.ports import MetricsServer
from driverforge_toolkit.validate.context import Context
from driverforge_toolkit.validate.node_metrics import NodeMetrics

FILES, NODE = 30.0, 60.0  # seconds between two looks


def export(context: Context, server: MetricsServer) -> None:
    """Raises Unavailable where the port is taken; a part that does not work is a metric, never an end."""
    context.host.clock.catch_signals()  # before the first look: one that comes in its midst ends the loop
    metrics = NodeMetrics(context=context)
    metrics.look_at_files()
    with server.serve(context.settings.metrics_port, lambda: metrics.page) as port:
        log.info("serving metrics", port=port)
        looked = float("-inf")
        while True:
            if context.host.clock.monotonic() - looked >= NODE:
                looked = context.host.clock.monotonic()
                metrics.look_at_node()
            metrics.look_at_files()
            if signal := context.host.clock.wait(FILES):
                log.info("stopping", signal=signal)
                return
