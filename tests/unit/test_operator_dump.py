"""A folder of dumps as a cluster: what kubectl writes is read, what is no dump is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from driverforge_core.errors import InputError
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.plan.actions import Apply, PatchNode
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import OURS, OURS_SELECTOR
from driverforge_operator.state.observed import observe
from support.samples.clusternodes import node, write_nodes
from support.samples.operatorcases import driver_spec

RESOURCE = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "NVIDIADriver",
    "metadata": {"name": "fleet", "uid": "1"},
    "spec": {**driver_spec("minimal"), "default": True},
}


def test_a_dump_is_planned_like_a_cluster(tmp_path: Path) -> None:
    write_nodes(tmp_path, node("gpu"), node("plain", gpu=False))
    (tmp_path / "drivers.yaml").write_text(yaml.safe_dump_all([RESOURCE, None]))
    actions = plan(observe(Dump(tmp_path), "gpu-operator"))
    assert [one.node for one in actions if isinstance(one, PatchNode)] == ["gpu"]
    kinds = [one.ref.kind for one in actions if isinstance(one, Apply)]
    assert kinds[-1] == "DaemonSet"


def test_objects_of_others_are_not_ours(tmp_path: Path) -> None:
    others = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "labels": None}}
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump(others))
    (kind,) = (one for one in OURS if one.name == "ConfigMap")
    reader = Dump(tmp_path)
    assert [page.items for page in reader.pages(kind, labels=OURS_SELECTOR)] == [()]
    assert [page.items for page in reader.pages(kind)] == [(others,)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: [", "a.yaml is no dump"),
        ("a.json", '"a" "b', "a.json is no dump"),
        ("a.txt", "", "has no dump"),
    ],
)
def test_what_is_no_dump_is_told(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words):
        Dump(tmp_path)


def test_a_node_that_is_none_is_told(tmp_path: Path) -> None:
    broken = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": 1}}
    (tmp_path / "nodes.json").write_text(json.dumps(broken))
    with pytest.raises(InputError, match="an object of kind Node is no such object"):
        observe(Dump(tmp_path), "gpu-operator")
