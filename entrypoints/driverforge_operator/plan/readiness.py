"""The ready taint: no pod comes to a node before its GPUs were validated, once after each boot.

The node keeps, as an annotation, in which boot it was validated, and since when the validator's pod was ready
then. After a boot the kubelet repeats for a while what its pods were before: a time that is known already
says nothing of this boot. No clock is compared with another.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import nodekeys
from driverforge_operator.state.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What shall be on a node; `validated` is the annotation, None for none."""

    tainted: bool
    validated: str | None


def readiness(node: Node, *, wanted: bool, ready_since: str) -> Readiness:
    """`wanted`: the node is to be validated.

    `ready_since` is when its validator's pod became ready, '' while it is not.
    """
    if not wanted:
        return Readiness(tainted=False, validated=None)
    known = node.annotations.get(nodekeys.VALIDATED)
    boot, _, since = (known or "").partition(" ")
    if known and boot == node.boot:
        return Readiness(tainted=False, validated=known)
    if ready_since and ready_since != since:
        return Readiness(tainted=False, validated=f"{node.boot} {ready_since}")
    return Readiness(tainted=True, validated=known)
