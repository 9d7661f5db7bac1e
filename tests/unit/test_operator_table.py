"""The table of operands and their manifests say the same, and what a ClusterPolicy leaves open is told."""

from __future__ import annotations

import copy
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from driverforge_core import nodekeys
from driverforge_operator import operands
from driverforge_operator.operands.manifest import containers, manifest, pod
from driverforge_operator.operands.setting import Setting
from driverforge_operator.operands.table import OPERANDS, Operand, Workload, image_variables
from driverforge_operator.plan.actions import Apply, Delete, PatchNode, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import KIND_OF, CustomResource
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import Surroundings
from support.samples.operatorcases import policy_state

# not a state's: the driver's, which has a module of its own, and parts that states share
SHARED = {"account", "config-manager", "constraints", "driver", "driver-startup-probe"}
VARIABLES = image_variables(OPERANDS)
BY_STATE = [pytest.param(one, id=one.state) for one in OPERANDS]


def workloads(one: Operand) -> list[dict[str, Any]]:
    return [found for found in manifest(one.manifest, one.folder) if found["kind"] == "DaemonSet"]


def changed(case: str, **fields: Any) -> State:
    """A case with other fields in its ClusterPolicy."""
    state = policy_state(case)
    policy = state.policies["cluster-policy"]
    spec = copy.deepcopy(policy.spec)
    for name, value in fields.items():
        spec[name] = {**spec.get(name, {}), **value}
    policies = {"cluster-policy": CustomResource(metadata=policy.metadata, spec=spec)}
    return replace(state, policies=policies)


def applied(state: State) -> dict[str, dict[str, Any]]:
    return {str(one.ref): dict(one.document) for one in plan(state) if isinstance(one, Apply)}


def test_an_operand_is_one_manifest_and_one_row() -> None:
    folder = files(operands).joinpath("manifests")
    there = {path.name.removesuffix(".yaml") for path in folder.iterdir()}
    rows = [one.manifest for one in OPERANDS]
    assert sorted(rows) == sorted(there - SHARED)


def check_against_manifest(one: Operand) -> None:
    """A row says what its manifest says, and its objects are of kinds that the operator applies."""
    for workload in workloads(one):
        assert pod(workload)["nodeSelector"][nodekeys.DEPLOY + one.switch] == "true"
        assert one.gpu in ("", *(found["name"] for found in containers(workload)))
        assert ("runtimeClassName" in pod(workload)) == bool(one.gpu)
        waits = " ".join(str(found.get("args")) for found in pod(workload).get("initContainers", ()))
        assert one.gate in waits.replace("'nvidia-validator'", "driver-ready")
        for found in containers(workload):
            assert found["image"] in VARIABLES
        if one.field:
            assert pod(workload)["containers"][0]["image"] == one.field
    for found in manifest(one.manifest, one.folder):
        assert (found["apiVersion"], found["kind"]) in KIND_OF


@pytest.mark.parametrize("one", BY_STATE)
def test_a_row_says_what_its_manifest_says(one: Operand) -> None:
    check_against_manifest(one)


# an operand as docs/architecture.md says how one is added: a manifest, and a row
CLOCK_KEEPER = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-clock-keeper}
data: {clocks: "1410"}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: nvidia-clock-keeper
  labels: {app: nvidia-clock-keeper}
spec:
  selector:
    matchLabels: {app: nvidia-clock-keeper}
  template:
    metadata:
      labels: {app: nvidia-clock-keeper}
    spec:
      nodeSelector: {nvidia.com/gpu.deploy.clock-keeper: "true"}
      serviceAccountName: nvidia-clock-keeper
      initContainers:
        - name: toolkit-validation
          image: validator
          command: [sh, -c]
          args: ["until [ -f /run/nvidia/validations/toolkit-ready ]; do sleep 5; done"]
      containers:
        - name: clock-keeper
          image: validator
          command: [keep-clocks]
