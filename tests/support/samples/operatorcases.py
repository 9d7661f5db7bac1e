"""Recorded inputs and outputs of NVIDIA's gpu-operator (tests/cases/operator), as this operator sees them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from driverforge_operator.operands.table import OPERANDS
from driverforge_operator.state.contents import Content, Source
from driverforge_operator.state.kinds import CustomResource, Metadata, NodeDocument
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import OpenShiftCluster, Surroundings

OURS_ALONE = frozenset[str]()
"""States of operands that NVIDIA's operator does not have: no comparison with its recording is about them."""
THEIRS = tuple(one for one in OPERANDS if one.state not in OURS_ALONE)
CASES = Path(__file__).parents[2] / "cases/operator"
POLICY_CASES = sorted(path.name for path in (CASES / "clusterpolicy").iterdir())
DRIVER_CASES = sorted(path.name for path in (CASES / "nvidiadriver").iterdir())


@cache
def _json(path: Path) -> bytes:
    """The documents of a YAML file; what is decoded from it is its reader's own, sooner than a deep copy."""
    return msgspec.json.encode(list(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)))


def _read(path: Path) -> list[Any]:
    found: list[Any] = msgspec.json.decode(_json(path))
    return found


def case_input(group: str, name: str) -> dict[str, Any]:
    """A case's input: `group` is clusterpolicy or nvidiadriver."""
    (found,) = _read(CASES / group / name / "input.yaml")
    assert isinstance(found, dict)
    return found


def result(group: str, name: str, file: str) -> Any:
    """A file of a case's output; a list where it has several documents."""
    return _read(CASES / group / name / file)


def policy_spec(name: str) -> dict[str, Any]:
    """The ClusterPolicy's spec of a case: the chart's defaults, and the case's merge patch on them."""
    spec: dict[str, Any]
    (spec,) = _read(CASES / "base.yaml")
    _merge(spec, case_input("clusterpolicy", name)["clusterPolicySpecMergePatch"])
    return spec


def driver_spec(name: str) -> dict[str, Any]:
    """The NVIDIADriver's spec of a case."""
    found: dict[str, Any] = case_input("nvidiadriver", name)["spec"]
    return found


def policy_state(name: str) -> State:
    """The cluster of a case with a ClusterPolicy."""
    given = case_input("clusterpolicy", name)
    metadata = Metadata(name="cluster-policy", uid="11111111-2222-3333-4444-555555555555")
    policy = CustomResource(metadata=metadata, spec=policy_spec(name))
    return State(
        namespace="gpu-operator",
        nodes=_nodes(given["nodes"]),
        policies={"cluster-policy": policy},
        drivers={},
        objects={},
        around=_around(given),
    )


def _around(given: dict[str, Any]) -> Surroundings:
    """ConfigMaps of a case, whose content is no part of a digest there, and its OpenShift."""
    contents = {
        Source(secret=False, name=one["Name"]): Content(keys=tuple(sorted(one["Data"])), digest="")
        for one in given.get("existingConfigMaps") or ()
    }
    version = given.get("openshiftVersion")
    images = given.get("driverToolkitImages") or {}
    openshift = OpenShiftCluster(version=version, toolkit_images=images) if version else None
    return Surroundings(contents=contents, openshift=openshift)


def driver_state(name: str) -> State:
    """The cluster of a case with an NVIDIADriver."""
    given = case_input("nvidiadriver", name)
    driver = CustomResource(metadata=Metadata(name=given["crName"], uid=given["crUID"]), spec=given["spec"])
    return State(
        namespace=given["namespace"],
        nodes=_nodes(given["nodes"], frozenset(given["spec"].get("nodeSelector") or {})),
        policies={},
        drivers={given["crName"]: driver},
        objects={},
        around=_around(given),
    )


def _nodes(found: list[dict[str, Any]], selected_by: frozenset[str] = frozenset()) -> dict[str, Node]:
    documents = [
        {
            "metadata": {"name": one["Name"], "labels": one["Labels"]},
            "status": {"nodeInfo": {"containerRuntimeVersion": one.get("Runtime", "")}},
        }
        for one in found
    ]
    nodes = [Node.of(msgspec.convert(one, NodeDocument), selected_by=selected_by) for one in documents]
    return {node.name: node for node in nodes}


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386: a mapping goes into a mapping, null takes away, all else replaces."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value
