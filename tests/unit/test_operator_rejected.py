"""Objects that the API server rejects are told in the resources that ask for them, for as long as it does."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from driverforge_core import nodekeys
from driverforge_core.errors import NotPermitted, TemporaryFailure
from driverforge_operator.app.control import Controller
from driverforge_operator.app.lease import NotLeading
from driverforge_operator.app.store import Store
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.plan.actions import Action, Apply, Delete, LabelNamespace, PatchNode, SetStatus
from driverforge_operator.plan.rejected import counted
from driverforge_operator.plan.whole import asked_for, plan
from driverforge_operator.ports import (
    Answer,
    Conflict,
    Document,
    Event,
    Gone,
    Kind,
    Overloaded,
    Ref,
    Unauthenticated,
)
from driverforge_operator.state.kinds import CLUSTER_POLICY, NODE, NVIDIA_DRIVER
from driverforge_operator.state.observed import State
from support.fakes.quietcluster import QuietCluster
from support.process import until
from support.samples.operatorcases import driver_state, policy_state

FORBIDDEN = "the API server answers 403 Forbidden: exceeded quota: few, requested: count/pods=1"


def rejecting(state: State, *refs: Ref, words: str = FORBIDDEN) -> State:
    return replace(state, around=replace(state.around, rejected=dict.fromkeys(refs, words)))


def told(state: State) -> tuple[str, str]:
    """The reason and words of the only resource's condition."""
    (status,) = [one for one in plan(state) if isinstance(one, SetStatus)]
    (found,) = [one for one in status.conditions if one.status == "True"]
    return found.reason, found.message


def applied(state: State, kind: str, part: str) -> Ref:
    return next(
        one.ref
        for one in plan(state)
        if isinstance(one, Apply) and one.ref.kind == kind and part in one.ref.name
    )


def test_a_policy_names_the_state_the_object_and_the_servers_words() -> None:
    state = policy_state("default")
    ref = applied(state, "DaemonSet", "dcgm-exporter")
    assert told(rejecting(state, ref)) == (
        "ReconcileFailed",
        f"Failed to reconcile state-dcgm-exporter: DaemonSet gpu-operator/nvidia-dcgm-exporter: {FORBIDDEN}",
    )


def test_a_driver_names_its_daemonset() -> None:
    state = driver_state("minimal")
    ref = applied(state, "DaemonSet", "")
    assert told(rejecting(state, ref)) == (
        "ReconcileFailed",
        f"Failed to reconcile state-driver: {ref}: {FORBIDDEN}",
    )


def test_an_object_of_one_resource_is_not_told_in_another() -> None:
    state = driver_state("minimal")
    (driver,) = state.drivers.values()
    (policy,) = policy_state("nvidia-driver-crd").policies.values()
    both = replace(state, policies={policy.metadata.name: policy}, drivers={"demo": driver})
    found = rejecting(both, applied(both, "DaemonSet", "dcgm-exporter"))
    reasons = {one.ref.kind: one.conditions[0].reason for one in plan(found) if isinstance(one, SetStatus)}
    assert reasons["ClusterPolicy"] == "ReconcileFailed"
    assert reasons["NVIDIADriver"] != "ReconcileFailed"


def test_what_shall_go_is_told_by_its_owner() -> None:
    state = driver_state("minimal")
    document = next(
        one.document for one in plan(state) if isinstance(one, Apply) and one.ref.kind == "DaemonSet"
    )
    old = {**document, "metadata": {**document["metadata"], "name": "old"}}
    (policy,) = policy_state("nvidia-driver-crd").policies.values()
    both = replace(state, policies={policy.metadata.name: policy}, objects={Ref.of(old): old})
    reasons = {
        one.ref.kind: one.conditions[0].reason
        for one in plan(rejecting(both, Ref.of(old)))
        if isinstance(one, SetStatus)
    }
    assert reasons["NVIDIADriver"] == "ReconcileFailed"
    assert reasons["ClusterPolicy"] != "ReconcileFailed"


