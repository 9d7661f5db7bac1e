"""The watch of a toolkit's settings: `driverctl toolkit watch`, and a part of `toolkit run`."""

from __future__ import annotations

from collections.abc import Callable

from driverforge_host.ports import Host, Sockets
from driverforge_toolkit.app.configure_runtime import reapply_runtime
from driverforge_toolkit.app.management_spec import roots_of, write_management_spec
from driverforge_toolkit.cdi.conformance import file_name
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.release_plan import layout_of
from driverforge_toolkit.toolkit.runtime_request import request_of
from driverforge_toolkit.toolkit.settings import ToolkitSettings
from driverforge_toolkit.watch import window
from driverforge_toolkit.watch.decide import WatchPolicy
from driverforge_toolkit.watch.look import WatchTargets
from driverforge_toolkit.watch.rounds import WatchActions, watch


def policy_of(settings: ToolkitSettings) -> WatchPolicy:
    """What the watch may do. Raises UsageError for a window that cannot be read.

    Where the runtime's configuration is not ours, nothing is applied again.
    """
    windows = window.parse(filter(str.strip, settings.reapply_window.split(";")))
    return WatchPolicy(
        reapply=settings.reapply and not settings.no_runtime_config,
        windows=windows,
        regenerate=settings.cdi_enabled,
    )


def watch_beside(
    system: RuntimeSystem,
    settings: ToolkitSettings,
    *,
    apply: Callable[[], object],
    regenerate: Callable[[], None],
) -> str:
    """Watch beside a run, until a stop signal. Returns its name.

    Raises TemporaryFailure where another watch runs, UsageError as `policy_of`.
    """
    spec = (
        f"{settings.cdi_output_dir.rstrip('/')}/{file_name(settings.cdi_kind)}"
        if settings.cdi_enabled
        else ""
    )
    targets = WatchTargets(system=system, layout=layout_of(settings), roots=roots_of(settings), spec=spec)
    actions = WatchActions(apply=apply, regenerate=regenerate)
    return watch(
        system.host,
        targets,
        actions,
        policy_of(settings),
        every=float(settings.watch_interval),
        folder=settings.pid_file.rpartition("/")[0],
    )


def watch_toolkit(host: Host, sockets: Sockets, settings: ToolkitSettings) -> str:
    """Watch what somebody else applied, until a stop signal. Returns its name.

    Raises as `watch_beside`, and InputError.
    """
    layout = layout_of(settings)
    system = RuntimeSystem(host=host, sockets=sockets, request=request_of(host, settings, layout))
    return watch_beside(
        system,
        settings,
        apply=lambda: reapply_runtime(system),
        regenerate=lambda: write_management_spec(host, settings, layout),
    )
