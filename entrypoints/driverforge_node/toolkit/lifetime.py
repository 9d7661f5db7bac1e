"""`driverctl toolkit run`: install, write the CDI specification, configure the runtime, stay until a stop signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driverforge_core.errors import TemporaryFailure
from driverforge_node import log
from driverforge_node.host.ports import Host
from driverforge_node.toolkit import collect, install, state
from driverforge_node.toolkit.settings import Settings
from driverforge_node.toolkit.wanted import layout_of, wanted

UNINSTALL = "uninstall"  # a file beside the PID file: the pod's end is the toolkit's
FOREVER = 3600.0
SETTLING = 5.0  # seconds after a restart of the runtime in which it may still end our own pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run does beside the installation; each raises what its own command raises."""

    low_level: Callable[[], Sequence[str]]  # low-level runtimes that the runtime's configuration names
    cdi: Callable[[], None]
    apply: Callable[[], bool]  # whether the runtime was restarted for it
    revert: Callable[[], None]
    watch: Callable[
        [], str
    ]  # until a stop signal: its name; raises TemporaryFailure where another watch runs


def serve(host: Host, settings: Settings, parts: Parts) -> int:
    """Exit status. Raises TemporaryFailure, with the other's files untouched, where another instance runs."""
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
            host.files.remove(state.status_file(settings))
    return 0


def _serve(host: Host, settings: Settings, parts: Parts) -> None:
    host.clock.wait(0)  # from here on a stop signal waits for the end of a step
    state.write(host, settings, phase="starting", release="")
    with install.exclusive(host):
        with log.step("install"):
            done = install.install(host, wanted(host, settings, discovered=parts.low_level()))
            log.info(install.summary(done))
        if _stopped(host):
            return
        collect.collect(host, layout_of(settings))
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
    state.write(host, settings, phase="ready", release=done.release)
    signal = _stay(host, parts)
    log.info("stopping", signal=signal, revert_on=settings.revert_on)
    state.write(host, settings, phase="stopping", release=done.release)
    if reverts(host, settings):
        parts.revert()
        host.files.remove(
            marker(settings)
        )  # or the next installation would be undone at the first replacement of its pod


def _ended_by_the_restart(host: Host, settings: Settings, *, restarted: bool) -> bool:
    """Whether a stop came with our own change: it undoes nothing, or the next pod would change it again, for ever.

    containerd 1.6.9 to 1.6.11 end the sandboxes that they find at their start, ours too (gpu-operator#456, toolkit#39).
    """
    if restarted:
        for _ in host.clock.ticks(timeout=SETTLING, interval=SETTLING):
            pass
    signal = host.clock.wait(0)
    if not signal or host.files.exists(marker(settings)):
        return False
    log.warning(
        "stopped while the runtime was configured: that stays, or the next pod would restart the runtime again",
        signal=signal,
    )
    return True


def _stay(host: Host, parts: Parts) -> str:
    """Until a stop signal; its name."""
    try:
        return parts.watch()
    except TemporaryFailure as error:
        log.warning(error.brief, next=error.resolution)
    while not (signal := host.clock.wait(FOREVER)):
        pass
    return signal


def reverts(host: Host, settings: Settings) -> bool:
    """Whether this stop undoes the change of the runtime's configuration."""
    if settings.no_runtime_config or settings.revert_on == "never":
        return False
    return settings.revert_on == "stop" or host.files.exists(marker(settings))


def marker(settings: Settings) -> str:
    """The file by which a stop is an uninstall."""
    return f"{settings.pid_file.rpartition('/')[0]}/{UNINSTALL}"


def _stopped(host: Host) -> bool:
    """A stop signal during the set-up ends it between two steps, with nothing undone, as upstream's does."""
    if signal := host.clock.wait(0):
        log.warning("stopped before all was set up", signal=signal)
    return signal is not None
