"""`driverforge-operator run` against a real API server: what it writes, how often, and that it is planned."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core import nodekeys
from support.cluster.kubernetes import OPERATOR, Api
from support.cluster.operator import (
    COMMAND,
    DAEMONSETS,
    DRIVER,
    NAMESPACE,
    NODES,
    add_driver,
    add_node,
    environment,
    merge,
    operator,
    settled,
    small_cluster,
)
from support.process import run, until
from support.samples.operatorcases import policy_spec

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

OTHER = "/apis/nvidia.com/v1alpha1/nvidiadrivers/other"
READS = ("get", "list", "watch")


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with small_cluster(api) as found:
        yield found


def daemonsets(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.request("GET", DAEMONSETS).body["items"]
    return found


def pod(api: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.request("GET", f"{DAEMONSETS}/{name}").body["spec"]["template"]["spec"]
    return found


def images(api: Api) -> set[str]:
    return {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in daemonsets(api)}


def labels(api: Api, path: str) -> dict[str, str]:
    found: dict[str, str] = api.request("GET", path).body["metadata"].get("labels", {})
    return found


def writes(api: Api) -> list[str]:
    """All but the lease, and events."""
    found = [one for one in api.requests() if not one.startswith(READS)]
    return [one for one in found if one.split()[1] not in ("leases", "events")]


def heard(api: Api, log: Path, name: str) -> None:
    """Wait until the operator has acted on something that was done last."""
    path = f"/api/v1/nodes/{name}"
    add_node(api, name, os_id="ubuntu", version="22.04")
    until(lambda: nodekeys.GPU_PRESENT in labels(api, path), f"{name} is labelled", log=log)


def test_drivers_and_labels_appear(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
    assert images(cluster) == {
        "nvcr.io/nvidia/driver:580.95.05-ubuntu22.04",
        "nvcr.io/nvidia/driver:580.95.05-rocky9",
    }
    ubuntu, rocky, plain = (labels(cluster, path) for path in NODES)
    for one in (ubuntu, rocky):
        assert one[nodekeys.DRIVER_OWNER] == "fleet"
        assert one[f"{nodekeys.DEPLOY}driver"] == "true"
    assert not [key for key in plain if key.startswith("nvidia.com/")]
    selector = daemonsets(cluster)[0]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector.items() <= ubuntu.items() or selector.items() <= rocky.items()


def test_nothing_is_written_where_nothing_changed(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
    before = writes(cluster)
    # another start finds everything as it shall be; a node of its own shows that it has looked
    with operator(cluster, tmp_path) as log:
        heard(cluster, log, "op-later")
        merge(cluster, f"{NODES[0]}/status", {"status": {"phase": "Running"}})
        heard(cluster, log, "op-last")
    assert writes(cluster)[len(before) :] == ["patch nodes op-later", "patch nodes op-last"]
    for name in ("op-later", "op-last"):
        cluster.request("DELETE", f"/api/v1/nodes/{name}")


def test_what_somebody_changed_is_put_right_once(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        name = daemonsets(cluster)[0]["metadata"]["name"]
        before = writes(cluster)
        template = {"spec": {"template": {"spec": {"hostPID": False}}}}
        merge(cluster, f"{DAEMONSETS}/{name}", template)
        until(lambda: "hostPID" in pod(cluster, name), "hostPID is back", log=log)
        merge(cluster, NODES[0], {"metadata": {"labels": {f"{nodekeys.DEPLOY}driver": None}}})
        until(lambda: f"{nodekeys.DEPLOY}driver" in labels(cluster, NODES[0]), "the label is back", log=log)
    assert writes(cluster)[len(before) :] == [f"patch daemonsets {name}", "patch nodes op-ubuntu"]


def test_a_node_that_goes_takes_its_pool_along(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        assert cluster.request("DELETE", NODES[1]).ok
        until(lambda: len(daemonsets(cluster)) == 1, "Rocky's driver goes", log=log)
    assert images(cluster) == {"nvcr.io/nvidia/driver:580.95.05-ubuntu22.04"}


def test_two_drivers_for_one_node_change_nothing_and_say_so(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        before = images(cluster)
        add_driver(cluster, "other", default=True)

        def told(path: str) -> str:
            status = cluster.request("GET", path).body.get("status", {})
            return " ".join(one["reason"] for one in status.get("conditions", ()))

        for path in (DRIVER, OTHER):
            until(lambda path=path: "ConflictingNodeSelector" in told(path), path, log=log)  # type: ignore[misc]
        assert images(cluster) == before
        assert cluster.request("DELETE", OTHER).ok
        until(lambda: "DriverNotReady" in told(DRIVER), "the conflict is over", log=log)


def test_plan_of_a_dump_is_what_run_does(cluster: Api, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    kinds = ("/api/v1/nodes", "/apis/nvidia.com/v1alpha1/nvidiadrivers")
    for number, path in enumerate(kinds):
        body = cluster.request("GET", path).body
        kind = body["kind"].removesuffix("List")
        items = [{"apiVersion": body["apiVersion"], "kind": kind, **one} for one in body["items"]]
        (dump / f"{number}.yaml").write_text(yaml.safe_dump({"kind": "List", "items": items}))
    program = ("driverforge_operator", "plan", "--namespace", NAMESPACE, "--from", str(dump))
    told = run(sys.executable, "-m", *program).stdout
    before = writes(cluster)
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
    done = [line.partition(" info ")[2] for line in log.read_text().splitlines()]
    assert len(writes(cluster)) - len(before) == len(told.splitlines())
    assert set(told.splitlines()) <= set(done)


def test_the_plan_of_a_snapshot_is_that_of_the_cluster(cluster: Api, tmp_path: Path) -> None:
    """With what pods use, which a snapshot has without its secrets, and kinds that the server lacks."""
    cluster.request("DELETE", DRIVER)
    spec = policy_spec("default")
    spec["driver"] |= {"repoConfig": {"configMapName": "repositories"}, "secretEnv": "variables"}
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
    metadata = {"namespace": NAMESPACE}
    lists, secret = {"a.list": "deb http://user:password@site"}, {"A": "c2VjcmV0"}
    for document in (
        {**policy, "spec": spec},
        {"kind": "ConfigMap", "metadata": {**metadata, "name": "repositories"}, "data": lists},
        {"kind": "Secret", "metadata": {**metadata, "name": "variables"}, "data": secret},
    ):
        answer = cluster.apply(json.dumps({"apiVersion": "v1", **document}))
        assert answer.ok, answer.message
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(cluster.kubeconfig(OPERATOR))

    def ask(*words: str) -> str:
        return run(*COMMAND, *words, "--namespace", NAMESPACE, env=environment(kubeconfig)).stdout

    ask("snapshot", str(tmp_path / "snapshot"))
    live = ask("plan", "--objects")
    assert "secretRef" in live
    assert ask("plan", "--objects", "--from", str(tmp_path / "snapshot")) == live
    texts = "".join(one.read_text() for one in (tmp_path / "snapshot").glob("*.yaml"))
    assert "c2VjcmV0" not in texts
    assert "password" not in texts
