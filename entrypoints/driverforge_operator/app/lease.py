"""One operator at a time writes: the one that holds a Lease.

Whoever holds it renews it every few seconds. The right to write ends earlier than the lease: a holder that
could not renew stops before another one may begin. Only this machine's own clock counts, from before a
renewal was asked for, and it goes on while the machine sleeps. What a clock is set to counts for nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_operator.ports import Cluster, Conflict, Document, Event, Gone, Kind, Loaded, Page
from driverforge_operator.state.kinds import LEASE, LEASE_NAME, LeaseDocument

LOGGER = logging.getLogger("driverforge")


class NotLeading(TemporaryFailure):
    """A write was not begun: another operator may lead by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long a lease holds without being renewed, in seconds, and what follows from it."""

    seconds: int = 30

    @property
    def writes_end(self) -> float:
        return self.seconds * 2 / 3

    @property
    def renewed_every(self) -> float:
        return self.seconds / 5


def since_boot() -> float:
    """Seconds that no one sets, and that pass while a virtual machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """Takes part in the election. One thread calls `run`; any may ask `leads`."""

    def __init__(
        self, cluster: Cluster, identity: str, terms: Terms, *, clock: Callable[[], float] = since_boot
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._terms = terms
        self._clock = clock
        self._version = ""  # of the lease as we wrote it; '' while it is not ours
        self._writes_end = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)  # another's lease: its version, and since when we know it

    def leads(self) -> bool:
        return self._clock() < self._writes_end

    def run(self, stop: threading.Event) -> None:
        """Take part until stopped. `release` afterwards, once nothing writes any more."""
        while not stop.is_set():
            led = self.leads()
            try:
                self.step()
            except DriverforgeError as error:
                LOGGER.warning("lease: %s", ": ".join((error.brief, *error.details)))
            if self.leads() != led:
                LOGGER.info("this operator leads" if self.leads() else "another operator may lead")
            stop.wait(self._terms.renewed_every)

    def step(self) -> None:
        """Renew the lease if it is ours, take it if it is nobody's."""
        if self._version:
            try:
                self._write(self._version, {})
            except (Conflict, Gone):
                # somebody's write, or an own one whose answer was lost
                self._version, self._writes_end = "", float("-inf")
            else:
                return
        try:
            found = self._cluster.get(LEASE, LEASE_NAME)
        except Gone:
            self._create()
            return
        spec = found.spec
        if spec.holder_identity == self._identity:
            self._write(found.metadata.resource_version, {})
        elif not spec.holder_identity or self._ran_out(found):
            taken = {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._terms.seconds,
                "leaseTransitions": spec.lease_transitions + 1,
                "acquireTime": _now(),
            }
            self._write(found.metadata.resource_version, taken)

    def release(self) -> None:
        """Let the next one begin at once."""
        if not self._version:
            return
        self._writes_end = float("-inf")
        try:
            self._write(self._version, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except DriverforgeError as error:
            LOGGER.warning("the lease runs out by itself: %s", error.brief)
        self._version, self._writes_end = "", float("-inf")

    def _create(self) -> None:
        began = self._clock()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._terms.seconds,
            "leaseTransitions": 0,
            "acquireTime": _now(),
            "renewTime": _now(),
        }
        document = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": {"name": LEASE_NAME},
            "spec": spec,
        }
        written = self._cluster.create(LEASE, document)
        self._held(written["metadata"]["resourceVersion"], began)

    def _write(self, version: str, changes: Document) -> None:
        """Write the lease if it is still the one of `version`. Raises Conflict where it is not."""
        began = self._clock()
        body = {"metadata": {"resourceVersion": version}, "spec": {"renewTime": _now(), **changes}}
        self._held(self._cluster.patch(LEASE, LEASE_NAME, body), began)

    def _held(self, version: str, began: float) -> None:
        self._version = version
        self._writes_end = began + self._terms.writes_end

    def _ran_out(self, found: LeaseDocument) -> bool:
        """Whether another's lease has not changed for as long as it holds, as far as we have seen."""
        version, now = found.metadata.resource_version, self._clock()
        if self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] > found.spec.lease_duration_seconds


class Fenced:
    """A `Cluster` on which a write begins only while we lead."""

    def __init__(self, cluster: Cluster, leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leads = leads

    def pages(self, kind: Kind[Loaded], *, labels: str = "") -> Iterator[Page[Loaded]]:
        return self._cluster.pages(kind, labels=labels)

    def watch(self, kind: Kind[Loaded], since: str, *, labels: str = "") -> Iterator[Event[Loaded]]:
        return self._cluster.watch(kind, since, labels=labels)

    def get(self, kind: Kind[Loaded], name: str) -> Loaded:
        return self._cluster.get(kind, name)

    def create(self, kind: Kind[Any], document: Document) -> Document:
        self._check()
        return self._cluster.create(kind, document)

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        self._check()
        return self._cluster.apply(kind, document)

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        self._check()
        return self._cluster.patch(kind, name, body, part=part)

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        self._check()
        self._cluster.delete(kind, name, orphan=orphan)

    def _check(self) -> None:
        if not self._leads():
            raise NotLeading("this operator does not lead any more")


def _now() -> str:
    """For people who look at the lease; as the API writes a MicroTime."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
