"""Whether NVIDIA's operator runs in this cluster: two that write the same objects would never agree.

Its Deployment says so, or its lease, as where it was installed by something else than its chart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from driverforge_operator.app.lease import since_boot
from driverforge_operator.ports import Kind
from driverforge_operator.state.kinds import THEIR_DEPLOYMENT, DeploymentDocument, LeaseDocument

_Key = tuple[str, str]  # namespace, name


class Theirs:
    """What the watches have told of it; one thread uses this."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._deployments: dict[_Key, DeploymentDocument] = {}
        self._leases: dict[_Key, tuple[LeaseDocument, float]] = {}

    def running(self) -> str:
        """What shows that it runs, '' where nothing does."""
        for (namespace, name), deployment in self._deployments.items():
            if deployment.spec.replicas:
                return f"Deployment {namespace}/{name} is there"
        for (namespace, name), (lease, seen) in self._leases.items():
            spec = lease.spec
            # it does not give its lease back when it ends: one that nobody renews runs out
            if spec.holder_identity and self._clock() - seen <= spec.lease_duration_seconds:
                return f"{spec.holder_identity} holds the lease {namespace}/{name}"
        return ""

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
        for key in [one for one in known if one[1] not in names]:
            del known[key]
