"""Which container of a pod the others wait for, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_operator.ports import Log
from driverforge_operator.state.workloads import ContainerStatus, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The container that holds a pod up. `init` is whether the pod's own containers wait for it."""

    pod: Pod
    container: str
    image: str
    init: bool
    status: ContainerStatus

    @property
    def running(self) -> bool:
        return self.status.state.running is not None

    @property
    def relapsed(self) -> bool:
        """Whether it counts as ready, and failed before."""
        return self.status.ready and failed_before(self.status)

    @property
    def told(self) -> str:
        """What the kubelet says of it: 'CrashLoopBackOff, exited 1 after 4 restarts'."""
        status, state = self.status, self.status.state
        again = f" after {status.restart_count} restarts" if status.restart_count else ""
        if self.relapsed:
            return f"runs again{again}, and failed before"
        if self.running:
            missing = "has not ended" if self.init else f"is not {'ready' if status.started else 'started'}"
            return f"runs, and {missing}{again}"
        if state.terminated:
            return f"exited {state.terminated.exit_code}{again}"
        reason = (state.waiting.reason if state.waiting else "") or "not started"
        ended = status.last_state.terminated
        return f"{reason}{f', exited {ended.exit_code}' if ended else ''}{again}"

    @property
    def message(self) -> str:
        """The words of the kubelet or the container itself, '' while it runs for the first time."""
        if self.running and not self.relapsed:
            return ""
        state = self.status.state
        ended = state.terminated or self.status.last_state.terminated
        return "\n".join(one.message for one in (state.waiting, ended) if one and one.message)

    @property
    def log(self) -> Log:
        """Where it says why: before its last restart, where it does not run now, or not for long."""
        return Log(
            namespace=self.pod.metadata.namespace,
            pod=self.pod.metadata.name,
            container=self.container,
            previous=self.relapsed or (not self.running and self.status.restart_count > 0),
        )

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.pod.metadata}"


def blocked(pod: Pod) -> Blocked | None:
    """The first container that is not as it shall be; None where all are, or none was started yet."""
    status = pod.status
    for containers, found, init in (
        (pod.spec.init_containers, status.init_container_statuses, True),
        (pod.spec.containers, status.container_statuses, False),
    ):
        known = {one.name: one for one in found}
        for container in containers:
            one = known.get(container.name)
            if one is not None and not _fine(one, init=init):
                return Blocked(
                    pod=pod, container=container.name, image=container.image, init=init, status=one
                )
    return None


def relapsed(pod: Pod) -> Blocked | None:
    """A container that runs again after an error.

    Without a readiness probe, as NVIDIA's toolkit has none, it counts as ready until it fails once more.
    """
    known = {one.name: one for one in pod.status.container_statuses}
    for container in pod.spec.containers:
        one = known.get(container.name)
        if one is not None and one.ready and failed_before(one):
            return Blocked(pod=pod, container=container.name, image=container.image, init=False, status=one)
    return None


def failed_before(status: ContainerStatus) -> bool:
    """False also where a reboot of the node ended it. Kubelets forget at times how it ended."""
    ended = status.last_state.terminated
    return status.restart_count > 0 and (ended is None or (ended.exit_code != 0 and ended.reason == "Error"))


def _fine(status: ContainerStatus, *, init: bool) -> bool:
    """Whether nothing waits for it: an init container ended with 0, or is a side car that started."""
    ended = status.state.terminated
    if init:
        return ended.exit_code == 0 if ended else bool(status.state.running and status.started)
    return status.ready
