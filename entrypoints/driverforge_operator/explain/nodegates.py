"""The gates of the node itself: its kubelet, labels, capacity and taints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core import nodekeys
from driverforge_core.devicecount import device_count
from driverforge_operator.explain.blocked import blocked
from driverforge_operator.explain.complaints import complaints
from driverforge_operator.explain.finding import Finding, operator_down
from driverforge_operator.explain.gate import OFF, OPEN, UNREAD, WAITS, Seen, Told
from driverforge_operator.explain.operandgates import operand
from driverforge_operator.explain.scene import Scene
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER
from driverforge_operator.state.workloads import POD

_NO_DEVICE = "Node Feature Discovery sees no PCI device of NVIDIA's (vendor 10de)"
NO_GPU = f"{_NO_DEVICE}, and nothing says that it has one"
_MIG_STATE = f"{nodekeys.MIG_CONFIG}.state"
_GPUS = re.compile(r"nvidia\.com/(?:gpu|mig-)")


def kubelet(scene: Scene) -> Seen:
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


def has_no_gpu(scene: Scene) -> bool:
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


def nfd(scene: Scene) -> Seen:
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


def asked(scene: Scene) -> Seen:
    """The label, and who asks for operands, unless nobody looked."""
    sight = scene.sight
    made = scene.labels.get(nodekeys.GPU_PRESENT) == "true" and sight.daemonsets
    if not made and not sight.resources and sight.lacks(CLUSTER_POLICY):
        return Told(UNREAD, "the dump has no custom resources")
    return _present(scene)


def switches(scene: Scene) -> Seen:
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
    upgrade = _unfinished_upgrade(scene)
    return Told(OPEN, "; ".join(filter(None, (told or f"{len(switches)} are true", upgrade))))


def _unfinished_upgrade(scene: Scene) -> str:
    """The label of an upgrade that NVIDIA's operator began and nobody ended, '' for none.

    Without that operator it stays for ever; with it, a failed one holds up the others (gpu-operator#2549).
    """
    state = scene.labels.get(nodekeys.UPGRADE_STATE, nodekeys.UPGRADE_DONE)
    return f"{nodekeys.UPGRADE_STATE}={state}" if state != nodekeys.UPGRADE_DONE else ""


def _paused(scene: Scene, paused: Mapping[str, str]) -> Seen:
    values = " and ".join(sorted(set(paused.values())))
    told = f"{', '.join(sorted(paused))} {'is' if len(paused) == 1 else 'are'} {values}"
    if any(stuck.init for pod in scene.operands("driver") if (stuck := blocked(pod))):
        # the driver manager paused them, and is still at it: its own gate says why
        return Told(WAITS, told)
    if scene.sight.lacks(POD):
        return Told(UNREAD, f"{told}, and the dump has no pods")
    back = " ".join(f"{nodekeys.DEPLOY}{one}=true" for one in sorted(paused))
    node = scene.node.metadata.name
    label = f"kubectl label node {node} --overwrite {back}"
    if any("mig" in value for value in paused.values()):
        # once it gave up it waits for another layout; a new pod tries again (gpu-operator#2833)
        return Finding(
            what=told,
            cause="labels-paused",
            told="the MIG manager paused them, and changes the layout, gave up, or is gone",
            command=f"kubectl delete pod -n {scene.sight.namespace} -l app=nvidia-mig-manager "
            f"--field-selector spec.nodeName={node}  # it tries again; where there is none: {label}",
        )
    return Finding(
        what=told,
        cause="labels-paused",
        told="the driver manager, which paused them, is gone without putting them back",
        command=label,
    )


def capacity(scene: Scene) -> Seen:
    status = scene.node.status
    usable = {key: device_count(value) for key, value in status.allocatable.items() if _GPUS.match(key)}
    if any(usable.values()):
        told = ", ".join(f"{value} {key}" for key, value in sorted(usable.items()) if value)
        # the layout that was asked for is not that of the GPUs (mig-parted#189)
        state = scene.labels.get(_MIG_STATE, "success")
        return Told(OPEN, told if state == "success" else f"{told}; {_MIG_STATE}={state}")
    plugin = operand(scene, "device-plugin")
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


def taint(scene: Scene) -> Seen:
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
    if scene.node.spec.unschedulable and (upgrade := _unfinished_upgrade(scene)):
        return Finding(
            what=f"the node is cordoned, and has the label {upgrade}",
            cause="upgrade-left",
            told="NVIDIA's operator began to upgrade its driver, and did not come to an end",
            command=f"kubectl label node {node} {nodekeys.UPGRADE_STATE}- && kubectl uncordon {node}",
        )
    if scene.node.spec.unschedulable:
        return Finding(
            what="the node is cordoned",
            cause="cordoned",
            told="an administrator or an upgrade keeps pods away",
            command=f"kubectl uncordon {node}",
        )
    return Told(OPEN, "none")
