"""Does a pod still run the driver that its DaemonSet had before, and what moves it on."""

from __future__ import annotations

from driverforge_operator.state.workloads import DaemonSet, Machine, Pod, WorkloadSpec

_DIGEST = "DRIVER_CONFIG_DIGEST"


def outdated(pod: Pod, daemonset: DaemonSet) -> bool:
    """Whether the pod's driver is another one than its DaemonSet has now.

    Images and the digest of the configuration decide, which a driver itself goes by; a label on the template
    makes no other driver.
    """
    wanted = _configuration(daemonset.spec.template.spec)
    found = _configuration(pod.spec)
    return any(found.get(name) != value for name, value in wanted.items())


def move_on(pod: Pod, node: Machine) -> str:
    """The command after which the DaemonSet makes a pod with the driver that it has now.

    The node is drained first. A driver in use stays loaded when its pod goes, and our driver manager refuses
    to go on then; NVIDIA's evicts nobody where the node's annotation says that an operator does. A node that
    is cordoned already stays so.
    """
    name, metadata = node.metadata.name, pod.metadata
    back = "" if node.spec.unschedulable else f"  # once the new pod is ready: kubectl uncordon {name}"
    return (
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data && "
        f"kubectl delete pod -n {metadata.namespace} {metadata.name}{back}"
    )


def _configuration(spec: WorkloadSpec) -> dict[str, tuple[str, str]]:
    """Image and digest of each container."""
    found: dict[str, tuple[str, str]] = {}
    for one in (*spec.init_containers, *spec.containers):
        values = {variable.name: variable.value for variable in one.env}
        found[one.name] = (one.image, values.get(_DIGEST, ""))
    return found
