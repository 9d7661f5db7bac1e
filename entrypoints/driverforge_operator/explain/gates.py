"""The gates that a node goes through until pods get its GPUs, in order.

A gate waits for those above it, so the first that is closed is the one to look at. None of this asks which
operator made the pods: an operand is known by the switch that its node selector wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from driverforge_core import nodekeys
from driverforge_core.devicecount import device_count
from driverforge_operator.explain.absent import absent, leaving
from driverforge_operator.explain.blocked import Blocked, blocked, relapsed
from driverforge_operator.explain.complaints import answered, complaints
from driverforge_operator.explain.finding import Finding, operator_down
from driverforge_operator.explain.outdated import move_on, outdated
from driverforge_operator.explain.scene import Scene
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER
from driverforge_operator.state.workloads import DAEMON_SET, POD


class GateState(Enum):
    """What is said of a gate."""

    OPEN = "open"
    CLOSED = "CLOSED"
    WAITS = "waits"
    """For one above it, or, by its own words, for one below."""
    OFF = "off"
    """Nobody wants what is behind it, or somebody else brings it."""
    UNREAD = "unread"
    """What would say is not in the dump."""


OPEN, CLOSED, WAITS, OFF, UNREAD = GateState


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One row of the table. `finding` says more where it is closed."""

    name: str
    state: GateState
    told: str
    finding: Finding | None = None

    @property
    def culprit(self) -> Blocked | None:
        """The container whose log says why it is closed."""
        return self.finding.blocked if self.finding else None


class Told(NamedTuple):
    """What a gate says that no finding closes."""

    state: GateState
    told: str
    finding: Finding | None = None


Seen = Told | Finding
"""What one look at a gate gives."""


def gates(scene: Scene) -> tuple[Gate, ...]:
    """All, in order; the ones below a closed one wait. A node without a GPU goes through none of them."""
    found: list[Gate] = []
    if _has_no_gpu(scene):
        kubelet = _kubelet(scene)
        state, told, finding = kubelet if isinstance(kubelet, Told) else (CLOSED, kubelet.brief, kubelet)
        return (
            Gate(name="kubelet", state=state, told=told, finding=finding),
            Gate(name=NFD, state=OFF, told=f"{_NO_DEVICE}, and nothing says that it has one"),
        )
    for name, look in (*_GATES, *_of_machines(scene), ("ready taint", _taint)):
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


