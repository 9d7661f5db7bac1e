"""The gates that a node goes through until pods get its GPUs, in order.

A gate waits for those above it, so the first that is closed is the one to look at. None of this asks which
operator made the pods: an operand is known by the switch that its node selector wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from driverforge_core import nodekeys
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gate import CLOSED, OFF, UNREAD, WAITS, Gate, Seen, Told
from driverforge_operator.explain.nodegates import (
    NO_GPU,
    asked,
    capacity,
    has_no_gpu,
    kubelet,
    nfd,
    switches,
    taint,
)
from driverforge_operator.explain.operandgates import driver_pod, driver_ready, operand, toolkit, validator
from driverforge_operator.explain.scene import Scene

NFD = "NFD labels"


def gates(scene: Scene) -> tuple[Gate, ...]:
    """All, in order; the ones below a closed one wait. A node without a GPU goes through none of them."""
    found: list[Gate] = []
    if has_no_gpu(scene):
        seen = kubelet(scene)
        state, told, finding = seen if isinstance(seen, Told) else (CLOSED, seen.brief, seen)
        return (
            Gate(name="kubelet", state=state, told=told, finding=finding),
            Gate(name=NFD, state=OFF, told=NO_GPU),
        )
    for name, look in (*_GATES, *_of_machines(scene), ("ready taint", taint)):
        seen = look(scene)
        if isinstance(seen, Finding):
            shut = any(one.state in (CLOSED, UNREAD) for one in found)
            seen = Told(WAITS if shut else CLOSED, seen.brief, seen)
        found.append(Gate(name=name, state=seen.state, told=seen.told, finding=seen.finding))
    return tuple(found)


def closed(found: Sequence[Gate]) -> Gate | None:
    """The gate to look at; one that waits for a lower one counts where nothing else is closed."""
    shut = (gate for state in (CLOSED, UNREAD, WAITS) for gate in found if gate.state is state)
    return next(shut, None)


def nothing_to_do(found: Sequence[Gate]) -> bool:
    """Whether these are the gates of a node that has no GPU and claims none."""
    return any(gate.name == NFD and gate.state is OFF for gate in found)


_GATES: tuple[tuple[str, Callable[[Scene], Seen]], ...] = (
    ("kubelet", kubelet),
    (NFD, nfd),
    ("gpu.present", asked),
    ("deploy labels", switches),
    ("driver pod", driver_pod),
    ("driver ready", driver_ready),
    ("toolkit", toolkit),
    ("validator", validator),
    ("device plugin", partial(operand, component="device-plugin")),
    ("capacity", capacity),
)
# in the order in which one waits for the other
_MACHINES = (
    "vgpu-manager",
    "vfio-manager",
    "vgpu-device-manager",
    "cc-manager",
    "sandbox-validator",
    "sandbox-device-plugin",
    "kata-sandbox-device-plugin",
)


def _of_machines(scene: Scene) -> Iterator[tuple[str, Callable[[Scene], Seen]]]:
    """What gives GPUs to virtual machines, on nodes for such. Some switches are of what never runs."""
    brought = {one.spec.template.spec.component for one in scene.sight.daemonsets}
    for component in _MACHINES:
        if scene.labels.get(nodekeys.DEPLOY + component) and component in brought:
            yield f"VM: {component}", partial(operand, component=component)
