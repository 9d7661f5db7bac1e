"""What the loop decides, change by change, is what a plan of the whole cluster says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core import nodekeys
from driverforge_operator.app.store import Store
from driverforge_operator.plan.actions import Action, Apply, Delete, PatchNode, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.ports import Kind, Ref
from driverforge_operator.state.contents import CONFIG_MAPS, SECRETS, ContentDocument
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    KIND_OF,
    NODE,
    NVIDIA_DRIVER,
    CustomResource,
    Metadata,
    NodeDocument,
    Taint,
)
from driverforge_operator.state.openshift import CLUSTER_VERSION, ClusterVersion, Update, VersionStatus
from driverforge_operator.state.validators import VALIDATOR, ValidatorPod
from support.samples.operatorcases import policy_spec

_MANAGER = {"repository": "r.example", "image": "manager", "version": "1"}
_SYSTEMS = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rocky", "9.4"), ("rocky", "9.5"), ("", ""))

node_names = st.sampled_from(["a", "b", "c"])
node_labels = st.fixed_dictionaries(
    {},
    optional={
        nodekeys.GPU_FEATURES[0]: st.sampled_from(["true", "false"]),
        nodekeys.GPU_PRESENT: st.sampled_from(["true", ""]),
        f"{nodekeys.DEPLOY}driver": st.sampled_from(["true", "false", "pre-installed", ""]),
        f"{nodekeys.DEPLOY}left-over": st.just("true"),
        nodekeys.OPERANDS: st.just("false"),
        "team": st.sampled_from(["red", "blue"]),
        "boot": st.sampled_from(["1", "2"]),
    },
)
specs = st.fixed_dictionaries(
    {
        "repository": st.just("r.example"),
        "version": st.sampled_from(["1", "2"]),
        "manager": st.just(_MANAGER),
    },
    optional={
        "default": st.booleans(),
        "nodeSelector": st.sampled_from([{"team": "red"}, {"team": "blue"}]),
        "usePrecompiled": st.booleans(),
        "driverType": st.sampled_from(["gpu", "wrong"]),
    },
)
# an operand comes and goes, one has no image, runtimes get objects of their own, or nothing can be read
policies = st.sampled_from(
    [
        {},
        {"gfd": {"enabled": False}},
        {"toolkit": {"repository": None}},
        {"cdi": {"enabled": False}},
        {"mig": {"strategy": "wrong"}},
        {"ready-taint": {}},
    ]
)
times = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", ""])
runtimes = st.sampled_from(["containerd", "cri-o"])
changes = st.one_of(
    st.tuples(st.just("node"), node_names, st.tuples(node_labels, st.sampled_from(_SYSTEMS), runtimes)),
    st.tuples(st.just("no node"), node_names, st.none()),
    st.tuples(st.just("driver"), st.sampled_from(["x", "y"]), specs),
    st.tuples(st.just("no driver"), st.sampled_from(["x", "y"]), st.none()),
    st.tuples(st.just("policy"), st.just("p"), policies),
    st.tuples(st.just("no policy"), st.just("p"), st.none()),
    st.tuples(st.just("validator"), st.sampled_from(["p1", "p2"]), st.tuples(node_names, times)),
    st.tuples(st.just("no validator"), st.sampled_from(["p1", "p2"]), st.none()),
    st.tuples(st.just("openshift"), st.just("version"), st.sampled_from(["4.16.1", "4.16.2", "4.17.0", ""])),
    st.tuples(st.just("serves"), st.just("ServiceMonitor"), st.booleans()),
)


def node(
    name: str, labels: dict[str, str], system: tuple[str, str], runtime: str = "containerd"
) -> NodeDocument:
    features = {nodekeys.OS_ID: system[0], nodekeys.OS_VERSION: system[1]} if system[0] else {}
    found = {
        "metadata": {"name": name, "labels": {**features, **labels}},
        "status": {
            "nodeInfo": {"containerRuntimeVersion": f"{runtime}://1", "bootID": labels.get("boot", "")}
        },
    }
    return msgspec.convert(found, NodeDocument)


def policy(changes: dict[str, Any], generation: int) -> CustomResource:
    spec = policy_spec("nvidia-driver-crd")
    changes = dict(changes)
    annotations = {} if changes.pop("ready-taint", None) is None else {nodekeys.READY_TAINT: "true"}
    for field, values in changes.items():
        spec[field] = {**spec[field], **values}
    metadata = Metadata(name="p", uid="uid-p", generation=generation, annotations=annotations)
    return CustomResource(metadata=metadata, spec=spec)


def validator(name: str, node_name: str, since: str) -> ValidatorPod:
    found = {"type": "Ready", "status": "True" if since else "False", "lastTransitionTime": since}
    status = {"conditions": [found]}
    document = {"metadata": {"name": name}, "spec": {"nodeName": node_name}, "status": status}
    return msgspec.convert(document, ValidatorPod)


def driver(name: str, spec: dict[str, Any], generation: int) -> CustomResource:
    metadata = Metadata(name=name, uid=f"uid-{name}", generation=generation)
    return CustomResource(metadata=metadata, spec=spec)


class Server:
    """The nodes as an API server has them, so that a label that is kept from the store comes back."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDocument] = {}

    def carry_out(self, action: Action, store: Store) -> None:
        if not isinstance(action, PatchNode):
            written = action.document if isinstance(action, Apply) else None
            if isinstance(action, SetStatus):
                written = {
                    "state": action.state,
                    "namespace": action.namespace,
                    "observedGeneration": action.generation,
                    "conditions": [
                        {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
                        for c in action.conditions
                    ],
                    "pools": [dict(one) for one in action.pools],
                }
            store.carried_out(action, written)
            return
        found = self.nodes[action.node]
        metadata = msgspec.structs.replace(
            found.metadata,
            labels=merged(found.metadata.labels, action.labels),
            annotations=merged(found.metadata.annotations, action.annotations),
        )
        spec = found.spec
        if action.tainted is not None:
            taints = [Taint(key=nodekeys.NOT_READY, effect="NoSchedule")] if action.tainted else []
            spec = msgspec.structs.replace(spec, taints=taints)
        self.nodes[action.node] = msgspec.structs.replace(found, metadata=metadata, spec=spec)
        store.put(NODE, self.nodes[action.node])


def merged(values: dict[str, str], change: Any) -> dict[str, str]:
    return {key: value for key, value in {**values, **change}.items() if value is not None}


@given(st.lists(changes, max_size=8))
def test_change_by_change_is_the_plan_of_the_whole(steps: list[tuple[str, str, Any]]) -> None:
    store, server = Store("gpu-operator"), Server()
    for number, (what, name, value) in enumerate(steps):
        match what:
            case "node":
                server.nodes[name] = node(name, *value)
                store.put(NODE, server.nodes[name])
            case "no node":
                server.nodes.pop(name, None)
                store.remove(NODE, name)
            case "driver":
                store.put(NVIDIA_DRIVER, driver(name, value, number))
            case "no driver":
                store.remove(NVIDIA_DRIVER, name)
            case "policy":
                store.put(CLUSTER_POLICY, policy(value, number))
            case "no policy":
                store.remove(CLUSTER_POLICY, name)
            case "validator":
                store.put(VALIDATOR, validator(name, *value))
            case "no validator":
                store.remove(VALIDATOR, name)
            case "openshift" if value:
                history = [Update(state="Completed", version=value)]
                status = VersionStatus(history=history)
                store.put(CLUSTER_VERSION, ClusterVersion(metadata=Metadata(name=name), status=status))
            case "openshift":
                store.keep_only(CLUSTER_VERSION, [])
            case _:
                store.serves(KIND_OF["monitoring.coreos.com/v1", name], served=value)
        store.read_intent()
        if store.lacks_labels:
            for one in server.nodes.values():
                store.put(NODE, one)
            store.lacks_labels = False
        whole = plan(store.state)
        decided = store.actions()
        assert sorted(map(str, decided)) == sorted(map(str, whole))
        for action in decided:
            server.carry_out(action, store)
        # what was told back asks for nothing more, but a status that waits for the objects
        rest = [one for one in store.actions() if not isinstance(one, SetStatus)]
        assert rest == []


def test_a_heartbeat_is_no_change() -> None:
    store = Store("gpu-operator")
    store.put(NODE, node("a", {nodekeys.GPU_FEATURES[0]: "true"}, ("ubuntu", "22.04")))
    assert store.actions()
    store.put(NODE, node("a", {nodekeys.GPU_FEATURES[0]: "true"}, ("ubuntu", "22.04")))
    assert store.actions() == []


def test_a_list_takes_away_what_it_lacks() -> None:
    store = Store("gpu-operator")
    gpu = {nodekeys.GPU_FEATURES[0]: "true"}
    store.put(NVIDIA_DRIVER, driver("x", {"version": "1", "default": True, "manager": _MANAGER}, 1))
    store.put(NODE, node("a", gpu, ("ubuntu", "22.04")))
    for action in store.actions():
        store.carried_out(action, action.document if isinstance(action, Apply) else None)
    store.keep_only(NODE, ())
    deleted = [one.ref.kind for one in store.actions() if isinstance(one, Delete)]
    assert "DaemonSet" in deleted
    assert store.state.nodes == {}


def test_what_was_deleted_by_somebody_comes_back() -> None:
    store = Store("gpu-operator")
    store.put(NVIDIA_DRIVER, driver("x", {"version": "1", "default": True, "manager": _MANAGER}, 1))
    store.put(NODE, node("a", {nodekeys.GPU_FEATURES[0]: "true"}, ("ubuntu", "22.04")))
    for action in store.actions():
        store.carried_out(action, action.document if isinstance(action, Apply) else None)
    ref, document = next((ref, one) for ref, one in store.state.objects.items() if ref.kind == "DaemonSet")
    store.remove(KIND_OF[ref.api_version, ref.kind], ref.name)
    applied = [one.ref for one in store.actions() if isinstance(one, Apply)]
    assert applied == [Ref.of(document)]


def test_another_node_that_two_claim_is_told() -> None:
    store = Store("gpu-operator")
    gpu = {nodekeys.GPU_FEATURES[0]: "true"}
    for name in ("x", "y"):
        store.put(NVIDIA_DRIVER, driver(name, {"version": "1", "default": True, "manager": _MANAGER}, 1))

    def told() -> list[str]:
        return sorted(str(one) for one in store.actions() if isinstance(one, SetStatus))

    store.put(NODE, node("a", gpu, ("ubuntu", "22.04")))
    assert "claim 1 node (a)" in told()[0]
    store.put(NODE, node("b", gpu, ("ubuntu", "22.04")))
    assert "claim 2 nodes (a, b)" in told()[0]
    store.remove(NODE, "a")
    assert "claim 1 node (b)" in told()[0]


def test_another_node_of_a_pool_concerns_nothing_else() -> None:
    store = Store("gpu-operator")
    gpu = {nodekeys.GPU_FEATURES[0]: "true"}
    store.put(NVIDIA_DRIVER, driver("x", {"version": "1", "default": True, "manager": _MANAGER}, 1))
    store.put(NODE, node("a", gpu, ("ubuntu", "22.04")))
    store.actions()
    store.put(NODE, node("b", gpu, ("ubuntu", "22.04")))
    # the objects that were wanted before are still not there: nobody looked
    assert [type(one) for one in store.actions()] == [PatchNode]


def test_what_the_server_does_not_know_is_not_applied_until_it_does() -> None:
    store, monitors = Store("gpu-operator"), KIND_OF["monitoring.coreos.com/v1", "ServiceMonitor"]
    store.put(CLUSTER_POLICY, policy({}, 1))
    store.serves(monitors, served=False)
    first = store.actions()
    assert not [one for one in first if "ServiceMonitor" in str(one)]
    for action in first:
        Server().carry_out(action, store)
    store.serves(monitors, served=False)
    assert store.actions() == []
    store.serves(monitors, served=True)
    assert {str(one) for one in store.actions()} == {
        "apply ServiceMonitor gpu-operator/gpu-operator",
        "apply ServiceMonitor gpu-operator/nvidia-dcgm-exporter",
    }


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (CONFIG_MAPS, {"licensingConfig": {"name": "held"}}),
        (SECRETS, {"licensingConfig": {"secretName": "held"}}),
        (SECRETS, {"secretEnv": "held"}),
    ],
    ids=["ConfigMap", "Secret", "variables of a Secret"],
)
def test_another_content_of_what_pods_use_makes_another_driver(
    kind: Kind[ContentDocument], spec: dict[str, Any]
) -> None:
    other = CONFIG_MAPS if kind is SECRETS else SECRETS
    store = Store("gpu-operator")
    wanted = {"repository": "r.example", "version": "1", "default": True, "manager": _MANAGER, **spec}
    store.put(NVIDIA_DRIVER, driver("x", wanted, 1))
    store.put(NODE, node("a", {nodekeys.GPU_FEATURES[0]: "true"}, ("ubuntu", "22.04")))

    def changed(kind: Kind[ContentDocument], licence: str) -> list[str]:
        store.put(kind, ContentDocument(metadata=Metadata(name="held"), data={"gridd.conf": licence}))
        found = store.actions()
        for action in found:
            store.carried_out(action, action.document if isinstance(action, Apply) else None)
        return [one.ref.kind for one in found if isinstance(one, Apply)]

    assert "DaemonSet" in changed(kind, "one")
    assert changed(kind, "one") == []
    assert changed(kind, "two") == ["DaemonSet"]
    assert changed(other, "three") == []


