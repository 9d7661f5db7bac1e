"""The validator's pods: since when each node's is ready. They are read while a ready taint is wanted."""

from __future__ import annotations

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.ports import kind_at
from driverforge_operator.state.kinds import CustomResource, Metadata


class TimedCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition and when it came about."""

    type: str
    status: str
    last_transition_time: str | None = None


class ValidatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of the pod's status."""

    conditions: list[TimedCondition] = []


class ValidatorSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of the pod's spec."""

    node_name: str = ""


class ValidatorPod(msgspec.Struct, frozen=True, kw_only=True):
    """A validator's pod as it is decoded."""

    metadata: Metadata
    spec: ValidatorSpec = ValidatorSpec()
    status: ValidatorStatus = ValidatorStatus()

    @property
    def ready_since(self) -> str:
        """When it became ready, '' while it is not."""
        times = (
            one.last_transition_time or ""
            for one in self.status.conditions
            if one.status == "True" and one.type == "Ready"
        )
        return next(times, "")


VALIDATOR = kind_at("v1", "Pod", "pods", ValidatorPod)
# a runtime may have a validator of its own
VALIDATOR_SELECTOR = (
    "app in (nvidia-operator-validator,nvidia-operator-validator-crio,nvidia-operator-validator-docker)"
)


def wants_ready_taint(policy: CustomResource) -> bool:
    """Whether a ClusterPolicy says that nodes have a taint until they are validated."""
    return policy.metadata.annotations.get(nodekeys.READY_TAINT) == "true"
