"""The life of the driver on a node: `init`, `load` and `unload` whole, and what each would do now.

`init` in one line: look, take the lock, converge, serve until a stop signal, leave. Every way out of it is
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from driverforge_core.errors import DriverforgeError, InUse, TemporaryFailure
from driverforge_node import log
from driverforge_node.driver import statusfile
from driverforge_node.driver.converge import converge, roll_back
from driverforge_node.driver.plan import next_steps
from driverforge_node.driver.state import paths
from driverforge_node.driver.state.facts import DriverFacts, Goal, WantedDriver
from driverforge_node.driver.state.observe import observe
from driverforge_node.driver.statusfile import Phase
from driverforge_node.driver.supervise import SupervisedDaemon, supervise
from driverforge_node.driver.usage import describe_use
from driverforge_node.ports import Host, text_of
from driverforge_node.reconcile.loop import Ask, gate_for
from driverforge_node.reconcile.outcomes import Blocked, Done, Steps


def plan(host: Host, wanted: WantedDriver) -> Steps | Done:
    """The stretch that can be decided now. Changes nothing. Raises what blocks it."""
    return _next_steps_or_raise(observe(host, wanted), wanted)


def _next_steps_or_raise(facts: DriverFacts, wanted: WantedDriver) -> Steps | Done:
    outcome = next_steps(facts, wanted)
    if isinstance(outcome, Blocked):
        raise outcome.error
    return outcome


def init(host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None = None) -> None:
    """Load the driver, publish its root, stay until a stop signal, and leave.

    Also returns normally where the driver stays loaded because it is in use: the holders are logged. A
    failure before the driver is ready is rolled back, and its error says what is left.
    """
    before = observe(host, wanted)
    _next_steps_or_raise(before, wanted)
    # From here on a stop signal is noted, and ends the run in an orderly way.
    host.clock.wait(0)
    with driver_lock(host, pid):
        statusfile.write(host, phase=Phase.STARTING, pid=pid, facts=before, wanted=wanted)
        try:
            done = converge(host, wanted, gate=gate_for(host, ask=ask))
        except DriverforgeError as error:
            # The error may be a stop signal's: between two steps, or within a compilation, where it reads as
            # a failure of the compiler. That is no failed start.
            if host.clock.wait(0):
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


def load(host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None = None) -> None:
    """Load the modules and make their device files; the driver's root is not published.

    A failure is rolled back as in `init`.
    """
    before = observe(host, wanted)
    _next_steps_or_raise(before, wanted)
    with driver_lock(host, pid):
        try:
            converge(host, wanted, gate=gate_for(host, ask=ask))
        except DriverforgeError as error:
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


def _roll_back(host: Host, wanted: WantedDriver, before: DriverFacts, error: DriverforgeError) -> None:
    """Roll back to `before`, and let `error` say what is left."""
    left = roll_back(host, wanted, before) or ("nothing that was not there before",)
    error.details = (*error.details, *(f"left on this node: {line}" for line in left))


def serve(host: Host, wanted: WantedDriver, pid: int, done: Done) -> None:
    """Keep our daemons running and the status file true, from ready to the stop signal."""
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

    signal = supervise(host, changed)
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
