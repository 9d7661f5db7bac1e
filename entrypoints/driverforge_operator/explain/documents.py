"""The shapes of the JSON that `driverforge-operator` writes for other programs.

`hack/generate` writes the published JSON schemas from them. A reader should pass over keys that it does not
know: new ones may come under the same `schema` number, and none goes or changes its meaning.
"""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict


class GateDocument(TypedDict):
    """A gate of one node."""

    name: str
    state: str
    told: str


class FindingDocument(TypedDict):
    """What is wrong, why, and what helps.

    `where` is a gate or a part of the installation, `cause` the name of a row of the causes. `pod`,
    `container` and `last_log_line` are '' where it is about no container.
    """

    where: str
    what: str
    evidence: list[str]
    cause: str
    told: str
    command: str
    namespace: str
    pod: str
    container: str
    last_log_line: str


class ExplainDocument(TypedDict):
    """`explain NODE --json`.

    `finding` is null where no gate is closed, `unread` what the user may not see.
    """

    schema: Literal[1]
    node: str
    ready: bool
    sentence: str
    gates: list[GateDocument]
    finding: FindingDocument | None
    unread: list[str]


class NodeWaits(TypedDict):
    """A node that is not ready yet: its closed gate, and what is seen there."""

    node: str
    gate: str
    told: str


class NodeIsOld(TypedDict):
    """A node whose driver pod is not of its DaemonSet's newest kind, and what moves it on."""

    node: str
    pod: str
    driver: str
    command: str


class PoolDocument(TypedDict):
    """A driver DaemonSet and the nodes that it serves."""

    namespace: str
    daemonset: str
    resource: str
    driver: str
    on_delete: bool
    ready: list[str]
    waiting: list[NodeWaits]
    old: list[NodeIsOld]


class ResourceDocument(TypedDict):
    """A ClusterPolicy or NVIDIADriver, as its own status says."""

    kind: str
    name: str
    state: str
    told: str


class StatusDocument(TypedDict):
    """`status --json`. `unserved` are GPU nodes of no pool."""

    schema: Literal[1]
    resources: list[ResourceDocument]
    pools: list[PoolDocument]
    unserved: list[NodeWaits]
    unread: list[str]


class DoctorDocument(TypedDict):
    """`doctor --json`. `looked_at` is what there was to judge."""

    schema: Literal[1]
    looked_at: list[str]
    found: list[FindingDocument]
    unread: list[str]


class ActionDocument(TypedDict):
    """Something that `run` would change. `namespace` is '' for what has none."""

    action: Literal["apply", "delete", "label", "status"]
    api_version: str
    kind: str
    namespace: str
    name: str
    told: str


class PlanDocument(TypedDict):
    """`plan --json`: what would change, in order; nothing where all is as it shall be."""

    schema: Literal[1]
    actions: list[ActionDocument]


DOCUMENTS: dict[str, type] = {
    "plan": PlanDocument,
    "explain": ExplainDocument,
    "status": StatusDocument,
    "doctor": DoctorDocument,
}
"""Name of a schema file to the document that it describes."""
