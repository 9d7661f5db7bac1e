"""Where a node belongs: which NVIDIADriver claims it, and which other nodes get the same objects.

This is all that the rest of the plan has to know of a node. It is a value that many nodes share, so the loop
keeps their names by placement, and only a placement that appears or goes away concerns anybody but the node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from driverforge_core import nodekeys
from driverforge_core.osid import OsId
from driverforge_operator.plan.intent import Intent
from driverforge_operator.state.claims import NOBODY, Claims
from driverforge_operator.state.nodes import Node, system_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """Nodes that get one driver DaemonSet.

    `driver` is '' where the ClusterPolicy asks for it. `kernel` is '' unless the driver is precompiled for
    it; it says the page size, too. `arch` is as Kubernetes names it, '' where a node says none. `rhcos` is
    the release of OpenShift's nodes that the driver toolkit compiles for.
    """

    driver: str
    os: OsId
    kernel: str = ""
    arch: str = ""
    rhcos: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.driver, self.os.tag, self.arch, self.kernel, self.rhcos)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`claims` are the NVIDIADrivers that select a node; it has an owner only where that is one.

    `pool` is None where `reason` says why there is no driver for it. `labelled`: Node Feature Discovery was
    there. `runtime` and `os` are what operands need of a node with GPUs: the container runtime as the toolkit
    calls it, and the system as tags name it.
    """

    gpu: bool
    labelled: bool = True
    claims: Claims = NOBODY
    pool: PoolKey | None = None
    reason: str = ""
    runtime: str = ""
    os: str = ""

    @property
    def owner(self) -> str:
        return self.claims[0] if len(self.claims) == 1 else ""

    @property
    def told(self) -> bool:
        """Whether a status names such nodes: then another one changes that."""
        return bool(self.claims or self.reason) and self.pool is None


# a kubelet's word for what the toolkit calls otherwise
_RUNTIMES = {"cri-o": "crio"}

Census = Mapping[Placement, Collection[str]]
"""The names of the nodes of each placement."""


def place(node: Node, intent: Intent) -> Placement:
    if not node.gpu:
        return Placement(gpu=False, labelled=any(key.startswith(nodekeys.FEATURE) for key in node.labels))
    found = system_of(node.labels)
    return replace(
        _driver_of(node, intent),
        runtime=_RUNTIMES.get(node.runtime, node.runtime),
        os=found.tag if found else "",
    )


def _driver_of(node: Node, intent: Intent) -> Placement:
    if not intent.drivers_by_resource:
        return _by_policy(node, intent)
    claims = intent.claims(node.labels)
    if len(claims) != 1:
        # words for one node and for several
        told = f"{len(claims)} NVIDIADrivers have" if claims else "no NVIDIADriver has"
        return Placement(gpu=True, claims=claims, reason=f"{told} a nodeSelector that matches")
    (name,) = claims
    spec = intent.driver[name].spec
    pool, reason = _pool(node, name, precompiled=bool(spec and spec.use_precompiled))
    return Placement(gpu=True, claims=claims, pool=pool, reason=reason)


def _by_policy(node: Node, intent: Intent) -> Placement:
    spec = intent.policy.spec if intent.policy else None
    if spec is None or spec.driver.enabled is False:
        return Placement(gpu=True)
    pool, reason = _pool(node, "", precompiled=spec.driver.use_precompiled is True)
    return Placement(gpu=True, pool=pool, reason=reason)


def _pool(node: Node, driver: str, *, precompiled: bool) -> tuple[PoolKey | None, str]:
    found = system_of(node.labels)
    if found is None:
        name, version = node.labels.get(nodekeys.OS_ID, ""), node.labels.get(nodekeys.OS_VERSION, "")
        told = "the labels of Node Feature Discovery name no system and version"
        return None, f"{told}: {name!r} {version!r}"
    # the minor version of what images drop it for is not the pool's: 9.4 and 9.5 are one
    return PoolKey(
        driver=driver,
        os=OsId.parse(found.tag),
        kernel=node.kernel if precompiled else "",
        arch=node.arch,
        rhcos="" if precompiled else node.labels.get(nodekeys.OSTREE_VERSION, ""),
    ), ""