def test_labels_of_the_namespace_are_no_drivers() -> None:
    state = policy_state("psa")
    bare = replace(state, around=replace(state.around, namespace_labels={}))
    (action,) = (one for one in plan(bare) if isinstance(one, LabelNamespace))
    assert told(rejecting(bare, action.ref)) == (
        "ReconcileFailed",
        f"Failed to reconcile labels of the namespace: Namespace gpu-operator: {FORBIDDEN}",
    )


def test_an_operand_that_was_switched_off_is_no_driver() -> None:
    state = policy_state("default")
    there = {one.ref: one.document for one in plan(state) if isinstance(one, Apply)}
    (policy,) = state.policies.values()
    spec = {**policy.spec, "dcgmExporter": {**policy.spec["dcgmExporter"], "enabled": False}}
    off = type(policy)(metadata=policy.metadata, spec=spec)
    without = replace(state, objects=there, policies={policy.metadata.name: off})
    (gone,) = (one.ref for one in plan(without) if isinstance(one, Delete) and one.ref.kind == "DaemonSet")
    assert told(rejecting(without, gone)) == (
        "ReconcileFailed",
        f"Failed to reconcile what is no longer wanted: {gone}: {FORBIDDEN}",
    )


def test_what_all_drivers_share_is_a_drivers() -> None:
    state = policy_state("default")
    ref = applied(state, "ConfigMap", "nvidia-driver-startup-probe")
    assert told(rejecting(state, ref))[1] == f"Failed to reconcile state-driver: {ref}: {FORBIDDEN}"


@pytest.mark.parametrize("of", ["ClusterPolicy", "NVIDIADriver"])
def test_thousands_of_nodes_are_a_few_names_and_a_number(of: str) -> None:
    state = policy_state("default") if of == "ClusterPolicy" else driver_state("minimal")
    nodes = [NODE.ref(f"n{number:04}") for number in range(5000)]
    reason, message = told(rejecting(state, *nodes))
    assert reason == "ReconcileFailed"
    assert message.startswith("Failed to reconcile labels of nodes: Node n0000 and Node n0001 and ")
    assert f" and at least 4000 more: {FORBIDDEN}" in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (5, "Node n4"),
        (6, "1 more"),
        (14, "9 more"),
        (15, "at least 10 more"),
        (24, "at least 10 more"),
        (25, "at least 20 more"),
        (105, "at least 100 more"),
        (204, "at least 100 more"),
    ],
)
def test_many_are_a_round_number(count: int, more: str) -> None:
    state = rejecting(driver_state("minimal"), *(NODE.ref(f"n{number}") for number in range(count)))
    assert f" and {more}: {FORBIDDEN}" in told(state)[1]


@pytest.mark.parametrize("of", ["ClusterPolicy", "NVIDIADriver"])
def test_what_is_rejected_hides_no_missing_image(of: str) -> None:
    """A node that a webhook refuses, beside a pool without an image."""
    state = policy_state("default") if of == "ClusterPolicy" else driver_state("minimal")
    asks = replace(state, around=replace(state.around, images={}))
    answers = {one: Answer(found="no") for one in asked_for(asks)}
    missing = replace(state, around=replace(state.around, images=answers))
    reason, words = told(missing)
    assert reason == "ImageMissing"
    assert told(rejecting(missing, NODE.ref("a"))) == (
        "ReconcileFailed",
        f"Failed to reconcile labels of nodes: Node a: {FORBIDDEN}; {words}",
    )


def test_counted_nodes_have_the_first_names_of_all() -> None:
    assert counted(list("gfedcba")) == "7 nodes (a, b, c, d, e)"
    assert counted(["a"]) == "1 node (a)"


def test_an_error_of_the_spec_comes_first() -> None:
    state = driver_state("minimal")
    (found,) = state.drivers.values()
    ref = applied(state, "DaemonSet", "")
    wrong = type(found)(metadata=found.metadata, spec={**found.spec, "driverType": "wrong"})
    assert told(rejecting(replace(state, drivers={"demo": wrong}), ref))[0] == "InvalidSpec"


