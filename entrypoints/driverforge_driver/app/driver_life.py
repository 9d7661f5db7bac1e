"""The life of the driver on a node: `init`, `load` and `unload` whole, and what each would do now.

`init` in one line: look, take the lock, converge, serve until a stop signal, leave. Every way out of it is
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from driverforge_core import log
from driverforge_core.errors import CommandFailed, DriverforgeError, InUse, TemporaryFailure
from driverforge_driver.driver import statusfile
from driverforge_driver.driver.converge import converge, lost, roll_back
from driverforge_driver.driver.plan import next_steps
from driverforge_driver.driver.statusfile import Phase
from driverforge_driver.driver.steps import SetStatus
from driverforge_driver.driver.supervise import SupervisedDaemon, supervise
from driverforge_driver.driver.usage import describe_use
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, Goal, WantedDriver
from driverforge_driver.state.observe import observe
from driverforge_host.ports import Host, text_of
from driverforge_host.reconcile.loop import Ask, gate_for
from driverforge_host.reconcile.outcomes import Blocked, Done, Steps


def plan(host: Host, wanted: WantedDriver) -> Steps | Done:
    """The stretch that can be decided now. Changes nothing. Raises what blocks it."""
    outcome = next_steps(observe(host, wanted), wanted)
    if isinstance(outcome, Blocked):
        raise outcome.error
    return outcome


def init(host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None = None) -> None:
    """Load the driver, publish its root, stay until a stop signal, and leave.

    Also returns normally where the driver stays loaded because it is in use: the holders are logged. A
    failure before the driver is ready is rolled back, and its error says what is left.
    """
    try:
        # What cannot be is refused before the first file, the lock's too, is written.
        plan(host, wanted)
    except DriverforgeError:
        _no_longer_ready(host, pid)
        raise
    host.clock.catch_signals()  # one ends the run in an orderly way
    with driver_lock(host, pid):
        before = observe(host, wanted)
        statusfile.write(host, phase=Phase.STARTING, pid=pid, facts=before, wanted=wanted)
        try:
            done = converge(host, wanted, gate=gate_for(host, ask=ask))
        except Exception as error:
            # The error may be a stop signal's: between two steps, or within a compilation, where it reads as
            # a failure of the compiler. That is no failed start.
            if isinstance(error, DriverforgeError) and host.clock.wait(0):
                log.warning(error.brief)
                leave(host, wanted, pid)
                return
            _roll_back(host, wanted, before, error)
            raise
        try:
            serve(host, wanted, pid, done)
        except DriverforgeError as error:
            log.warning("stopping after an error", problem=error.brief)
            leave(host, wanted, pid)
            raise
        leave(host, wanted, pid)


def _no_longer_ready(host: Host, pid: int) -> None:
    """Take back the readiness that a killed instance left. One that runs has the lock, and keeps its own."""
    if text_of(host.files, paths.DAEMONS_STATUS).strip() != "Ready":
        return
    with suppress(DriverforgeError), driver_lock(host, pid):
        SetStatus(text="NotReady").apply(host)


def load(host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None = None) -> None:
    """Load the modules and make their device files; the driver's root is not published.

    A failure is rolled back as in `init`.
    """
    plan(host, wanted)
    with driver_lock(host, pid):
        before = observe(host, wanted)
        try:
            converge(host, wanted, gate=gate_for(host, ask=ask))
        except Exception as error:
            _roll_back(host, wanted, before, error)
            raise
    log.info("loaded", driver=wanted.driver)


def unload(host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None = None) -> None:
    """Unload the modules and unmount the driver's root.

    Raises InUse with the holders where the driver is in use: nothing is stopped or unloaded then.
    """
    plan(host, wanted)
    with driver_lock(host, pid):
        converge(host, wanted, gate=gate_for(host, ask=ask))
    log.info("unloaded")


def _roll_back(host: Host, wanted: WantedDriver, before: DriverFacts, error: Exception) -> None:
    """Roll back to `before`, and let `error` say what is left.

    Any error: also after a fault of ours no half of a driver may stay. The log says then what is left.
    """
    left = roll_back(host, wanted, before) or ("nothing that was not there before",)
    lines = tuple(f"left on this node: {line}" for line in left)
    if isinstance(error, DriverforgeError):
        error.details = (*error.details, *lines)
        return
    for line in lines:
        log.warning(line)


def serve(host: Host, wanted: WantedDriver, pid: int, done: Done) -> None:
    """Keep our daemons running and the status file true, from ready to the stop signal.

    Raises CommandFailed where somebody else takes the modules or the root away: the pod is not ready then,
    and its next start puts them back.
    """
    facts = observe(host, wanted)
    log.info("ready", driver=wanted.driver, type=facts.loaded_type, kernel=facts.release, root=paths.ROOT)
    if not facts.root_shared:
        log.warning(
            "the host does not see the driver's root", fix="mount /run/nvidia with Bidirectional propagation"
        )

    def changed(daemons: tuple[SupervisedDaemon, ...]) -> None:
        statusfile.write(
            host, phase=Phase.READY, pid=pid, facts=facts, wanted=wanted, done=done, daemons=daemons
        )

    def watch() -> None:
        if line := lost(host, wanted):
            raise CommandFailed(
                f"the driver that was ready is not whole any more: {line}",
                resolution="see who changes this node beside this container; a new start makes it whole",
            )

    signal = supervise(host, changed, watch=watch)
    log.info("stopping", signal=signal)


def leave(host: Host, wanted: WantedDriver, pid: int) -> None:
    """Leave, with a status file that no longer says ready. That it cannot be written is no reason to stay."""
    try:
        statusfile.write(host, phase=Phase.STOPPING, pid=pid, facts=observe(host, wanted), wanted=wanted)
    except DriverforgeError as error:
        log.warning("the status file cannot be set to stopping", problem=error.brief)
    stop(host, wanted)


def stop(host: Host, wanted: WantedDriver) -> None:
    """Stop our daemons, unmount the root, unload the modules.

    A driver in use stays, as it should: that is a warning with every holder, and no failure.
    """
    stopped = replace(wanted, goal=Goal.STOPPED)
    try:
        left = converge(host, stopped).left
    except InUse as error:
        # Somebody opened the GPU between our look and rmmod.
        left = describe_use(observe(host, stopped)) or error.details
    if left:
        log.warning("the driver stays loaded: it is in use", driver=wanted.driver)
        for line in left:
            log.warning(line)
        return
    log.info("stopped: the driver is unloaded, its root unmounted")


@contextmanager
def driver_lock(host: Host, pid: int) -> Iterator[None]:
    """Hold the node's driver lock, which is upstream's PID file.

    Raises TemporaryFailure, and leaves all files alone, where another instance has it.
    """
    host.files.make_dirs(paths.RUN)
    with host.files.lock(paths.LOCK, text=f"{pid}\n") as won:
        if not won:
            holder = text_of(host.files, paths.LOCK).strip()
            raise TemporaryFailure(
                f"another instance serves this node's driver: PID {holder or 'unknown'}",
                details=[f"it holds the lock on {paths.LOCK}"],
                resolution="stop that one first (delete its pod, or kill -TERM its PID); nothing was changed",
            )
        yield