def _kubelet(scene: Scene) -> Seen:
    ready = next((one for one in scene.node.status.conditions if one.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return Told(OPEN, "Ready" if ready else "its kubelet says nothing")
    return Finding(
        what=f"the node is not Ready ({ready.reason})",
        evidence=(ready.message,),
        cause="kubelet",
        told="its kubelet or container runtime does not run, and all below is what was known before",
        command="driverctl doctor  # on the node; journalctl -u kubelet -u containerd",
    )


NFD = "NFD labels"
_NO_DEVICE = "Node Feature Discovery sees no PCI device of NVIDIA's (vendor 10de)"
_GPUS = re.compile(r"nvidia\.com/(?:gpu|mig-)")


def has_no_gpu(found: Sequence[Gate]) -> bool:
    """Whether these are the gates of a node that has no GPU and claims none."""
    return any(gate.name == NFD and gate.state is OFF for gate in found)


def _has_no_gpu(scene: Scene) -> bool:
    """Not where a label of an operator, the kubelet or an operand's pod says otherwise."""
    labels, status = scene.labels, scene.node.status
    seen = any(key.startswith(nodekeys.FEATURE) for key in labels)
    claimed = (
        scene.node.gpu
        or any(key.startswith(nodekeys.DEPLOY) for key in labels)
        or any(map(_GPUS.match, (*status.capacity, *status.allocatable)))
        or any(pod.spec.component for pod in scene.pods)
    )
    return seen and not claimed


def _nfd(scene: Scene) -> Seen:
    for key in nodekeys.GPU_FEATURES:
        if scene.labels.get(key) == "true":
            system = f"{scene.labels.get(nodekeys.OS_ID, '')}{scene.labels.get(nodekeys.OS_VERSION, '')}"
            return Told(OPEN, f"{key.removeprefix(nodekeys.FEATURE)}, {system or 'no system told'}")
    if any(key.startswith(nodekeys.FEATURE) for key in scene.labels):
        return Finding(
            what=_NO_DEVICE,
            cause="no-gpu",
            told="the node has no GPU, or its virtual machine was given none",
            command="lspci -d 10de:  # on the node",
        )
    return _unlabelled(scene)


def _unlabelled(scene: Scene) -> Finding:
    """Why there are no labels of Node Feature Discovery: its pod here, or that it has none."""
    what = "the node has no label of Node Feature Discovery"
    for pod in scene.pods:
        if "node-feature-discovery" in pod.metadata.name or "nfd-worker" in pod.metadata.name:
            if stuck := blocked(pod):
                return Finding.of(f"{what}, for {stuck.told}", stuck, scene)
            return Finding(
                what=what,
                evidence=(f"pod {pod.metadata} runs here",),
                cause="nfd-silent",
                told="its worker runs, and its master or API does not take what it finds",
                command="kubectl get pods -A | grep node-feature-discovery  # then logs of the master",
            )
    taints = ", ".join(str(one) for one in scene.node.spec.taints)
    return Finding(
        what=what,
        evidence=(f"taints of the node: {taints}",) if taints else (),
        cause="nfd-missing",
        told=(
            "its worker does not stand a taint of this node"
            if taints
            else "Node Feature Discovery is not installed, or has no pod on this node"
        ),
        command="kubectl get daemonsets -A | grep -e node-feature-discovery -e nfd",
    )


def _present(scene: Scene) -> Seen:
    value, sight = scene.labels.get(nodekeys.GPU_PRESENT), scene.sight
    asked = bool(sight.resources)
    # who may not read custom resources sees what was made of them
    if value == "true" and (asked or sight.daemonsets):
        return Told(OPEN, "true")
    hidden = "custom resources may not be read" if sight.hides(CLUSTER_POLICY, NVIDIA_DRIVER) else ""
    if value == "true" and hidden:
        return Told(OPEN, f"true; {hidden}")
    what = f"{nodekeys.GPU_PRESENT} is {value or 'not there'}"
    if asked:
        told = "no operator runs, or it may not label nodes"
        return operator_down(what, told, sight, complaints(scene))
    if hidden:
        told = f"{hidden}: there may be none, no operator may run, or it may not label nodes"
        return operator_down(what, told, sight)
    return Finding(
        what="nothing asks for operands" if value == "true" else what,
        cause="not-asked",
        told="there is no ClusterPolicy and no NVIDIADriver",
        command="kubectl get clusterpolicies,nvidiadrivers",
    )


def _asked(scene: Scene) -> Seen:
    """The label, and who asks for operands, unless nobody looked."""
    sight = scene.sight
    made = scene.labels.get(nodekeys.GPU_PRESENT) == "true" and sight.daemonsets
    if not made and not sight.resources and sight.lacks(CLUSTER_POLICY):
        return Told(UNREAD, "the dump has no custom resources")
    return _present(scene)


def _switches(scene: Scene) -> Seen:
    node = scene.node.metadata.name
    if scene.labels.get(nodekeys.OPERANDS) == "false":
        return Finding(
            what=f"{nodekeys.OPERANDS}=false takes all operands from this node",
            cause="switched-off",
            told="somebody wants none here",
            command=f"kubectl label node {node} {nodekeys.OPERANDS}-",
        )
    switches = {
        key.removeprefix(nodekeys.DEPLOY): value
        for key, value in scene.labels.items()
        if key.startswith(nodekeys.DEPLOY)
    }
    if not switches:
        what = "the node has no switches (nvidia.com/gpu.deploy.…)"
        told = "no operator runs, or the one that runs is for virtual machines here"
        return operator_down(what, told, scene.sight, complaints(scene))
    if paused := {one: value for one, value in switches.items() if "paused" in value}:
        return _paused(scene, paused)
    told = ", ".join(f"{one}={value}" for one, value in sorted(switches.items()) if value != "true")
    return Told(OPEN, told or f"{len(switches)} are true")


def _paused(scene: Scene, paused: Mapping[str, str]) -> Seen:
    values = " and ".join(sorted(set(paused.values())))
    told = f"{', '.join(sorted(paused))} {'is' if len(paused) == 1 else 'are'} {values}"
    if any(stuck.init for pod in scene.operands("driver") if (stuck := blocked(pod))):
        # the driver manager paused them, and is still at it: its own gate says why
        return Told(WAITS, told)
    if scene.sight.lacks(POD):
        return Told(UNREAD, f"{told}, and the dump has no pods")
    back = " ".join(f"{nodekeys.DEPLOY}{one}=true" for one in sorted(paused))
    return Finding(
        what=told,
        cause="labels-paused",
        told="who paused them (driver manager, MIG manager) is gone without putting them back",
        command=f"kubectl label node {scene.node.metadata.name} --overwrite {back}",
    )


def _driver_pod(scene: Scene) -> Seen:
    seen = _operand(scene, "driver")
    if isinstance(seen, Finding) and (stuck := seen.blocked) and stuck.running and not stuck.init:
        return Told(OPEN, f"{stuck.pod.metadata.name} runs")
    return seen


def _driver_ready(scene: Scene) -> Seen:
    """An old driver serves, too: the gate is open, and says what is left to do."""
    seen = _operand(scene, "driver")
    if isinstance(seen, Finding) or seen.state is not OPEN:
        return seen
    pod = scene.operands("driver")[-1]
    own = scene.own(one for one in scene.sight.daemonsets if one.spec.template.spec.component == "driver")
    if own is None or not outdated(pod, own):
        return seen
    command = move_on(pod, scene.node)
    return Told(OPEN, f"{pod.metadata.name} is ready, on the old driver; moves on with: {command}")


_TOOLKIT, _PLUGIN = "toolkit-validation", "plugin-validation"


def _toolkit(scene: Scene) -> Seen:
    """A toolkit that fails counts as ready between its restarts: the validator's word is what proves it."""
    seen = _operand(scene, "container-toolkit")
    if isinstance(seen, Finding) or seen.state is not OPEN:
        return seen
    again = relapsed(scene.operands("container-toolkit")[-1])
    if again is None or not _waits_for_toolkit(scene):
        return seen
    return Finding.of(again.told, again, scene)


def _waits_for_toolkit(scene: Scene) -> bool:
    """Whether a validator of this node has not got past the toolkit yet."""
    seen = _operand(scene, "operator-validator")
    if not isinstance(seen, Finding):
        return False
    pods = scene.operands("operator-validator")[-1:]
    checks = (one for pod in pods for one in pod.status.init_container_statuses if one.name == _TOOLKIT)
    return not any(ended.exit_code == 0 for one in checks if (ended := one.state.terminated))


def _validator(scene: Scene) -> Seen:
    seen = _operand(scene, "operator-validator")
    if isinstance(seen, Finding) and (stuck := seen.blocked) and stuck.running and stuck.container == _PLUGIN:
        return Told(WAITS, f"{_PLUGIN} waits for the node's capacity", seen)
    return seen


def _operand(scene: Scene, component: str) -> Seen:
    """Whether an operand is there and ready."""
    switch = scene.labels.get(nodekeys.DEPLOY + component, "")
    if switch == nodekeys.PRE_INSTALLED:
        return Told(OFF, "the host has its own")
    if switch == "false":
        return Told(OFF, f"{nodekeys.DEPLOY}{component}=false")
    if not switch:
        # a node for virtual machines has other switches
        return Told(OFF, f"no switch {nodekeys.DEPLOY}{component} on this node")
    pods = scene.operands(component)
    if not pods:
        if not scene.asked_for(component):
            return Told(OFF, "no custom resource asks for it")
        if unread := _undumped(scene, component):
            return Told(UNREAD, unread)
        return leaving(scene, component) or absent(scene, component)
    if pods[-1].ready:
        return Told(OPEN, f"{pods[-1].metadata.name} is ready")
    if stuck := blocked(pods[-1]):
        return Finding.of(stuck.told, stuck, scene)
    return Finding.unplaced(pods[-1], scene)


def _undumped(scene: Scene, component: str) -> str:
    """What is not in the dump, so that nobody knows whether the operand has no pod; '' where all is."""
    sight = scene.sight
    if sight.lacks(POD):
        return "the dump has no pods"
    if any(one.spec.template.spec.component == component for one in sight.daemonsets):
        return ""
    if sight.lacks(DAEMON_SET) and not answered(scene, component, ""):
        return "the dump has no DaemonSets"
    return "the dump has no custom resources" if not sight.resources and sight.lacks(CLUSTER_POLICY) else ""


def _capacity(scene: Scene) -> Seen:
    status = scene.node.status
    usable = {key: device_count(value) for key, value in status.allocatable.items() if _GPUS.match(key)}
    if any(usable.values()):
        return Told(OPEN, ", ".join(f"{value} {key}" for key, value in sorted(usable.items()) if value))
    plugin = _operand(scene, "device-plugin")
    if isinstance(plugin, Told) and plugin.state is OFF:
        return Told(OFF, "no device plugin")
    broken = {
        key: value for key, value in status.capacity.items() if _GPUS.match(key) and device_count(value)
    }
    if broken:
        told = ", ".join(f"{value} {key}" for key, value in sorted(broken.items()))
        return Finding(
            what=f"of {told} none is usable",
            cause="gpus-unhealthy",
            told="the device plugin calls them unhealthy, as after an Xid",
            command="dmesg | grep -i xid  # on the node; kubectl logs of its device plugin",
        )
    plugins = scene.operands("device-plugin")
    pod = f"-n {plugins[-1].metadata.namespace} {plugins[-1].metadata.name}" if plugins else "…"
    return Finding(
        what="the kubelet offers no nvidia.com/gpu",
        cause="not-registered",
        told="the device plugin found no GPU, or the kubelet restarted after it registered",
        command=f"kubectl logs {pod}; kubectl delete pod {pod}",
    )


# Node Readiness Controller, cluster autoscalers and clouds: taints that go away once a node is good
_UNREADY = re.compile(r"^readiness\.k8s\.io/|not-?ready|startup|uninitialized", re.IGNORECASE)


def _taint(scene: Scene) -> Seen:
    node = scene.node.metadata.name
    for taint in scene.node.spec.taints:
        if taint.key == nodekeys.NOT_READY:
            return Finding(
                what=f"the node has the taint {taint}",
                cause="ready-taint",
                told="the operator takes it off once the validator's pod became ready in this boot",
                command=scene.sight.find_operator,
            )
        if _UNREADY.search(taint.key):
            return Finding(
                what=f"the node has the taint {taint}",
                cause="unready-taint",
                told="who takes it off has not seen the node ready yet",
                command=f"kubectl taint node {node} {taint.key}-",
            )
    if scene.node.spec.unschedulable:
        return Finding(
            what="the node is cordoned",
            cause="cordoned",
            told="an administrator or an upgrade keeps pods away",
            command=f"kubectl uncordon {node}",
        )
    return Told(OPEN, "none")


_GATES: tuple[tuple[str, Callable[[Scene], Seen]], ...] = (
    ("kubelet", _kubelet),
    (NFD, _nfd),
    ("gpu.present", _asked),
    ("deploy labels", _switches),
    ("driver pod", _driver_pod),
    ("driver ready", _driver_ready),
    ("toolkit", _toolkit),
    ("validator", _validator),
    ("device plugin", partial(_operand, component="device-plugin")),
    ("capacity", _capacity),
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
            yield f"VM: {component}", partial(_operand, component=component)