class Told:
    """A store of one driver and a node, and what it says after each call."""

    def __init__(self) -> None:
        self.store = Store("gpu-operator")
        state = driver_state("minimal")
        (driver,) = state.drivers.values()
        self.store.put(NVIDIA_DRIVER, driver)
        self.wanted: list[Action] = self.store.actions()

    def reasons(self) -> list[str]:
        return [one.conditions[0].reason for one in self.statuses()]

    def statuses(self) -> list[SetStatus]:
        found = self.store.actions()
        for one in found:
            if isinstance(one, SetStatus):
                conditions = [
                    {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
                    for c in one.conditions
                ]
                written = {"state": one.state, "namespace": one.namespace, "conditions": conditions}
                written |= {"observedGeneration": one.generation, "pools": [dict(p) for p in one.pools]}
                self.store.carried_out(one, written)
        return [one for one in found if isinstance(one, SetStatus)]


LABEL = PatchNode(node="a", labels={nodekeys.GPU_PRESENT: "true"}, annotations={})


def test_it_is_said_once_again_with_other_words_and_taken_back() -> None:
    one = Told()
    one.reasons()
    one.store.reject(LABEL, "403")
    assert one.reasons() == ["ReconcileFailed"]
    one.store.reject(LABEL, "403")
    assert one.reasons() == []
    one.store.reject(LABEL, "422")
    assert one.reasons() == ["ReconcileFailed"]
    one.store.carried_out(LABEL, None)
    assert one.reasons() not in ([], ["ReconcileFailed"])


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]"])
def test_the_port_of_a_connection_that_broke_is_no_other_words(host: str) -> None:
    def broke(port: int, to: int) -> str:
        return f"dial tcp {host}:{port}->{host}:{to}: connection reset by peer"

    one = Told()
    one.reasons()
    one.store.reject(LABEL, broke(50001, 443))
    assert one.reasons() == ["ReconcileFailed"]
    one.store.reject(LABEL, broke(50002, 443))
    assert one.reasons() == []
    # where it went is what was asked
    one.store.reject(LABEL, broke(50002, 8443))
    assert one.reasons() == ["ReconcileFailed"]


@pytest.mark.parametrize(
    "words",
    [
        "500 failed calling webhook: request 0f8fad5b-d9cb-469f-a165-7086772895{:02}",
        "500 failed calling webhook: trace=4bf92f3577b34da6a3ce929d0e0e47{:02}",
        "500 failed calling webhook at 2026-11-25T23:37:{:02}.5Z",
        "500 failed calling webhook at 17640274{:02}",
        "500 read tcp 10.0.0.1:510{:02}->[::1]:443: reset by peer",
    ],
)
def test_a_refusal_with_another_number_each_time_is_told_once(words: str) -> None:
    one = Told()
    one.reasons()
    told = []
    for number in range(60):
        one.store.reject(LABEL, words.format(number))
        told += one.statuses()
    (status,) = told
    assert status.conditions[1].message.endswith(words.format(0))


def test_a_field_that_is_refused_after_another_is_told() -> None:
    one = Told()
    one.reasons()
    for number in range(2):
        one.store.reject(LABEL, f"422 spec.containers[{number}].image: Invalid value")
        (status,) = one.statuses()
        assert f"containers[{number}]" in status.conditions[1].message


@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_that_are_refused_one_by_one_are_few_statuses(*, backwards: bool) -> None:
    one = Told()
    one.reasons()
    numbers = reversed(range(200)) if backwards else range(200)
    told = 0
    for number in numbers:
        one.store.reject(replace(LABEL, node=f"n{number:04}"), "500 failed calling webhook")
        told += len(one.reasons())
    # 5 names, then a number that grows: 1 to 9, 10 to 90, and 100
    assert told == 5 + 9 + 9 + 1


