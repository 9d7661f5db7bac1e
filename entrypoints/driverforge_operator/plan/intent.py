"""What the custom resources ask for, read once for each change of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec, contradictions
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.crd.read import Problem, read_spec
from driverforge_operator.state.claims import Claimants, Claims
from driverforge_operator.state.kinds import CustomResource, by_age
from driverforge_operator.state.validators import wants_ready_taint

_LABEL = 63
"""Characters of a label's value (Kubernetes documentation, "Labels and Selectors")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The ClusterPolicy that counts: the oldest. `spec` is None where it has problems.

    `jit_version` is the driver that a node compiles while its precompiled image is missing, '' for none.
    `ready_taint`: nodes have a taint until they are validated.
    """

    name: str
    uid: str
    generation: int
    spec: ClusterPolicySpec | None
    problems: tuple[Problem, ...]
    jit_version: str = ""
    ready_taint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """An NVIDIADriver. `spec` is None where it has problems."""

    name: str
    uid: str
    generation: int
    spec: NvidiaDriverSpec | None
    problems: tuple[Problem, ...]
    jit_version: str = ""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """`ignored` are the names of ClusterPolicies that do not count, because an older one is there."""

    namespace: str
    policy: Policy | None
    ignored: tuple[str, ...]
    drivers: tuple[Driver, ...]

    @cached_property
    def driver(self) -> Mapping[str, Driver]:
        """The NVIDIADrivers by name."""
        return {one.name: one for one in self.drivers}

    @cached_property
    def _claimants(self) -> Claimants:
        specs = {one.name: one.spec for one in self.drivers if one.spec is not None}
        return Claimants(
            {name: spec.node_selector or {} for name, spec in specs.items() if not spec.default},
            defaults=(name for name, spec in specs.items() if spec.default),
        )

    def claims(self, labels: Mapping[str, str]) -> Claims:
        """The NVIDIADrivers that select a node by its labels; the default ones where there is none."""
        return self._claimants.of(labels)

    @property
    def ready_taint(self) -> bool:
        return self.policy is not None and self.policy.ready_taint

    @property
    def secures_namespace(self) -> bool:
        """Whether our namespace shall take privileged pods by labels of its own."""
        spec = self.policy.spec if self.policy else None
        return spec is not None and spec.psa is not None and spec.psa.enabled is True

    @property
    def drivers_by_resource(self) -> bool:
        """Whether NVIDIADriver resources decide about drivers, rather than the ClusterPolicy."""
        if self.policy is None:
            return True
        return self.policy.spec is not None and self.policy.spec.driver.use_nvidia_driver_crd is True


def read_intent(
    namespace: str, policies: Mapping[str, CustomResource], drivers: Mapping[str, CustomResource]
) -> Intent:
    oldest = by_age(policies.values())
    return Intent(
        namespace=namespace,
        policy=_policy(oldest[0]) if oldest else None,
        ignored=tuple(one.metadata.name for one in oldest[1:]),
        drivers=tuple(_driver(drivers[name]) for name in sorted(drivers)),
    )


def _policy(found: CustomResource) -> Policy:
    spec, problems = read_spec(ClusterPolicySpec, found.spec)
    if spec and (problems := contradictions(spec)):
        spec = None
    metadata = found.metadata
    return Policy(
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        spec=spec,
        problems=problems,
        jit_version=metadata.annotations.get(nodekeys.JIT_VERSION, ""),
        ready_taint=wants_ready_taint(found),
    )


def _driver(found: CustomResource) -> Driver:
    spec, problems = read_spec(NvidiaDriverSpec, found.spec)
    metadata = found.metadata
    if (length := len(metadata.name)) > _LABEL:
        told = f"it has {length} characters, and nodes name it by a label: write {_LABEL} at most"
        spec, problems = None, (Problem(path="metadata.name", what=told), *problems)
    return Driver(
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        spec=spec,
        problems=problems,
        jit_version=metadata.annotations.get(nodekeys.JIT_VERSION, ""),
    )