def test_a_workload_that_is_none_is_logged_once_for_each_value(caplog: pytest.LogCaptureFixture) -> None:
    store, gpu = Store("gpu-operator"), {nodekeys.GPU_FEATURES[0]: "true"}

    def warned(number: int, value: str, *, sandbox: bool = True) -> list[str]:
        caplog.clear()
        store.put(CLUSTER_POLICY, policy({"sandboxWorkloads": {"enabled": sandbox}}, number))
        store.put(NODE, node("a", {**gpu, nodekeys.WORKLOAD: value}, ("ubuntu", "22.04")))
        store.actions()
        return [one.getMessage() for one in caplog.records]

    words = "has no effect, write one of container, vm-passthrough, vm-vgpu"
    assert warned(1, "vm-pass", sandbox=False) == []
    assert warned(2, "vm-pass") == [f"node a: {nodekeys.WORKLOAD}=vm-pass {words}"]
    assert warned(3, "vm-pass") == []
    assert warned(4, "kata") == [f"node a: {nodekeys.WORKLOAD}=kata {words}"]
    assert warned(5, "vm-vgpu") == []
    assert warned(6, "vm-pass") == [f"node a: {nodekeys.WORKLOAD}=vm-pass {words}"]
    # a machine of the same name
    store.remove(NODE, "a")
    assert warned(7, "vm-pass") == [f"node a: {nodekeys.WORKLOAD}=vm-pass {words}"]
    # what it is for counts once it has a GPU
    store.remove(NODE, "a")
    gpu.clear()
    assert warned(8, "vm-pass") == []


def test_a_default_workload_that_is_none_is_logged_once_for_each_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store("gpu-operator")

    def warned(number: int, value: str, *, sandbox: bool = True) -> list[str]:
        caplog.clear()
        spec = {"sandboxWorkloads": {"enabled": sandbox, "defaultWorkload": value}}
        store.put(CLUSTER_POLICY, policy(spec, number))
        store.actions()
        return [one.getMessage() for one in caplog.records]

    words = "has no effect, write one of container, vm-passthrough, vm-vgpu"
    said = "ClusterPolicy: sandboxWorkloads.defaultWorkload"
    assert warned(1, "vm-pass", sandbox=False) == []
    assert warned(2, "vm-pass") == [f"{said}=vm-pass {words}"]
    assert warned(3, "vm-pass") == []
    assert warned(4, "kata") == [f"{said}=kata {words}"]
    assert warned(5, "vm-vgpu") == []