def test_of_a_page_of_words_the_beginning_is_kept() -> None:
    one = Told()
    one.reasons()
    one.store.reject(LABEL, "x" * 1_000_000)
    assert len(one.store.state.around.rejected[LABEL.ref]) == 1001
    (status,) = one.statuses()
    assert status.conditions[1].message.endswith("xxx…")
    one.store.reject(LABEL, "x" * 1_000_000)
    assert one.reasons() == []


def test_what_nobody_asks_for_any_more_is_not_told() -> None:
    one = Told()
    one.store.reject(LABEL, "403")
    assert one.reasons() == ["ReconcileFailed"]
    one.store.keep_rejected({LABEL.ref})
    assert one.reasons() == []
    one.store.keep_rejected(())
    assert one.reasons() not in ([], ["ReconcileFailed"])


def test_a_status_that_is_rejected_is_not_told_in_itself() -> None:
    one = Told()
    (status,) = (action for action in one.wanted if isinstance(action, SetStatus))
    one.reasons()
    one.store.reject(status, "403")
    assert one.reasons() == []


def test_the_outcome_for_those_who_watch() -> None:
    store = Store("gpu-operator")
    assert store.outcome == -1
    (policy,) = policy_state("default").policies.values()
    for state, outcome in (("ready", 1), ("ignored", 1), ("notReady", 0), (None, 0)):
        store.put(CLUSTER_POLICY, type(policy)(metadata=policy.metadata, spec={}, status={"state": state}))
        assert store.outcome == outcome


class Refusing(QuietCluster):
    """Each object is answered with `error`; what the custom resource says of it is kept."""

    def __init__(self, stop: threading.Event, error: Exception) -> None:
        state = driver_state("minimal")
        (driver,) = state.drivers.values()
        (node, *_) = state.nodes.values()
        super().__init__(stop, "a", resources=[(NVIDIA_DRIVER, driver)], labels=dict(node.labels))
        self.error: Exception | None = error
        self.tried: Counter[str] = Counter()
        self.reasons: list[str] = []
        self.told, self.gone = threading.Event(), False

    def get(self, kind: Kind[Any], name: str) -> Any:
        raise Gone("nobody has it")

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        self.tried[kind.name] += 1
        if self.error:
            raise self.error
        return document

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        if part == "status":
            self.reasons += [one["reason"] for one in body["status"]["conditions"] if one["type"] == "Error"]
        return "2"

    def create(self, kind: Kind[Any], document: Document) -> Document:
        return document

    def watch(self, kind: Kind[Any], since: str, *, labels: str = "") -> Iterator[Event[Any]]:
        """The node goes when the test says so."""
        if kind is NODE and not self.gone:
            while not (self._stop.is_set() or self.told.wait(0.05)):
                pass
            self.gone = True
            if self.told.is_set():
                node = next(one for page in self.pages(NODE) for one in page.items)
                yield Event(version="2", item=node, deleted=True)
        self._stop.wait()


@contextmanager
def following(cluster: Refusing, stop: threading.Event, *, hurry: float = 1) -> Iterator[None]:
    """The loop at work; its clock is faster than others by `hurry`."""
    controller = Controller(cluster, "gpu-operator", clock=lambda: time.monotonic() * hurry, rest=0.02)
    loop = threading.Thread(target=controller.run, args=(stop,))
    loop.start()
    try:
        yield
    finally:
        stop.set()
        loop.join()


def test_the_loop_tells_what_is_refused_until_it_is_taken() -> None:
    stop = threading.Event()
    cluster = Refusing(stop, NotPermitted("the API server answers 403 Forbidden"))
    with following(cluster, stop):
        until(lambda: "ReconcileFailed" in cluster.reasons, "it is told")
        cluster.error = None
        until(lambda: cluster.reasons[-1] not in ("", "ReconcileFailed"), "it is taken back")


