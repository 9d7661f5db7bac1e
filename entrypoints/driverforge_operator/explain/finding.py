"""What is wrong, why, and what to do: of one gate, or of the installation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from driverforge_core.cell import build_command, cell_of_image
from driverforge_core.osid import OsId
from driverforge_operator.explain.blocked import Blocked
from driverforge_operator.explain.causes import Cause, likely
from driverforge_operator.explain.scene import Scene, Sight
from driverforge_operator.state.nodes import system_of
from driverforge_operator.state.workloads import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`what` is seen; `cause` names a row of the causes, whose words are `told`; `command` helps.

    `blocked` is the container that it is about, `last` the last line of its log.
    """

    what: str
    cause: str
    told: str
    command: str
    evidence: tuple[str, ...] = ()
    blocked: Blocked | None = None
    last: str = ""

    @classmethod
    def by(cls, advice: Cause, what: str, evidence: Iterable[str]) -> Finding:
        return cls(
            what=what, evidence=tuple(evidence), cause=advice.id, told=advice.told, command=advice.command
        )

    @classmethod
    def of(cls, what: str, stuck: Blocked, scene: Scene) -> Finding:
        """What a container that holds its pod up lets one see."""
        warnings = scene.pod_warnings(stuck.pod)
        log = scene.sight.logs.get(stuck.log, ())
        row = likely([stuck.told, stuck.message, *warnings, *log], stuck.container)
        advice = _advice(row, scene, stuck.pod, container=stuck.container, image=stuck.image)
        last, details = _end(log)
        evidence = filter(None, (*stuck.message.splitlines(), *warnings, *details))
        return replace(cls.by(advice, what, evidence), blocked=stuck, last=last)

    @classmethod
    def unplaced(cls, pod: Pod, scene: Scene) -> Finding:
        """A pod of which no container was started: it is not scheduled, refused, or just there."""
        metadata, status = pod.metadata, pod.status
        conditions = [f"{one.reason}: {one.message}" for one in status.conditions if one.status == "False"]
        warnings = scene.pod_warnings(pod)
        said = [text for text in (status.reason, status.message, *conditions, *warnings) if text.strip(": ")]
        where = "" if pod.spec.node_name else ", not scheduled"
        first = pod.spec.containers[0].name if pod.spec.containers else ""
        advice = _advice(likely(said, first), scene, pod, container=first, image="")
        return cls.by(advice, f"pod {metadata} is {status.phase or 'new'}{where}", said)

    @property
    def brief(self) -> str:
        return f"{self.blocked.container}: {self.what}" if self.blocked else self.what


_DETAIL, _NEXT = "  | ", "  next: "
"""How lines begin that follow an error in what our programs print (DriverforgeError.render)."""


def _end(log: Sequence[str]) -> tuple[str, list[str]]:
    """How a log ends: its last line; the first one of an error of ours, with its details."""
    lines = [line.rstrip() for line in log if line.strip()]
    details: list[str] = []
    for line in reversed(lines):
        if line.startswith("error: "):
            return line, details[::-1]
        if line.startswith(_DETAIL):
            details.append(line.removeprefix(_DETAIL))
        elif not line.startswith(_NEXT):
            break
    return (lines[-1].strip() if lines else ""), []


def operator_down(what: str, told: str, sight: Sight, evidence: Iterable[object] = ()) -> Finding:
    return Finding(
        what=what,
        evidence=tuple(map(str, evidence)),
        cause="operator-down",
        told=told,
        command=sight.find_operator,
    )


def _advice(row: Cause, scene: Scene, pod: Pod, *, container: str, image: str) -> Cause:
    machine = scene.node.status.node_info
    cell = cell_of_image(image, machine.architecture, machine.kernel_version)
    # a missing image is wanted as it is called
    wanted = (cell if row.id == "image-missing" else _of_system(cell, system_of(scene.labels))) or "CELL"
    return row.filled(
        node=scene.node.metadata.name,
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        container=container,
        image=image,
        cell=wanted,
        select=build_command(image, wanted),
    )


def _of_system(cell: str, system: OsId | None) -> str:
    """The cell for the node's own system, where it runs another one's image (gpu-operator#1436)."""
    named, dash, rest = cell.partition("-")
    if not dash or system is None or system.tag.startswith(named) or named.startswith(system.tag):
        return cell
    return f"{system.tag}-{rest}"
