"""Does a pod still run the driver that its DaemonSet had before, and what moves it on."""

from __future__ import annotations

from driverforge_operator.state.workloads import DaemonSet, Pod, WorkloadSpec

_DIGEST = "DRIVER_CONFIG_DIGEST"


def outdated(pod: Pod, daemonset: DaemonSet) -> bool:
    """Whether the pod's driver is another one than its DaemonSet has now.

    Images and the digest of the configuration decide, which a driver itself goes by; a label on the template
    makes no other driver.
    """
    wanted = _configuration(daemonset.spec.template.spec)
    found = _configuration(pod.spec)
    return any(found.get(name) != value for name, value in wanted.items())


def move_on(pod: Pod) -> str:
    """The command after which the DaemonSet makes a pod with the driver that it has now."""
    return f"kubectl delete pod -n {pod.metadata.namespace} {pod.metadata.name}"


def _configuration(spec: WorkloadSpec) -> dict[str, tuple[str, str]]:
    """Image and digest of each container."""
    found: dict[str, tuple[str, str]] = {}
    for one in (*spec.init_containers, *spec.containers):
        values = {variable.name: variable.value for variable in one.env}
        found[one.name] = (one.image, values.get(_DIGEST, ""))
    return found