"""


@pytest.fixture
def clock_keeper(tmp_path: Path) -> Operand:
    (tmp_path / "clock-keeper.yaml").write_text(CLOCK_KEEPER, encoding="utf-8")
    return Operand(
        state="state-clock-keeper",
        manifest="clock-keeper",
        folder=tmp_path,
        enabled=lambda spec: spec.toolkit.enabled is not False,
        switch="clock-keeper",
        gate="toolkit-ready",
    )


SWITCH = nodekeys.DEPLOY + "clock-keeper"


def switched(state: State, *added: Operand) -> list[str | None]:
    """What the nodes' patches say of the invented operand's switch."""
    patches = [one for one in plan(state, (*OPERANDS, *added)) if isinstance(one, PatchNode)]
    return [one.labels[SWITCH] for one in patches if SWITCH in one.labels]


def test_a_manifest_and_a_row_are_all_of_a_new_operand(clock_keeper: Operand) -> None:
    check_against_manifest(clock_keeper)
    state = policy_state("default")
    gpus = [one for one in state.nodes.values() if one.gpu]
    assert switched(state, clock_keeper) == ["true"] * len(gpus)
    actions = plan(state, (*OPERANDS, clock_keeper))
    told = {str(one.ref): dict(one.document) for one in actions if isinstance(one, Apply)}
    new = {name: one for name, one in told.items() if name not in applied(state)}
    name = "gpu-operator/nvidia-clock-keeper"
    assert new.keys() >= {f"ConfigMap {name}", f"DaemonSet {name}", f"ServiceAccount {name}"}
    workload, known = new[f"DaemonSet {name}"], told["DaemonSet gpu-operator/nvidia-operator-validator"]
    assert pod(workload)["nodeSelector"][SWITCH] == "true"
    (image,) = {one["image"] for one in containers(workload)}
    assert image == pod(known)["containers"][0]["image"]
    assert workload["metadata"]["ownerReferences"] == known["metadata"]["ownerReferences"]
    (status,) = (one for one in actions if isinstance(one, SetStatus))
    assert "state-clock-keeper" in str(status.conditions)


def test_a_new_operand_runs_where_its_row_says(clock_keeper: Operand) -> None:
    assert switched(policy_state("sandbox-passthrough"), clock_keeper) == []
    for case, workload in (
        ("sandbox-passthrough", Workload.KUBEVIRT),
        ("sandbox-kata", Workload.KATA),
        ("sandbox-vgpu", Workload.VGPU),
    ):
        there = replace(clock_keeper, workloads=(workload,))
        assert switched(policy_state(case), there) == ["true"]
        assert switched(policy_state("default"), there) == []


def test_a_switch_that_does_not_suit_a_node_is_not_set_and_stays(clock_keeper: Operand) -> None:
    some = replace(clock_keeper, suits=lambda labels: labels.get("clocks") == "kept")
    state = policy_state("default")

    def labelled(**labels: str) -> list[str | None]:
        nodes = {name: replace(one, labels={**one.labels, **labels}) for name, one in state.nodes.items()}
        return switched(replace(state, nodes=nodes), some)

    assert labelled() == []
    assert set(labelled(clocks="kept")) == {"true"}
    assert labelled(**{SWITCH: "true"}) == []
    assert set(labelled(**{SWITCH: "true", nodekeys.OPERANDS: "false"})) == {None}


@pytest.mark.parametrize("path", VARIABLES)
def test_a_manifests_images_are_parts_of_the_spec(path: str) -> None:
    # a spelling that the models do not have would be an image that nobody names
    from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec

    model: Any = ClusterPolicySpec
    for part in path.split("."):
        (field,) = (one for one in model.model_fields.values() if one.alias == part)
        model = next(one for one in (*getattr(field.annotation, "__args__", ()), field.annotation))
    assert "repository" in model.model_fields


def test_an_image_that_the_policy_does_not_name_comes_from_the_environment() -> None:
    unnamed = {"repository": None, "image": None, "version": None}
    state = changed("default", toolkit=unnamed)
    told = applied(state)
    assert "DaemonSet gpu-operator/nvidia-container-toolkit-daemonset" not in told
    assert "DaemonSet gpu-operator/nvidia-device-plugin-daemonset" in told
    known = replace(
        state, around=Surroundings(environment={"CONTAINER_TOOLKIT_IMAGE": "r.example/toolkit:1"})
    )
    workload = applied(known)["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset"]
    assert pod(workload)["containers"][0]["image"] == "r.example/toolkit:1"


def test_what_runs_stays_while_an_image_is_missing() -> None:
    running = [one for one in plan(policy_state("default")) if isinstance(one, Apply)]
    state = changed("default", toolkit={"repository": None, "version": None, "image": None})
    after = replace(state, objects={one.ref: one.document for one in running})
    assert not [one for one in plan(after) if isinstance(one, Delete | Apply)]


def test_a_state_that_is_switched_off_goes() -> None:
    running = [one for one in plan(policy_state("default")) if isinstance(one, Apply)]
    state = changed("default", gfd={"enabled": False})
    after = replace(state, objects={one.ref: one.document for one in running})
    gone = {str(one.ref) for one in plan(after) if isinstance(one, Delete)}
    assert "DaemonSet gpu-operator/gpu-feature-discovery" in gone
    assert all("gpu-feature-discovery" in one for one in gone)


def test_each_runtime_has_its_toolkit_and_all_share_the_rest() -> None:
    told = applied(policy_state("mixed-runtimes"))
    usual = pod(told["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset"])
    crio = pod(told["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset-crio"])
    for found, runtime in ((usual, "containerd"), (crio, "crio")):
        assert {"name": "RUNTIME", "value": runtime} in found["containers"][0]["env"]
    required = usual["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": nodekeys.RUNTIME, "operator": "NotIn", "values": ["crio"]}]
    assert crio["nodeSelector"][nodekeys.RUNTIME] == "crio"
    assert not [name for name in told if name.endswith("-crio") and "toolkit" not in name]


def test_where_crio_injects_by_its_hook_each_runtime_has_all_that_uses_gpus() -> None:
    told = applied(changed("mixed-runtimes", cdi={"enabled": False}))
    assert pod(told["DaemonSet gpu-operator/gpu-feature-discovery"])["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pod(told["DaemonSet gpu-operator/gpu-feature-discovery-crio"])


def test_pods_keep_what_their_daemonset_finds_them_by() -> None:
    labels = {"app": "other", "name": "other", "team": "infra"}
    told = applied(changed("sandbox-kata", daemonsets={"labels": labels}))
    for name, one in told.items():
        if name.startswith("DaemonSet"):
            found = one["spec"]["template"]["metadata"]["labels"]
            assert found.items() >= one["spec"]["selector"]["matchLabels"].items(), name
            assert found["team"] == "infra"


def test_a_vgpu_host_driver_is_not_put_on_another_system() -> None:
    state = policy_state("sandbox-vgpu")
    (node,) = state.nodes.values()
    second = replace(node, name="second", labels={**node.labels, nodekeys.OS_VERSION: "24.04"})
    both = replace(state, nodes={node.name: node, "second": second})
    assert "DaemonSet gpu-operator/nvidia-vgpu-manager-daemonset" in applied(state)
    assert "DaemonSet gpu-operator/nvidia-vgpu-manager-daemonset" not in applied(both)


def test_a_setting_has_an_image_for_what_was_not_written() -> None:
    from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec

    spec = ClusterPolicySpec.model_validate_json(
        msgspec.json.encode({**changed("default").policies["cluster-policy"].spec, "vfioManager": None})
    )
    setting = Setting(namespace="n", spec=spec, runtime="containerd", oses=(), gpus=True, environment={})
    assert setting.image("vfioManager.driverManager").repository is None
