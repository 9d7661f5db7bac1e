"""Kubernetes Events: what a person wants to know who looks at a custom resource, and no more.

One where a resource's reason changes; progress within it is in the status. The same one again counts up the
one that is there. Not more than a few a minute, whatever happens: events are stored for everybody.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

from driverforge_core.errors import DriverforgeError
from driverforge_operator.plan.actions import SetStatus
from driverforge_operator.ports import Cluster, Ref
from driverforge_operator.state.kinds import EVENT, MANAGER

LOGGER = logging.getLogger("driverforge")
A_MINUTE = 20
_REMEMBERED = 500
_MESSAGE = 1024  # characters that the API takes
# an event about what has no namespace is in this one
_NAMESPACE = "default"


class Announcer:
    """Writes events; one thread uses it. `now` is RFC 3339, `clock` counts seconds."""

    def __init__(
        self, cluster: Cluster, identity: str, *, clock: Callable[[], float], now: Callable[[], str]
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._clock = clock
        self._now = now
        self._told: OrderedDict[str, tuple[int, str]] = OrderedDict()  # name -> how often, since when
        self._written: deque[float] = deque(maxlen=A_MINUTE)

    def status(self, action: SetStatus, before: Mapping[str, Any], uid: str) -> None:
        """A status was written: tell it where its reason is another one now."""
        told = next((one for one in action.conditions if one.status == "True"), None)
        if told is None or told.reason in {one.get("reason") for one in before.get("conditions") or ()}:
            return
        kind = "Warning" if told.type == "Error" else "Normal"
        self.tell(action.ref, uid, kind, told.reason, told.message or f"it is {action.state}")

    def tell(self, ref: Ref, uid: str, kind: str, reason: str, message: str) -> None:
        """Write an event; what cannot be written is logged, and nothing waits for it."""
        now = self._clock()
        if len(self._written) == A_MINUTE and now - self._written[0] < 60:
            LOGGER.info("no event, there were too many: %s %s: %s", ref, reason, message)
            return
        self._written.append(now)
        # the same name for the same text: after a restart too
        digest = hashlib.sha256(f"{uid} {reason} {message}".encode()).hexdigest()[:16]
        name = f"{ref.name[:200]}.{digest}"
        count, first = self._told.pop(name, (0, self._now()))
        self._told[name] = (count + 1, first)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        try:
            self._cluster.apply(
                EVENT,
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": name, "namespace": _NAMESPACE},
                    "involvedObject": {
                        "apiVersion": ref.api_version,
                        "kind": ref.kind,
                        "name": ref.name,
                        "uid": uid,
                    },
                    "type": kind,
                    "reason": reason,
                    "message": message[:_MESSAGE],
                    "count": count + 1,
                    "firstTimestamp": first,
                    "lastTimestamp": self._now(),
                    "reportingComponent": MANAGER,
                    "reportingInstance": self._identity[:128],
                    "source": {"component": MANAGER},
                },
            )
        except DriverforgeError as error:
            LOGGER.warning("no event: %s: %s", error.brief, "; ".join(error.details))
