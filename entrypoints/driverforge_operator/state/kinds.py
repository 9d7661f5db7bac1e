"""The kinds of objects that are read, and the fields of each that are decoded.

msgspec passes over all other fields of a document: a node of 10 KB is never a dictionary here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from driverforge_operator.ports import Kind, kind_at


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of an object's metadata."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a kubelet says of its machine."""

    architecture: str = ""
    container_runtime_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    boot: str = msgspec.field(name="bootID", default="")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One condition."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of a node's status."""

    node_info: NodeInfo = NodeInfo()
    conditions: list[Status] = []


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a node's spec."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is decoded."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class CustomResource(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterPolicy or NVIDIADriver as it is decoded, `spec` not read yet."""

    metadata: Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def true_conditions(self) -> list[dict[str, Any]]:
        """The conditions of its status that hold now."""
        found = self.status.get("conditions")
        return [one for one in found if one.get("status") == "True"] if isinstance(found, list) else []


def by_age(resources: Iterable[CustomResource]) -> list[CustomResource]:
    """The oldest first, which is the ClusterPolicy that counts."""
    return sorted(resources, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))


class VersionedMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata of what is written only if nobody was faster."""

    name: str
    resource_version: str
    namespace: str = ""
    creation_timestamp: str = ""


class NamedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An object of which nothing but its metadata counts."""

    metadata: Metadata


def own_namespace(name: str) -> Kind[NamedDocument]:
    """The one namespace that is ours."""
    return kind_at("v1", "Namespace", "namespaces", NamedDocument, namespaced=False, only=name)


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who leads; nobody where there is no holder."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0


class LeaseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it is decoded: when it was renewed is told by its versions, not by another's clock."""

    metadata: VersionedMetadata
    spec: LeaseSpec = LeaseSpec()


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a Deployment's spec."""

    replicas: int = 1


class DeploymentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment as it is decoded."""

    metadata: Metadata
    spec: DeploymentSpec = DeploymentSpec()


def name_of(item: Any) -> str:
    """The name of an object, as it was decoded."""
    found: str = item["metadata"]["name"] if isinstance(item, dict) else item.metadata.name
    return found


NODE = kind_at("v1", "Node", "nodes", NodeDocument, namespaced=False)
CLUSTER_POLICY = kind_at(
    "nvidia.com/v1", "ClusterPolicy", "clusterpolicies", CustomResource, namespaced=False
)
NVIDIA_DRIVER = kind_at(
    "nvidia.com/v1alpha1", "NVIDIADriver", "nvidiadrivers", CustomResource, namespaced=False
)
LEASE = kind_at("coordination.k8s.io/v1", "Lease", "leases", LeaseDocument)
EVENT = kind_at("v1", "Event", "events", dict[str, Any])
LEASE_NAME = "driverforge-operator"
# those of every operator of ours, in whichever namespace it runs
LEASES = replace(LEASE, namespaced=False, only=LEASE_NAME)
# NVIDIA's operator, in whichever namespace it runs
THEIR_LEASE = replace(LEASE, namespaced=False, only="53822513.nvidia.com")
THEIR_DEPLOYMENT = kind_at("apps/v1", "Deployment", "deployments", DeploymentDocument, namespaced=False)
THEIR_SELECTOR = "app.kubernetes.io/component=gpu-operator,app.kubernetes.io/name!=driverforge"


_RBAC = "rbac.authorization.k8s.io/v1"
_SCC = "security.openshift.io/v1"
OURS: tuple[Kind[dict[str, Any]], ...] = (
    kind_at("v1", "ServiceAccount", "serviceaccounts", dict),
    kind_at("v1", "ConfigMap", "configmaps", dict),
    kind_at(_RBAC, "Role", "roles", dict),
    kind_at(_RBAC, "RoleBinding", "rolebindings", dict),
    kind_at(_RBAC, "ClusterRole", "clusterroles", dict, namespaced=False),
    kind_at(_RBAC, "ClusterRoleBinding", "clusterrolebindings", dict, namespaced=False),
    kind_at("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", dict, namespaced=False),
    kind_at(_SCC, "SecurityContextConstraints", "securitycontextconstraints", dict, namespaced=False),
    kind_at("v1", "Service", "services", dict),
    kind_at("apps/v1", "DaemonSet", "daemonsets", dict),
    kind_at("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors", dict),
)
"""What we make, in the order in which it is applied: a pod starts with the account that it names."""

DEFINITION: Kind[dict[str, Any]] = kind_at(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    dict,
    namespaced=False,
)

KIND_OF = {(one.api_version, one.name): one for one in (NODE, CLUSTER_POLICY, NVIDIA_DRIVER, *OURS)}
"""A kind by what a document says of itself."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "driverforge-operator"
OURS_SELECTOR = f"{MANAGED_BY}={MANAGER}"
"""Selects what we made."""
