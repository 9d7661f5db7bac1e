"""The operator where requests fail, replicas die and stop, and somebody else is at work: it gets there, and
does not write more than it has to.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from support.cluster.faultproxy import Asked, Fault, FaultProxy, fault_proxy
from support.cluster.kubernetes import Api
from support.cluster.operator import (
    DAEMONSETS,
    DRIVER,
    LEASE,
    NAMESPACE,
    NODES,
    add_driver,
    add_node,
    launch,
    merge,
    metric,
    operator,
    page,
    settled,
    small_cluster,
)
from support.process import stop, until

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CLUSTER_POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with small_cluster(api) as found:
        yield found


@pytest.fixture
def proxy(cluster: Api) -> Iterator[FaultProxy]:
    with fault_proxy(cluster) as found:
        yield found


def written(api: Api) -> list[str]:
    """What the server carried out of what decisions write."""
    found = [one.split(" ") for one in api.requests()]
    return [
        " ".join(one)
        for one in found
        if one[0] not in ("get", "list", "watch") and one[1] not in ("leases", "events")
    ]


def objects(api: Api) -> dict[str, Any]:
    """All that an operator makes, without what the server adds."""
    found: dict[str, Any] = {}
    for path in (DAEMONSETS, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"):
        for one in api.request("GET", path).body["items"]:
            labels = one["metadata"].get("labels")
            found[f"{path}/{one['metadata']['name']}"] = (labels, one.get("spec"))
    for path in NODES:
        metadata = api.request("GET", path).body["metadata"]
        found[path] = (metadata.get("labels"), metadata.get("annotations"))
    status = api.request("GET", DRIVER).body.get("status", {})
    found[DRIVER] = [(one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())]
    return found


class FirstTwice:
    """The first two requests for each path fail, each path's in another way, and the third succeeds."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = cycle(faults)
        self._left: dict[str, list[Fault]] = {}

    def __call__(self, asked: Asked) -> Fault | None:
        if not asked.number:
            return None
        path = asked.path.partition("?")[0]
        if path not in self._left:
            self._left[path] = [next(self._faults)] * 2
        return self._left[path].pop() if self._left[path] else None


def test_writes_that_fail_are_made_until_they_succeed(
    cluster: Api, proxy: FaultProxy, tmp_path: Path
) -> None:
    answers = [Fault(status=status) for status in (409, 500, 401)]
    proxy.decide = FirstTwice(*answers, Fault(cut="before"), Fault(cut="after"), Fault(delay=0.3))
    with operator(cluster, tmp_path, config=proxy.kubeconfig()) as log:
        until(lambda: settled(cluster), "drivers in spite of faults", timeout=120, log=log)
        until(lambda: metric(log, "driverforge_operator_waiting_actions") == 0, "all is written", log=log)
    assert proxy.faults > 12
    # two that failed and one that did not; an event is written at most once more
    assert max(Counter(proxy.writes).values()) <= 4
    # nothing of it lasts, so nobody is told of it
    events = cluster.request("GET", "/api/v1/namespaces/default/events").body["items"]
    assert {one["reason"] for one in events} <= {"DriverNotReady"}


def test_a_server_that_asks_to_wait_is_left_alone_so_long(
    cluster: Api, proxy: FaultProxy, tmp_path: Path
) -> None:
    times: list[float] = []

    def busy(asked: Asked) -> Fault | None:
        if asked.number:
            times.append(time.monotonic())
        return Fault(status=429, retry_after=3) if asked.number == 1 else None

    proxy.decide = busy
    with operator(cluster, tmp_path, config=proxy.kubeconfig()) as log:
        until(lambda: settled(cluster), "drivers", log=log)
    assert times[1] - times[0] >= 3


