"""The schema of the chart's values, from the models of the custom resources and from values.yaml.

Operands take the fields of ClusterPolicy, and a field that it does not have is no error: the chart lists it
when it is installed. A scalar may be written in any way that YAML has for it, since the chart writes what
the resource wants. Our own block has the keys of values.yaml and no others.
"""

from __future__ import annotations

from typing import Any

import yaml

from driverforge_operator.crd.schema import cluster_policy
from pages.files import ROOT

Schema = dict[str, Any]
SCALARS = ["string", "number", "boolean"]
# of a scalar's schema: what is allowed is the API server's word, which says it better than Helm
KEPT = ("description",)
OURS = "driverforge"


def values_schema() -> Schema:
    (version,) = cluster_policy()["spec"]["versions"]
    sections = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    values = yaml.safe_load((ROOT / "charts/driverforge/values.yaml").read_text(encoding="utf-8"))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": [OURS],
        "properties": {
            **{name: loose(one) for name, one in sections.items()},
            **{name: shape(one) for name, one in values.items() if name not in sections},
            OURS: closed(values[OURS]),
        },
    }


def loose(schema: Schema) -> Schema:
    """A part of a custom resource, as a user may write it."""
    kept = {key: schema[key] for key in KEPT if key in schema}
    match schema.get("type"):
        case "object":
            properties = {name: loose(one) for name, one in schema.get("properties", {}).items()}
            return {**kept, "type": ["object", "null"], **({"properties": properties} if properties else {})}
        case "array":
            return {**kept, "type": ["array", "null"], "items": loose(schema["items"])}
        case _:
            return {**kept, "type": [*SCALARS, "null"]}


def shape(value: Any) -> Schema:
    """What a value of values.yaml is: a map, a list, or a scalar."""
    match value:
        case dict():
            return {"type": ["object", "null"]}
        case list():
            return {"type": ["array", "null"]}
        case bool():
            return {"type": "boolean"}
        case _:
            return {"type": [*SCALARS, "null"]}


def closed(value: Any) -> Schema:
    """The same, key by key; a map that is empty in values.yaml, or has labels, takes any text."""
    if not isinstance(value, dict):
        return shape(value)
    properties = {name: closed(one) for name, one in value.items() if name != "labels"}
    if "labels" in value:
        properties["labels"] = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "object", "properties": properties, "additionalProperties": False}
