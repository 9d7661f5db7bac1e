"""A run of `nvidia-validator`: look, wait where that is asked for, leave the files that others wait for.

Or, as the component metrics, serve what is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, InputError, StorageFailed, TemporaryFailure, UsageError
from driverforge_core.validations import WRITTEN, Component
from driverforge_host.gpu.roots import DriverRoots, view_of
from driverforge_host.ports import Host
from driverforge_toolkit.app.device_nodes import files_to_link
from driverforge_toolkit.devices import repair
from driverforge_toolkit.validate.check_table import CHECKS
from driverforge_toolkit.validate.context import Context, Validated
from driverforge_toolkit.validate.driver_check import take_back
from driverforge_toolkit.validate.node_metrics import NodeMetrics

LINKS = "/host-dev-char"  # where NVIDIA's pods mount the host's /dev/char
AGAIN = 300.0  # seconds after which the same reason to wait is told again
FILES, NODE = 30.0, 60.0  # seconds between two looks of the exporter


class MetricsServer(Protocol):
    """A page that Prometheus reads."""

    def serve(self, port: int, page: Callable[[], str]) -> AbstractContextManager[int]:
        """Serve what `page` gives at /metrics for as long as the context lasts; yields the port.

        Port 0 takes a free one. Raises Unavailable where the port is taken.
        """


def validate(context: Context) -> None:
    """Raises what keeps the part from working; with WITH_WAIT, only where waiting cures nothing."""
    settings, files = context.settings, context.host.files
    files.make_dirs(settings.output_dir)
    # what an earlier run found is true no longer, until it is found again
    gone = WRITTEN if settings.cleanup_all else (settings.component.ready_file,)
    for name in gone:
        files.remove(context.status_file(name))
    found = _look(context)
    for name, text in found.files.items():
        files.write_atomic(context.status_file(name), text.encode(), mode=0o644)
    log.info("validated", component=settings.component.value, seen=found.seen)


def _look(context: Context) -> Validated:
    """The check's result; its first one, or with WITH_WAIT the first good one."""
    told, told_at = "", 0.0
    clock = context.host.clock
    asked = context.settings.component is not Component.DRIVER
    while isinstance(found := _checked(context), DriverforgeError):
        asked = asked or take_back(context)
        # a setting that is wrong stays so
        if not context.settings.with_wait or isinstance(found, UsageError | InputError):
            raise found
        text = "; ".join([found.brief, *found.details])
        if text != told or clock.monotonic() - told_at >= AGAIN:
            told, told_at = text, clock.monotonic()
            log.info("waiting", reason=found.brief, seen="; ".join(found.details), next=found.resolution)
        if signal := clock.wait(float(context.settings.sleep_interval_seconds)):
            raise TemporaryFailure(
                f"stopped by {signal} while waiting: {found.brief}",
                details=found.details,
                resolution=found.resolution,
            )
    return found


def _checked(context: Context) -> Validated | DriverforgeError:
    try:
        found = CHECKS[context.settings.component](context)
        if found.roots and not context.settings.disable_dev_char_symlink_creation:
            link_devices(context.host, found.roots)
    except DriverforgeError as error:
        return error
    return found


def link_devices(host: Host, roots: DriverRoots) -> None:
    """Make the node's links MAJOR:MINOR to device files: without them a reload of systemd takes GPUs away.

    Raises StorageFailed where the node's folder of links is not here, or something else has such a name.
    """
    if not host.files.is_dir(LINKS):
        raise StorageFailed(
            "the links to device files cannot be made",
            details=[f"this container has no {LINKS}"],
            resolution=f"mount the host's /dev/char at {LINKS}, or, where no container uses systemd's "
            "cgroups, set DISABLE_DEV_CHAR_SYMLINK_CREATION=true",
        )
    wanted = files_to_link(view_of(host, roots), create_all=True)
    repairs = repair.plan_links(host.files, LINKS, wanted, dev_root=roots.dev_host)
    repair.make_links(host.files, repairs)
    for each in repairs:
        log.info("device link", made=each.describe())


def export(context: Context, server: MetricsServer) -> None:
    """The node status exporter: look at the node now and then, serve what was seen, until a stop signal.

    Raises Unavailable where the port is taken; a part that does not work is a metric, never an end.
    """
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
