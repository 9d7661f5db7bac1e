"""The life of `driverforge-operator run`: watches tell, one thread decides and writes.

A thread a kind lists and watches, and puts what it sees into a queue. The deciding thread takes all that is
there, and makes one plan of it. What fails is decided on again after a pause that grows; what cannot work
(a server that refuses a field, a missing right) too, since the reason may go away. A replica that does not
lead takes in what is told, and is ready to go on where the other one stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from itertools import count, zip_longest
from operator import itemgetter
from queue import Empty, Queue
from typing import Any

from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_operator.app.carry_out import carry_out
from driverforge_operator.app.events import Announcer
from driverforge_operator.app.follow import Pause, Told, follow, line, list_all
from driverforge_operator.app.lease import Fenced, NotLeading
from driverforge_operator.app.lookups import Lookups
from driverforge_operator.app.metrics import Metrics
from driverforge_operator.app.owners import Owners
from driverforge_operator.app.retries import Retries
from driverforge_operator.app.store import Store
from driverforge_operator.app.theirs import OTHERS, Theirs
from driverforge_operator.plan.actions import Action, SetStatus, StandDown
from driverforge_operator.ports import (
    Cluster,
    Conflict,
    Gone,
    Kind,
    Overloaded,
    Ref,
    Registries,
    Unauthenticated,
)
from driverforge_operator.state.contents import CONTENTS
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    LEASES,
    NODE,
    NVIDIA_DRIVER,
    OURS,
    OURS_SELECTOR,
    THEIR_DEPLOYMENT,
    THEIR_LEASE,
    THEIR_SELECTOR,
    name_of,
)
from driverforge_operator.state.openshift import OPENSHIFT
from driverforge_operator.state.validators import VALIDATOR, VALIDATOR_SELECTOR

LOGGER = logging.getLogger("driverforge")
WAITING = 1000
"""Objects at most that were told and not taken in: a node before that has all its labels."""
STRETCH = 1.0
"""Seconds of writing after which what was told meanwhile is looked at."""
BEAT = 120.0
"""Seconds without a round after which the deciding thread is stuck: more than a request may take."""
# and nodes, as soon as it is known by which of their labels somebody selects them
WATCHED: tuple[tuple[Kind[Any], str], ...] = (
    (THEIR_DEPLOYMENT, THEIR_SELECTOR),
    (THEIR_LEASE, ""),
    (LEASES, ""),
    (CLUSTER_POLICY, ""),
    (NVIDIA_DRIVER, ""),
    *CONTENTS,
    *((kind, "") for kind in OPENSHIFT),
    *((kind, OURS_SELECTOR) for kind in OURS),
)


class Controller:
    """Keeps a cluster as its custom resources ask. `run` is one thread's; the rest may be asked by any.

    `environment` are the operator's own variables, with images that custom resources do not name. After
    `rest` seconds in which nobody told anything it looks for what is due.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        registries: Registries | None = None,
        environment: Mapping[str, str] | None = None,
        leads: Callable[[], bool] = lambda: True,
        identity: str = "",
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        rest: float = 1,
    ) -> None:
        self._cluster = Fenced(cluster, leads)
        self._leads = leads
        self._clock = clock
        self._rest = rest
        self._store = Store(namespace, asks_registries=registries is not None, environment=environment)
        self._lookups = Lookups(registries, clock=clock, rest=rest) if registries else None
        self._theirs = Theirs(namespace)
        self._metrics = metrics or Metrics()
        self._namespace = namespace
        self._announcer = Announcer(self._cluster, identity, clock=clock, now=_now)
        self._told: Queue[Told] = Queue(WAITING)
        self._unlisted = [*(kind for kind, _ in WATCHED), NODE]
        self._threads: list[threading.Thread] = []
        self._follows: list[Kind[Any]] = []
        self._retries = Retries(clock)
        self._held_until = 0.0
        self._beat = self._clock()
        self._standing_down = ""
        self._owners = Owners(self._cluster)
        self._turns = Turns()

    def run(self, stop: threading.Event) -> None:
        for kind, labels in WATCHED:
            self._follow(kind, labels, stop)
        if self._lookups:
            self._threads.append(
                threading.Thread(target=self._lookups.run, args=(stop,), name="registries", daemon=True)
            )
            self._threads[-1].start()
        decided = False
        while not stop.is_set():
            self._beat = self._clock()
            told = self._take(wait=min(self._retries.seconds(), self._rest) if decided else self._rest)
            with self._metrics.phase("take in"):
                for one in told:
                    self._take_in(one)
            self._follow_more(stop)
            self._metrics.set("driverforge_operator_queue", self._told.qsize())
            self._metrics.set("driverforge_operator_nodes", len(self._store.state.nodes))
            self._metrics.set("driverforge_operator_leader", self._leads())
            decided = self._may_decide()
            if decided:
                self._round(stop)

    def _follow_more(self, stop: threading.Event) -> None:
        """What is followed once custom resources are known, by which it is known why."""
        if NVIDIA_DRIVER in self._unlisted or CLUSTER_POLICY in self._unlisted:
            return
        self._store.read_intent()
        if NODE not in self._follows:
            self._follows.append(NODE)
            self._follow(NODE, "", stop)
        more = (
            (self._store.wants_validators, VALIDATOR, VALIDATOR_SELECTOR),
            (self._store.wants_namespace, self._store.own_namespace, ""),
        )
        for wanted, kind, labels in more:
            if wanted and kind not in self._follows:
                self._follows.append(kind)
                # what is not known yet is decided later
                self._unlisted.append(kind)
                self._follow(kind, labels, stop)

    def _follow(self, kind: Kind[Any], labels: str, stop: threading.Event) -> None:
        told = (self._cluster, kind, labels, self._told.put, stop)
        self._threads.append(
            threading.Thread(target=follow, args=told, name=kind.plural, daemon=True),
        )
        self._threads[-1].start()

    def _may_decide(self) -> bool:
        held = self._clock() < self._held_until
        ready = not self._unlisted and not held and self._leads()
        return ready and self._labels_known() and self._owners.known(self._store)

    def health(self) -> tuple[bool, str]:
        """Whether every thread goes on; a process that says no is to be started again."""
        silent = self._clock() - self._beat
        if silent > BEAT:
            return False, f"nothing was decided for {silent:.0f} s"
        dead = [one.name for one in self._threads if not one.is_alive()]
        return (False, f"nobody watches {', '.join(dead)}") if dead else (True, "ok")

    def ready(self) -> tuple[bool, str]:
        """Whether everything was listed once: whoever leads can decide, and who does not can take over."""
        if unlisted := self._unlisted:
            return False, f"not listed yet: {', '.join(kind.plural for kind in unlisted)}"
        return True, f"stands down: {self._standing_down}" if self._standing_down else "ok"

    def _round(self, stop: threading.Event) -> None:
        began = time.perf_counter()
        for action in self._retries.due():
            self._store.retry(action)
        if self._lookups:
            for question, answer in self._lookups.answers():
                self._store.answer(question, answer)
        with self._metrics.phase("decide"):
            actions = self._decide()
        if self._lookups:
            self._lookups.want(self._store.questions)
        with self._metrics.phase("write"):
            self._carry_out(actions, stop)
        self._count(began, decided=bool(actions))

    def _decide(self) -> list[Action]:
        if older := self._theirs.older():
            self._stand_down(f"an older driverforge-operator runs in namespace {older}", announced=True)
            return []
        if theirs := self._theirs.running():
            self._stand_down(f"NVIDIA's operator runs in this cluster ({theirs})")
            found = self._store.stand_down(self._standing_down)
        else:
            self._go_on()
            found = self._store.actions()
        self._store.keep_rejected(self._retries.keep(found))
        return [action for action in found if action.ref not in self._retries]

    def _stand_down(self, why: str, *, announced: bool = False) -> None:
        """Keep why nothing is written, and tell it once.

        It is `announced` by an event where conditions are the other operator's: it writes them whole.
        """
        self._metrics.set("driverforge_operator_standing_down", 1)
        if why == self._standing_down:
            return
        self._standing_down = why
        LOGGER.warning("stands down: %s", why)
        about = next(iter(self._store.state.resources.items()), None)
        if announced and about:
            ref, resource = about
            message = f"{why}: the one in {self._namespace} writes nothing until it is gone"
            self._announcer.tell(ref, resource.metadata.uid, "Warning", "StandingDown", message)

    def _go_on(self) -> None:
        """No other operator is there, or not any more."""
        self._metrics.set("driverforge_operator_standing_down", 0)
        if self._standing_down:
            self._standing_down = ""
            LOGGER.warning("no other operator runs; this one goes on")

    def _carry_out(self, actions: list[Action], stop: threading.Event) -> None:
        """Write, and decide later about what is left where something else is to be looked at first."""
        end, left = self._clock() + STRETCH, deque(self._turns.order(actions))
        failed: list[Action] = []
        while left and not stop.is_set() and self._may_write(until=end):
            # with nothing to take in a round lasts until all is written
            self._beat = self._clock()
            action = left.popleft()
            if not self._attempt(action):
                failed.append(action)
        for action in left:
            self._store.retry(action)
        self._turns.leave([*self._retries.actions, *left], failed=failed)

    def _may_write(self, *, until: float) -> bool:
        now = self._clock()
        return now >= self._held_until and self._leads() and (now < until or self._told.empty())

    def _attempt(self, action: Action) -> bool:
        """Carry out an action; False where that failed."""
        before, uid = self._known(action)
        try:
            written = carry_out(action, self._cluster, status=before, now=_now)
        except DriverforgeError as error:
            self._fail(action, error)
            return False
        self._retries.succeed(action)
        LOGGER.info("%s", action)
        self._store.carried_out(action, written)
        if isinstance(action, SetStatus):
            self._announcer.status(action, before, uid)
        elif isinstance(action, StandDown):
            self._announcer.tell(action.ref, uid, "Warning", "StandingDown", action.message)
        return True

    def _fail(self, action: Action, error: DriverforgeError) -> None:
        LOGGER.warning("%s: %s", action, line(error))
        self._metrics.add("driverforge_operator_failures_total", kind=type(error).__name__)
        if isinstance(error, Overloaded):
            # it asks this of everybody, and about everything; what grows is the pause of each object
            self._held_until = self._clock() + Pause().seconds(error.seconds)
        # what the server says to everybody, and what observing again puts right, is nothing about the object
        own = not isinstance(error, Conflict | Gone | Overloaded | NotLeading | Unauthenticated)
        self._retries.fail(action, not_before=self._held_until, own=own)
        # a person has to hear of it where the server refuses, or fails at this object on and on: a webhook
        # that does not answer is the server's own failure (500)
        if own and (self._retries.lasts(action) or not isinstance(error, TemporaryFailure)):
            self._store.reject(action, line(error))

    def _known(self, action: Action) -> tuple[dict[str, Any], str]:
        """Status and uid of the custom resource that an action is about."""
        if not isinstance(action, (SetStatus, StandDown)):
            return {}, ""
        found = self._store.resource(action.ref)
        return (found.status, found.metadata.uid) if found else ({}, "")

    def _labels_known(self) -> bool:
        """Read nodes again where a label counts that was not kept; True once all are known."""
        self._store.read_intent()
        if not self._store.lacks_labels:
            return True
        try:
            list_all(self._cluster, NODE, "", self._take_in)
        except DriverforgeError as error:
            LOGGER.warning("nodes: %s", line(error))
            return False
        self._store.lacks_labels = False
        return True

    def _take(self, *, wait: float) -> list[Told]:
        """What was told meanwhile, up to as much as may wait; waits for the first."""
        found: list[Told] = []
        with suppress(Empty):
            found.append(self._told.get(timeout=wait))
            while len(found) < WAITING:
                found.append(self._told.get_nowait())
        return found

    def _take_in(self, told: Told) -> None:
        known = self._theirs if told.kind in OTHERS else self._store
        if told.whole is not None:
            known.keep_only(told.kind, told.whole)
            self._store.serves(told.kind, served=told.served)
            self._unlisted = [one for one in self._unlisted if one is not told.kind]
        elif told.deleted:
            known.remove(told.kind, told.item if known is self._theirs else name_of(told.item))
        else:
            known.put(told.kind, told.item)

    def _count(self, began: float, *, decided: bool) -> None:
        """What a round was, for those who watch over us."""
        metrics, failed = self._metrics, bool(self._retries)
        metrics.set("driverforge_operator_waiting_actions", len(self._retries))
        if decided:
            metrics.add("driverforge_operator_reconcile_seconds_sum", time.perf_counter() - began)
            metrics.add("driverforge_operator_reconcile_seconds_count")
            metrics.add("gpu_operator_reconciliation_total")
            metrics.add("gpu_operator_reconciliation_failed_total", failed)
            metrics.set("gpu_operator_gpu_nodes_total", self._store.gpu_nodes)
            metrics.set("gpu_operator_reconciliation_has_nfd_labels", self._store.has_features)
        metrics.set("gpu_operator_reconciliation_status", -2 if failed else self._store.outcome)
        # after the others: once no image is waited for, they tell of what was done with the answers
        metrics.set("driverforge_operator_waiting_images", self._store.unanswered)
        if not failed:
            metrics.set("gpu_operator_reconciliation_last_success_ts_seconds", time.time())


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Turns:
    """What a round leaves and what came since take turns in the next one: neither starves the other."""

    def __init__(self) -> None:
        self._waited: dict[Ref, int] = {}
        self._numbers = count()

    def order(self, actions: Iterable[Action]) -> list[Action]:
        """One that was left, the oldest first, a new one as planned, and so on."""
        left: list[tuple[int, Action]] = []
        new: list[Action] = []
        for action in actions:
            since = self._waited.get(action.ref)
            if since is None:
                new.append(action)
            else:
                left.append((since, action))
        left.sort(key=itemgetter(0))
        oldest = (action for _, action in left)
        return [one for pair in zip_longest(oldest, new) for one in pair if one is not None]

    def leave(self, actions: Iterable[Action], *, failed: Iterable[Action] = ()) -> None:
        """A round ended before these. Those that `failed` in it had their turn, and come after the others."""
        had = {action.ref for action in failed}
        waited = {ref: number for ref, number in self._waited.items() if ref not in had}
        refs = sorted((action.ref for action in actions), key=had.__contains__)
        self._waited = {one: waited[one] if one in waited else next(self._numbers) for one in refs}
