"""The gates of operands: whether a pod is there, and ready."""

from __future__ import annotations

from driverforge_core import nodekeys
from driverforge_operator.explain.absent import absent, leaving
from driverforge_operator.explain.blocked import blocked, relapsed
from driverforge_operator.explain.complaints import answered
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gate import OFF, OPEN, UNREAD, WAITS, Seen, Told
from driverforge_operator.explain.outdated import move_on, outdated
from driverforge_operator.explain.scene import Scene
from driverforge_operator.state.kinds import CLUSTER_POLICY
from driverforge_operator.state.workloads import DAEMON_SET, POD


def driver_pod(scene: Scene) -> Seen:
    seen = operand(scene, "driver")
    if isinstance(seen, Finding) and (stuck := seen.blocked) and stuck.running and not stuck.init:
        return Told(OPEN, f"{stuck.pod.metadata.name} runs")
    return seen


def driver_ready(scene: Scene) -> Seen:
    """An old driver serves, too: the gate is open, and says what is left to do."""
    seen = operand(scene, "driver")
    if isinstance(seen, Finding) or seen.state is not OPEN:
        return seen
    pod = scene.operands("driver")[-1]
    own = scene.own(one for one in scene.sight.daemonsets if one.spec.template.spec.component == "driver")
    if own is None or not outdated(pod, own):
        return seen
    command = move_on(pod, scene.node)
    return Told(OPEN, f"{pod.metadata.name} is ready, on the old driver; moves on with: {command}")


_TOOLKIT, _PLUGIN = "toolkit-validation", "plugin-validation"


def toolkit(scene: Scene) -> Seen:
    """A toolkit that fails counts as ready between its restarts: the validator's word is what proves it."""
    seen = operand(scene, "container-toolkit")
    if isinstance(seen, Finding) or seen.state is not OPEN:
        return seen
    again = relapsed(scene.operands("container-toolkit")[-1])
    if again is None or not _waits_for_toolkit(scene):
        return seen
    return Finding.of(again.told, again, scene)


def _waits_for_toolkit(scene: Scene) -> bool:
    """Whether a validator of this node has not got past the toolkit yet."""
    seen = operand(scene, "operator-validator")
    if not isinstance(seen, Finding):
        return False
    pods = scene.operands("operator-validator")[-1:]
    checks = (one for pod in pods for one in pod.status.init_container_statuses if one.name == _TOOLKIT)
    return not any(ended.exit_code == 0 for one in checks if (ended := one.state.terminated))


def validator(scene: Scene) -> Seen:
    seen = operand(scene, "operator-validator")
    if isinstance(seen, Finding) and (stuck := seen.blocked) and stuck.running and stuck.container == _PLUGIN:
        return Told(WAITS, f"{_PLUGIN} waits for the node's capacity", seen)
    return seen


def operand(scene: Scene, component: str) -> Seen:
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
