"""The life of `driverctl toolkit run`.

Install, write the CDI specification, configure the runtime, and stay until a stop signal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import TemporaryFailure
from driverforge_host.ports import Host, Sockets
from driverforge_toolkit.app.configure_runtime import apply_runtime, low_level_of, revert_at_stop
from driverforge_toolkit.app.management_spec import write_management_spec
from driverforge_toolkit.app.toolkit_watch import policy_of, watch_beside
from driverforge_toolkit.runtime.backends.oci_hook import put_hook, remove_hook
from driverforge_toolkit.runtime.model import PodPath
from driverforge_toolkit.runtime.request import node_path
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit import install, releases, toolkit_status
from driverforge_toolkit.toolkit.release_plan import layout_of, wanted_release
from driverforge_toolkit.toolkit.runtime_request import request_of
from driverforge_toolkit.toolkit.settings import ToolkitSettings

UNINSTALL = "uninstall"  # a file beside the PID file: the pod's end is the toolkit's
FOREVER = 3600.0
SETTLING = 5.0  # seconds after a restart of the runtime in which it may still end our own pod


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run does beside the installation. Each part raises what its own command raises."""

    low_level: Callable[[], Sequence[str]]  # low-level runtimes that the runtime's configuration names
    cdi: Callable[[], None]
    apply: Callable[[], bool]  # whether the runtime was restarted for it
    revert: Callable[[], None]
    # until a stop signal: its name; raises TemporaryFailure where another watch runs
    watch: Callable[[], str]


def parts_of(host: Host, sockets: Sockets, settings: ToolkitSettings) -> RunParts:
    """The parts of a run. Raises UsageError, InputError for values that the runtime's half refuses."""
    layout = layout_of(settings)
    system = RuntimeSystem(host=host, sockets=sockets, request=request_of(host, settings, layout))
    policy_of(settings)  # a window that cannot be read is told now
    by_hook = settings.runtime == "crio" and settings.config_mode == "hook"
    program = f"{layout.toolkit}/nvidia-container-runtime-hook"

    def hook() -> str:
        return node_path(host, PodPath(f"{settings.hooks_dir.rstrip('/')}/{settings.hook_filename}"))

    def apply() -> bool:
        if not by_hook:
            return apply_runtime(system)
        put_hook(host, hook(), program)
        return False  # CRI-O watches the folder of hooks

    def revert() -> None:
        if by_hook:
            remove_hook(host, hook(), program)
        else:
            revert_at_stop(system)

    def cdi() -> None:
        write_management_spec(host, settings, layout)

    return RunParts(
        low_level=lambda: low_level_of(system),
        cdi=cdi,
        apply=apply,
        revert=revert,
        watch=lambda: watch_beside(system, settings, apply=lambda: apply_runtime(system), regenerate=cdi),
    )


def run_toolkit(host: Host, settings: ToolkitSettings, parts: RunParts) -> int:
    """Run until a stop signal, or until all is set up (`no_daemon`). Returns the exit status, 0.

    Raises TemporaryFailure where another instance runs; that one's files stay as they are.
    """
    folder = settings.pid_file.rpartition("/")[0]
    host.files.make_dirs(folder)
    with host.files.lock(settings.pid_file, text=f"{os.getpid()}\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another instance serves this node's toolkit",
                details=[
                    f"{settings.pid_file}: {host.files.read_text(settings.pid_file).strip() or 'empty'}"
                ],
                resolution="stop it first; nothing was changed",
            )
        try:
            _serve(host, settings, parts)
        finally:
            host.files.remove(toolkit_status.status_file(settings))
    return 0


def _serve(host: Host, settings: ToolkitSettings, parts: RunParts) -> None:
    host.clock.catch_signals()  # one waits for the end of a step
    toolkit_status.write_status(host, settings, phase="starting", release="")
    with install.exclusive_toolkit(host):
        with log.step("install"):
            done = install.install_release(host, wanted_release(host, settings, discovered=parts.low_level()))
            log.info(install.installed_text(done))
        if _stopped(host):
            return
        releases.remove_unused(host, layout_of(settings))
    if settings.cdi_enabled:
        with log.step("cdi"):
            parts.cdi()
    if _stopped(host):
        return
    restarted = False
    if not settings.no_runtime_config:
        with log.step("runtime"):
            restarted = parts.apply()
    if settings.no_daemon or _ended_by_the_restart(host, settings, restarted=restarted):
        return
    toolkit_status.write_status(host, settings, phase="ready", release=done.release)
    signal = _stay(host, parts)
    log.info("stopping", signal=signal, revert_on=settings.revert_on)
    toolkit_status.write_status(host, settings, phase="stopping", release=done.release)
    if reverts(host, settings):
        parts.revert()
        # or the next installation would be undone at the first replacement of its pod
        host.files.remove(marker(settings))


def _ended_by_the_restart(host: Host, settings: ToolkitSettings, *, restarted: bool) -> bool:
    """Whether a stop came with our own change of the runtime.

    Such a stop undoes nothing, or the next pod would make the change again, for ever. containerd 1.6.9 to
    1.6.11 end the sandboxes that they find at their start, ours too (gpu-operator#456, toolkit#39).
    """
    if restarted:
        for _ in host.clock.ticks(timeout=SETTLING, interval=SETTLING):
            pass
    signal = host.clock.wait(0)
    if not signal or host.files.exists(marker(settings)):
        return False
    log.warning(
        "stopped while the runtime was being configured; the configuration stays, or the next pod would "
        "restart the runtime again",
        signal=signal,
    )
    return True


def _stay(host: Host, parts: RunParts) -> str:
    """Wait for a stop signal. Returns its name."""
    try:
        return parts.watch()
    except TemporaryFailure as error:
        log.warning(error.brief, next=error.resolution)
    while not (signal := host.clock.wait(FOREVER)):
        pass
    return signal


def reverts(host: Host, settings: ToolkitSettings) -> bool:
    """Whether this stop undoes the change of the runtime's configuration."""
    if settings.no_runtime_config or settings.revert_on == "never":
        return False
    return settings.revert_on == "stop" or host.files.exists(marker(settings))


def marker(settings: ToolkitSettings) -> str:
    """The file by which a stop is an uninstall."""
    return f"{settings.pid_file.rpartition('/')[0]}/{UNINSTALL}"


def _stopped(host: Host) -> bool:
    """Whether a stop signal came during the set-up.

    It ends the set-up between two steps, with nothing undone, as upstream's does.
    """
    if signal := host.clock.wait(0):
        log.warning("stopped before all was set up", signal=signal)
    return signal is not None
