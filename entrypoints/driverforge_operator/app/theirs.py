"""Whether another operator serves this cluster: two that write the same objects would never agree.

NVIDIA's shows by its Deployment, or by its lease, as where it was installed by something else than its chart.
One of ours in another namespace shows by its Lease, and the older Lease decides who stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from driverforge_operator.app.lease import since_boot
from driverforge_operator.ports import Kind
from driverforge_operator.state.kinds import (
    LEASES,
    THEIR_DEPLOYMENT,
    THEIR_LEASE,
    DeploymentDocument,
    LeaseDocument,
)

OTHERS: tuple[Kind[Any], ...] = (THEIR_DEPLOYMENT, THEIR_LEASE, LEASES)
"""The kinds that tell of other operators."""
_GONE = 300.0
"""Seconds without a renewal after which another operator of ours is gone. An upgrade of it, which gives its
lease back, takes less: its objects are not to change hands for that."""

_Key = tuple[str, str]  # namespace, name


class Theirs:
    """What the watches have told of them; one thread uses this. `namespace` is ours."""

    def __init__(self, namespace: str, clock: Callable[[], float] = since_boot) -> None:
        self._namespace = namespace
        self._clock = clock
        self._deployments: dict[_Key, DeploymentDocument] = {}
        self._leases: dict[_Key, tuple[LeaseDocument, float]] = {}

    def running(self) -> str:
        """What shows that NVIDIA's operator runs, '' where nothing does."""
        for (namespace, name), deployment in self._deployments.items():
            if deployment.spec.replicas:
                return f"Deployment {namespace}/{name} is there"
        for (namespace, name), (lease, seen) in self._leases.items():
            spec = lease.spec
            # it does not give its lease back when it ends: one that nobody renews runs out
            held = spec.holder_identity and self._clock() - seen <= spec.lease_duration_seconds
            if name == THEIR_LEASE.only and held:
                return f"{spec.holder_identity} holds the lease {namespace}/{name}"
        return ""

    def older(self) -> str:
        """The namespace of the oldest operator of ours, '' where that is this one."""
        now = self._clock()
        ages = {
            namespace: (lease.metadata.creation_timestamp, namespace)
            for (namespace, name), (lease, seen) in self._leases.items()
            if name == LEASES.only and (namespace == self._namespace or now - seen <= _GONE)
        }
        oldest = min(ages, key=lambda namespace: ages[namespace], default=self._namespace)
        return "" if oldest == self._namespace else oldest

    def put(self, kind: Kind[Any], item: Any) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        if kind is THEIR_DEPLOYMENT:
            self._deployments[key] = item
            return
        known = self._leases.get(key)
        # told again by another list, a lease is not renewed
        if known is None or known[0] != item:
            self._leases[key] = (item, self._clock())

    def remove(self, kind: Kind[Any], item: Any) -> None:
        known = self._deployments if kind is THEIR_DEPLOYMENT else self._leases
        known.pop((item.metadata.namespace, item.metadata.name), None)

    def keep_only(self, kind: Kind[Any], names: Collection[str]) -> None:
        """A list is whole: what it does not have is gone."""
        known: dict[_Key, Any] = self._deployments if kind is THEIR_DEPLOYMENT else self._leases
        for key in [one for one in known if one[1] not in names and kind.only in ("", one[1])]:
            del known[key]
