"""What a plan is made of: frozen values that say what they change. Made twice, each does what it did once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

from driverforge_core import nodekeys
from driverforge_operator.ports import Document, Ref
from driverforge_operator.state.kinds import NODE, own_namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Make an object so (server-side apply). `first`: it is not known as ours, and may be somebody else's."""

    document: Document
    first: bool = False

    @property
    def ref(self) -> Ref:
        return Ref.of(self.document)

    def __str__(self) -> str:
        return f"apply {self.ref}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchNode:
    """Change labels and annotations of a node, all in one request; None removes one.

    `tainted`: our taint is put on, or taken off; None leaves it.
    """

    node: str
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    tainted: bool | None = None

    @property
    def ref(self) -> Ref:
        return NODE.ref(self.node)

    def __str__(self) -> str:
        changes = [
            f"{key}-" if value is None else f"{key}={value}"
            for key, value in sorted({**self.labels, **self.annotations}.items())
        ]
        if self.tainted is not None:
            changes.append(f"taint {nodekeys.NOT_READY}{'' if self.tainted else '-'}")
        return f"label node {self.node}: {' '.join(changes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete an object; with `orphan` its pods stay."""

    ref: Ref
    orphan: bool = False

    def __str__(self) -> str:
        return f"delete {self.ref}{', its pods stay' if self.orphan else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionNow:
    """A condition without its time, which is when it is written."""

    type: Literal["Ready", "Error"]
    status: Literal["True", "False"]
    reason: str
    message: str


class PoolSummary(TypedDict):
    """One pool of nodes in a status: what its DaemonSet runs, and on how many nodes.

    `upToDate` counts pods of the last change; `reason` says why there is none of them, '' for nothing.
    `message` is what is missing: of a pool that has no reason, what its nodes do instead.
    """

    name: str
    os: str
    arch: str
    kernel: str
    image: str
    desired: int
    ready: int
    upToDate: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    """Write what became of a custom resource."""

    ref: Ref
    state: str
    namespace: str
    generation: int
    conditions: tuple[ConditionNow, ...]
    pools: tuple[PoolSummary, ...] = ()

    def __str__(self) -> str:
        told = [f"{one.reason} {one.message}".strip() for one in self.conditions if one.status == "True"]
        return f"status of {self.ref}: {self.state} ({'; '.join(told)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandDown:
    """Say on a custom resource that another operator serves it, and leave alone what that one says."""

    ref: Ref
    generation: int
    message: str

    CONDITION: ClassVar = "StandingDown"

    def __str__(self) -> str:
        return f"stand down for {self.ref}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNamespace:
    """Give our namespace labels."""

    name: str
    labels: Mapping[str, str]

    @property
    def ref(self) -> Ref:
        return own_namespace(self.name).ref(self.name)

    def __str__(self) -> str:
        return (
            f"label namespace {self.name}: {' '.join(f'{key}={value}' for key, value in self.labels.items())}"
        )


Action = Apply | PatchNode | Delete | SetStatus | StandDown | LabelNamespace
"""Each has a `ref`: the object that it is about, whatever it does to it."""
