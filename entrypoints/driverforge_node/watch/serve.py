"""The watch of a toolkit's settings: beside `driverctl toolkit run`, or alone as `driverctl toolkit watch`."""

from __future__ import annotations

from collections.abc import Callable

from driverforge_node.cdi.roots import Roots
from driverforge_node.cdi.rules import file_name
from driverforge_node.runtime.change import System
from driverforge_node.toolkit.settings import Settings
from driverforge_node.toolkit.wanted import layout_of
from driverforge_node.watch import window
from driverforge_node.watch.decide import Policy
from driverforge_node.watch.loop import Hands, watch
from driverforge_node.watch.observe import Targets


def policy_of(settings: Settings) -> Policy:
    """Raises UsageError for a window that cannot be read. Where the runtime's configuration is not ours, nothing is applied again."""
    windows = window.parse(filter(str.strip, settings.reapply_window.split(";")))
    return Policy(
        reapply=settings.reapply and not settings.no_runtime_config,
        windows=windows,
        regenerate=settings.cdi_enabled,
    )


def serve(
    system: System,
    settings: Settings,
    roots: Roots,
    *,
    apply: Callable[[], object],
    regenerate: Callable[[], None],
) -> str:
    """Until a stop signal; its name. Raises TemporaryFailure where another watch runs, UsageError."""
    spec = (
        f"{settings.cdi_output_dir.rstrip('/')}/{file_name(settings.cdi_kind)}"
        if settings.cdi_enabled
        else ""
    )
    targets = Targets(system=system, layout=layout_of(settings), roots=roots, spec=spec)
    hands = Hands(apply=apply, regenerate=regenerate)
    return watch(
        system.host,
        targets,
        hands,
        policy_of(settings),
        every=float(settings.watch_interval),
        folder=settings.pid_file.rpartition("/")[0],
    )