def test_what_may_work_in_a_moment_is_not_told() -> None:
    stop = threading.Event()
    cluster = Refusing(stop, TemporaryFailure("the API server answers 500"))
    with following(cluster, stop):
        until(lambda: cluster.tried["DaemonSet"] > 2, "it is tried again")
    assert "ReconcileFailed" not in cluster.reasons


class Failing(Refusing):
    """Each time in a moment, and in other words as Go has them; a node gives a sign of life all the time."""

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        self.tried[kind.name] += 1
        # the test takes it away meanwhile
        error = self.error
        if isinstance(error, TemporaryFailure):
            number = sum(self.tried.values())
            told = f'failed calling webhook "a": read tcp 10.0.0.1:{50000 + number}->[::1]:443: reset by peer'
            raise type(error)("the API server answers 500", details=[told])
        if error:
            raise error
        return document

    def watch(self, kind: Kind[Any], since: str, *, labels: str = "") -> Iterator[Event[Any]]:
        (page,) = self.pages(NODE)
        while kind is NODE and not self._stop.wait(0.02):
            yield Event(version="2", item=page.items[0])
        self._stop.wait()

    def tried_again(self, times: int) -> None:
        """Until each object was tried so often; an event is tried once."""
        objects = ("ConfigMap", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "DaemonSet")
        until(lambda: all(self.tried[kind] >= times for kind in objects), "all is tried again")


def test_a_webhook_that_never_answers_is_told_once_until_it_does() -> None:
    stop = threading.Event()
    cluster = Failing(stop, TemporaryFailure("the API server answers 500"))
    with following(cluster, stop, hurry=500):
        cluster.tried_again(10)
        until(lambda: "ReconcileFailed" in cluster.reasons, "it is told")
        told = [*cluster.reasons]
        cluster.tried_again(13)
        assert cluster.reasons == told
        cluster.error = None
        until(lambda: cluster.reasons[-1] not in ("", "ReconcileFailed"), "it is taken back")


@pytest.mark.parametrize(
    "error",
    [Conflict("409"), Gone("404"), Overloaded("429"), NotLeading("no lease"), Unauthenticated("401")],
    ids=lambda error: type(error).__name__,
)
def test_what_is_nothing_about_the_object_is_not_told(error: Exception) -> None:
    stop = threading.Event()
    cluster = Failing(stop, error)
    with following(cluster, stop, hurry=500):
        cluster.tried_again(10)
    assert "ReconcileFailed" not in cluster.reasons


class FailingOnce(Failing):
    """After many failures that are nothing about the object, one that is, and then none."""

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        number = self.tried[kind.name] + 1
        self.error = Conflict("409") if number < 10 else TemporaryFailure("500") if number == 10 else None
        return super().apply(kind, document)


def test_one_failure_of_an_object_after_many_of_everybody_is_not_told() -> None:
    stop = threading.Event()
    cluster = FailingOnce(stop, Conflict("409"))
    with following(cluster, stop, hurry=500):
        until(lambda: cluster.tried["DaemonSet"] >= 11, "the DaemonSet is taken")
        until(lambda: cluster.reasons[-1:] not in ([], [""]), "its status is written")
    assert "ReconcileFailed" not in cluster.reasons


@pytest.mark.parametrize(("status", "known"), [(401, False), (403, True)])
def test_a_server_that_does_not_know_who_asks_has_refused_nothing(status: int, *, known: bool) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, json={"message": "no"})

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://server") as http,
        pytest.raises(NotPermitted) as caught,
    ):
        ApiServer(http, "gpu-operator").get(NODE, "a")
    assert isinstance(caught.value, Unauthenticated) is not known


def test_the_loop_takes_back_what_nobody_asks_for_any_more() -> None:
    stop = threading.Event()
    cluster = Refusing(stop, NotPermitted("the API server answers 403 Forbidden"))
    with following(cluster, stop):
        until(lambda: "ReconcileFailed" in cluster.reasons, "it is told")
        cluster.told.set()
        until(lambda: cluster.reasons[-1] not in ("", "ReconcileFailed"), "it is taken back")
