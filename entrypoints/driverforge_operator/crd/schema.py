"""The CustomResourceDefinitions, from the models.

Kubernetes takes structural schemas: no references, no `null` beside a type, no `additionalProperties: false`
(an unknown field is pruned, or refused by a strict client). See "Specifying a structural schema" in the
Kubernetes documentation.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec, ClusterPolicyStatus
from driverforge_operator.crd.model import Block
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec, NvidiaDriverStatus

_STATUS_COLUMN = {"name": "Status", "type": "string", "jsonPath": ".status.state"}
_DEFAULT_COLUMN = {"name": "Default", "type": "boolean", "jsonPath": ".spec.default"}
_AGE_COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
# of JSON schema, but not of Kubernetes' part of it
_UNKNOWN = frozenset({"title", "additionalProperties", "const", "$defs"})


def cluster_policy() -> dict[str, Any]:
    """The definition of ClusterPolicy."""
    return _definition(
        kind="ClusterPolicy",
        plural="clusterpolicies",
        version="v1",
        short=[],
        columns=[_STATUS_COLUMN, _AGE_COLUMN],
        spec=ClusterPolicySpec,
        status=ClusterPolicyStatus,
    )


def nvidia_driver() -> dict[str, Any]:
    """The definition of NVIDIADriver."""
    return _definition(
        kind="NVIDIADriver",
        plural="nvidiadrivers",
        version="v1alpha1",
        short=["nvd", "nvdriver", "nvdrivers"],
        columns=[_STATUS_COLUMN, _DEFAULT_COLUMN, _AGE_COLUMN],
        spec=NvidiaDriverSpec,
        status=NvidiaDriverStatus,
    )


def _definition(
    *,
    kind: str,
    plural: str,
    version: str,
    short: list[str],
    columns: list[dict[str, str]],
    spec: type[Block],
    status: type[Block],
) -> dict[str, Any]:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": structural(spec),
        "status": structural(status),
    }
    singular = kind.lower()
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "names": {**names, "shortNames": short} if short else names,
            "scope": "Cluster",
            "versions": [served],
        },
    }


def structural(model: type[Block]) -> dict[str, Any]:
    """A model's schema as Kubernetes takes it; the caller's own."""
    return deepcopy(_schema(model))


# a tenth of a second each, and nothing of it changes while a program runs
@cache
def _schema(model: type[Block]) -> dict[str, Any]:
    whole = model.model_json_schema(by_alias=True)
    found: dict[str, Any] = _structural(whole, whole.get("$defs", {}))
    return found


def _structural(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    if reference := schema.get("$ref"):
        # what stands beside a reference is the field's own: its description, its rules
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _structural({**shared[reference.rpartition("/")[2]], **beside}, shared)
    kinds = schema.get("anyOf", [])
    if {"type": "null"} in kinds:
        # a field that need not be written has one kind beside null
        (kind,) = (one for one in kinds if one != {"type": "null"})
        beside = {
            key: value
            for key, value in schema.items()
            if key != "anyOf" and not (key == "default" and value is None)
        }
        return _structural({**kind, **beside}, shared)
    found = {key: value for key, value in schema.items() if key not in _UNKNOWN}
    if isinstance(entries := schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _structural(entries, shared)
    if properties := schema.get("properties"):
        found["properties"] = {name: _structural(one, shared) for name, one in properties.items()}
    if items := schema.get("items"):
        found["items"] = _structural(items, shared)
    return found