def test_a_watch_that_ends_misses_nothing(cluster: Api, proxy: FaultProxy, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, config=proxy.kubeconfig()) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        for number, status in enumerate((410, 500, 429)):
            left = [Fault(status=status)]

            def refuse(asked: Asked, left: list[Fault] = left) -> Fault | None:
                return left.pop() if asked.watch and "/nodes" in asked.path and left else None

            proxy.decide = refuse
            proxy.drop()
            if not number:
                assert cluster.request("DELETE", NODES[1]).ok
            add_node(cluster, name := f"op-later-{number}", os_id="ubuntu", version="22.04")
            until(lambda left=left: not left, "a watch failed", log=log)  # type: ignore[misc]
            until(lambda name=name: _labelled(cluster, name), f"{name} is labelled", log=log)  # type: ignore[misc]
        until(lambda: len(cluster.request("GET", DAEMONSETS).body["items"]) == 1, "Rocky's goes", log=log)


def test_a_token_is_read_again_when_it_was_exchanged(cluster: Api, proxy: FaultProxy, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(proxy.token)
    with operator(cluster, tmp_path, config=proxy.kubeconfig(tokenFile=str(token))) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        token.unlink()
        proxy.token = "second"
        proxy.drop()
        merge(cluster, NODES[0], {"metadata": {"labels": {f"{nodekeys.DEPLOY}driver": None}}})
        until(lambda: " 401" in log.read_text(), "it notices", log=log)
        token.write_text("second")
        until(
            lambda: f"{nodekeys.DEPLOY}driver" in cluster.request("GET", NODES[0]).body["metadata"]["labels"],
            "the label is back",
            timeout=120,
            log=log,
        )


@pytest.mark.full(reason="a life of the operator for each of two dozen writes")
def test_killed_at_every_write_it_gets_there_with_no_write_more(
    cluster: Api, proxy: FaultProxy, tmp_path: Path
) -> None:
    before = len(written(cluster))
    deaths = 0

    def one_life(cut: str) -> bool:
        """Run until the first write kills it, before or after the server has done it; False for no write."""
        child, log = launch(cluster, tmp_path, config=proxy.kubeconfig())
        first = len(proxy.writes) + 1

        def decide(asked: Asked) -> Fault | None:
            return Fault(cut=cut, then=child.kill) if asked.number == first else None

        proxy.decide = decide
        until(lambda: child.poll() is not None or _idle(log), "its first write, or none", log=log)
        died = child.poll() is not None
        stop(child)
        # as if it had run out
        cluster.request("DELETE", LEASE)
        return died

    while one_life("before"):
        assert one_life("after")
        deaths += 2
    assert settled(cluster)
    made = written(cluster)[before:]
    # what a run that nobody disturbs writes, each once
    assert max(Counter(made).values()) == 1
    assert deaths > 20
    found = objects(cluster)
    with operator(cluster, tmp_path) as log:
        until(lambda: _idle(log), "nothing to do", log=log)
    assert objects(cluster) == found


def _idle(log: Path) -> bool:
    """Whether it leads, has decided with all that registries say, and had nothing to write."""
    return (
        metric(log, "gpu_operator_reconciliation_status") in (0, 1)
        and metric(log, "driverforge_operator_waiting_images") == 0
        and not metric(log, "gpu_operator_reconciliation_total")
    )


def test_a_leader_that_was_stopped_does_no_harm_when_it_goes_on(
    cluster: Api, proxy: FaultProxy, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        first, log = launch(cluster, tmp_path, config=proxy.kubeconfig())
        stack.callback(stop, first)
        stack.callback(first.send_signal, signal.SIGCONT)

        # it stops in the middle of its work, its third write on the way
        def freeze(asked: Asked) -> Fault | None:
            stops = asked.number == 3
            return Fault(cut="before", then=lambda: first.send_signal(signal.SIGSTOP)) if stops else None

        proxy.decide = freeze
        until(lambda: len(proxy.writes) == 3, "the leader stops", log=log)
        with _second(cluster, tmp_path) as (second, other):
            until(lambda: settled(cluster), "the other one goes on", log=other)
            merge(cluster, DRIVER, {"spec": {"version": "580.126.09"}})
            until(lambda: all("126.09" in one for one in _images(cluster)), "the new version", log=other)
            wrote = len(proxy.writes)
            first.send_signal(signal.SIGCONT)
            until(lambda: page(log, "/readyz")[0] == 200, "the first is back", log=log)
            until(lambda: metric(log, "driverforge_operator_leader") == 0, "it does not lead", log=log)
            add_node(cluster, "op-later", os_id="ubuntu", version="22.04")
            until(lambda: _labelled(cluster, "op-later"), "a node is labelled", log=other)
            assert len(proxy.writes) == wrote
            assert all("126.09" in one for one in _images(cluster))
            stop(second)
        add_node(cluster, "op-last", os_id="ubuntu", version="22.04")
        until(lambda: _labelled(cluster, "op-last"), "the first leads again", log=log)


@contextmanager
def _second(api: Api, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    child, log = launch(api, folder, name="second")
    try:
        yield child, log
    finally:
        stop(child)


def _images(api: Api) -> list[str]:
    items = api.request("GET", DAEMONSETS).body["items"]
    return [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in items]


def _labelled(api: Api, name: str) -> bool:
    labels = api.request("GET", f"/api/v1/nodes/{name}").body["metadata"].get("labels", {})
    return nodekeys.GPU_PRESENT in labels


def test_no_write_begins_when_the_lease_cannot_be_renewed(
    cluster: Api, proxy: FaultProxy, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path, config=proxy.kubeconfig()) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        proxy.decide = lambda asked: Fault(status=500) if "/leases/" in asked.path else None
        until(lambda: metric(log, "driverforge_operator_leader") == 0, "it does not lead", log=log)
        wrote = len(proxy.writes)
        add_node(cluster, "op-later", os_id="ubuntu", version="22.04")
        until(lambda: metric(log, "driverforge_operator_queue") == 0, "it has heard", log=log)
        assert len(proxy.writes) == wrote
        proxy.decide = lambda asked: None
        until(lambda: _labelled(cluster, "op-later"), "a node is labelled", log=log)


def test_while_nvidias_operator_is_there_nothing_is_written(cluster: Api, tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/component": "gpu-operator"}
    container = {"name": "gpu-operator", "image": "nvcr.io/nvidia/gpu-operator:v26.7.0"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu-operator", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
    spec = {"driver": {"useNvidiaDriverCRD": True}}
    for part in ("operator", "daemonsets", "dcgm", "dcgmExporter", "devicePlugin", "gfd", "toolkit"):
        spec[part] = {}
    spec["nodeStatusExporter"] = {}
    for one in (deployment, {**policy, "spec": spec}):
        answer = cluster.apply(json.dumps(one))
        assert answer.ok, answer.message
    theirs = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": ""}
    theirs["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    merge(cluster, f"{CLUSTER_POLICY}/status", {"status": {"state": "ready", "conditions": [theirs]}})
    before = len(written(cluster))

    def conditions() -> dict[str, str]:
        found = cluster.request("GET", CLUSTER_POLICY).body["status"]["conditions"]
        return {one["type"]: one["message"] for one in found}

    try:
        with operator(cluster, tmp_path) as log:
            until(lambda: "StandingDown" in conditions(), "it stands down", log=log)
            assert "Deployment gpu-operator/gpu-operator" in conditions()["StandingDown"]
            assert "Ready" in conditions()
            assert "stands down" in page(log, "/readyz")[1]
            assert written(cluster)[before:] == ["patch clusterpolicies cluster-policy status"]
            assert cluster.request("DELETE", f"{DEPLOYMENTS}/gpu-operator").ok
            until(lambda: settled(cluster), "it takes over", log=log)
    finally:
        for path in (f"{DEPLOYMENTS}/gpu-operator", CLUSTER_POLICY):
            cluster.request("DELETE", path)


def test_a_lease_of_nvidias_operator_counts_until_nobody_renews_it(cluster: Api, tmp_path: Path) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "53822513.nvidia.com", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "gpu-operator-1", "leaseDurationSeconds": 4},
    }
    assert cluster.apply(json.dumps(lease)).ok
    with operator(cluster, tmp_path) as log:
        until(lambda: metric(log, "driverforge_operator_standing_down") == 1, "it stands down", log=log)
        assert not cluster.request("GET", DAEMONSETS).body["items"]
        until(lambda: settled(cluster), "the lease ran out", log=log)
    assert cluster.request("DELETE", LEASE.replace("driverforge-operator", "53822513.nvidia.com")).ok


def test_of_two_operators_the_younger_one_writes_nothing_and_names_the_other(
    cluster: Api, tmp_path: Path
) -> None:
    older = LEASE.replace(NAMESPACE, "default")
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 30}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "driverforge-operator", "namespace": "default"},
        "spec": spec,
    }
    assert cluster.apply(json.dumps(lease)).ok
    before = len(written(cluster))
    try:
        with operator(cluster, tmp_path) as log:
            until(lambda: metric(log, "driverforge_operator_standing_down") == 1, "it stands down", log=log)
            assert "runs in namespace default" in page(log, "/readyz")[1]
            assert "runs in namespace default" in " ".join(_told(cluster, "StandingDown"))
            assert written(cluster)[before:] == []
            assert cluster.request("DELETE", older).ok
            until(lambda: settled(cluster), "it goes on", log=log)
    finally:
        cluster.request("DELETE", older)


def _told(api: Api, reason: str) -> list[str]:
    found = api.request("GET", "/api/v1/namespaces/default/events").body["items"]
    return [one["message"] for one in found if one["reason"] == reason]


def test_a_value_that_the_server_writes_in_its_own_way_is_written_once(cluster: Api, tmp_path: Path) -> None:
    cluster.request("DELETE", DRIVER)
    add_driver(cluster, "fleet", default=True, resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}})
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        before = len(written(cluster))
        for name in ("op-one", "op-two"):
            # a new pool each, so that all objects are looked at
            add_node(cluster, name, os_id="ubuntu", version=f"24.{len(name)}{name[-1] == 'o':d}")
            until(lambda name=name: _labelled(cluster, name), name, log=log)  # type: ignore[misc]
        until(lambda: len(_images(cluster)) == 4, "two pools more", log=log)
        made = Counter(written(cluster)[before:])
    assert _cpu(cluster) == {"1"}
    assert not [one for one, count in made.items() if one.startswith("patch daemonsets") and count > 1]
    assert sum(one.startswith("patch daemonsets") for one in made) == 2


def _cpu(api: Api) -> set[str]:
    items = api.request("GET", DAEMONSETS).body["items"]
    pods = [one["spec"]["template"]["spec"] for one in items]
    return {
        container["resources"]["limits"]["cpu"]
        for pod in pods
        for container in pod["containers"]
        if container.get("resources")
    }


def test_pages_say_how_it_is_and_the_lease_is_given_back_on_sigterm(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path, "--lease", "600") as log:
        until(lambda: settled(cluster), "drivers", log=log)
        until(lambda: metric(log, "gpu_operator_gpu_nodes_total") == 2, "nodes are counted", log=log)
        assert page(log, "/healthz") == (200, "ok\n")
        assert page(log, "/readyz") == (200, "ok\n")
        assert page(log, "/nothing")[0] == 404
        text = page(log, "/metrics")[1]
        assert cluster.request("GET", LEASE).body["spec"]["holderIdentity"]
    assert "gpu_operator_reconciliation_has_nfd_labels 1" in text
    assert 'driverforge_operator_requests_total{code="200",kind="nodes",verb="patch"} 2' in text
    assert "op-ubuntu" not in text
    assert not cluster.request("GET", LEASE).body["spec"].get("holderIdentity")


def test_an_event_tells_where_a_reason_changes_once(cluster: Api, tmp_path: Path) -> None:
    def events() -> list[tuple[str, str, int]]:
        found = cluster.request("GET", "/api/v1/namespaces/default/events").body["items"]
        told = [one for one in found if one["involvedObject"].get("name") == "other"]
        return [(one["type"], one["reason"], one["count"]) for one in told]

    add_driver(cluster, "other", default=True)
    with operator(cluster, tmp_path) as log:
        until(lambda: bool(events()), "an event", log=log)
        add_node(cluster, "op-later", os_id="ubuntu", version="22.04")
        until(lambda: _labelled(cluster, "op-later"), "a node is labelled", log=log)
    assert events() == [("Warning", "ConflictingNodeSelector", 1)]
