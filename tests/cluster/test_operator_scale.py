"""The operator with many nodes and many resources, counted in requests: times are another machine's.

`hack/bench operator` measures sizes up to 5,000.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from driverforge_core import nodekeys
from driverforge_operator.state.kinds import NVIDIA_DRIVER
from support.cluster import kubernetes_build
from support.cluster.adapter import adapter
from support.cluster.kubernetes import Api, api_server
from support.cluster.operator import (
    NAMESPACE,
    NODES,
    add_driver,
    add_node,
    ground,
    merge,
    metric,
    operator,
    page,
    settled,
    small_cluster,
)
from support.process import until
from support.samples.operatorcases import driver_spec
from support.skipping import provided

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

sys.path.append(str(Path(__file__).parents[2] / "hack/lib"))
from bench.benchmarks.operator import POOLS, measure  # noqa: E402

MANY = 500
TEN_THOUSAND = 10_000
LIMIT = 350 << 20  # bytes: the chart's
DRIVERS = "/apis/nvidia.com/v1alpha1/nvidiadrivers"


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with small_cluster(api) as found:
        yield found


def test_what_is_asked_grows_with_the_nodes_and_one_node_costs_one_request() -> None:
    provided(kubernetes_build.programs)
    cost = measure(MANY, rest=5)
    assert cost.requests["patch nodes"] == MANY
    assert cost.requests["list nodes"] == 1
    assert cost.requests["patch daemonsets"] == POOLS
    # a list and a watch a kind, and what pools are made of, with an event each; before an object is made,
    # whether NVIDIA's operator made it
    assert cost.requests.total() <= MANY + 12 * POOLS + 30
    assert cost.at_rest == 0
    assert cost.one["added"] == {"patch nodes": 1}
    assert cost.one["changed"] == {"patch nodes": 1}
    assert not cost.one["deleted"]


def test_thousands_of_resources_that_claim_a_node_starve_nobody(cluster: Api, tmp_path: Path) -> None:
    many = 500
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_driver(cluster, f"claim-{number}", default=True), range(many)))
    with operator(cluster, tmp_path) as log:
        until(
            lambda: metric(log, "driverforge_operator_leader") == 1 and " status of " in log.read_text(),
            "it has begun",
            timeout=120,
            log=log,
        )
        add_node(cluster, "op-later", os_id="ubuntu", version="22.04")
        until(lambda: "label node op-later" in log.read_text(), "a node is labelled", log=log)
        # long before all was said
        assert log.read_text().count(" status of ") < many
        assert page(log, "/healthz")[0] == 200
    assert max(map(len, log.read_text().splitlines())) < 1000


@contextmanager
def crowded(folder: Path) -> Iterator[Api]:
    """A server of its own with 10,000 NVIDIADrivers, which nobody has to delete one by one.

    Half claim every node that has the label of theirs, the others one pool each.
    """
    folder.mkdir()
    with api_server(provided(kubernetes_build.programs), folder) as api, ground(api):
        spec = driver_spec("minimal")
        with adapter(api, NAMESPACE) as server:
            for number in range(TEN_THOUSAND):
                selector = {"crowd": "yes"} if number % 2 else {"pool": str(number)}
                document = {
                    "apiVersion": "nvidia.com/v1alpha1",
                    "kind": "NVIDIADriver",
                    "metadata": {"name": f"one-of-many-{number}"},
                    "spec": {**spec, "nodeSelector": selector},
                }
                server.create(NVIDIA_DRIVER, document)
        yield api


def select(api: Api, node: str, **labels: str | None) -> None:
    merge(api, f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


@pytest.mark.full(reason="makes 10,000 resources, a minute and more")
def test_ten_thousand_resources_starve_no_node(tmp_path: Path) -> None:
    with crowded(tmp_path / "server") as api:
        for name, label in (("op-torn", {"crowd": "yes"}), ("op-served", {"pool": "4242"})):
            add_node(api, name, os_id="ubuntu", version="22.04")
            select(api, name, **label)
        with operator(api, tmp_path, "--lease", "30") as log:

            def said(words: str) -> bool:
                return words in log.read_text()

            until(lambda: said("label node op-served"), "a node of one pool", timeout=300, log=log)
            until(lambda: said("apply DaemonSet"), "its driver", timeout=300, log=log)
            # in the middle of ten thousand statuses
            add_node(api, "op-later", os_id="ubuntu", version="22.04")
            select(api, "op-later", pool="8")
            until(lambda: said("label node op-later"), "a node that came later", timeout=300, log=log)
            select(api, "op-served", **{f"{nodekeys.DEPLOY}driver": None})
            until(lambda: log.read_text().count("label node op-served") > 1, "a label is back", log=log)
            assert log.read_text().count(" status of ") < TEN_THOUSAND
            assert page(log, "/healthz")[0] == 200
            torn = api.request("GET", "/api/v1/nodes/op-torn").body["metadata"]["labels"]
            assert nodekeys.DRIVER_OWNER not in torn
            memory = metric(log, "process_resident_memory_bytes")
            assert memory is not None
            assert memory < LIMIT
        assert max(map(len, log.read_text().splitlines())) < 1000


def test_an_object_as_large_as_it_may_be_is_one_of_many(cluster: Api, tmp_path: Path) -> None:
    large = {f"example.com/{number}": "ü" * 60_000 for number in range(2)}
    merge(cluster, NODES[0], {"metadata": {"annotations": large}})
    env = [{"name": f"V{number}", "value": "x" * 10_000} for number in range(100)]
    add_driver(cluster, "large", nodeSelector={"team": "red"}, env=env)
    with operator(cluster, tmp_path) as log:
        until(lambda: settled(cluster), "drivers", log=log)
        merge(cluster, NODES[1], {"metadata": {"labels": {"team": "red"}}})
        until(lambda: "op-rocky" in log.read_text(), "a node is labelled", log=log)
        assert page(log, "/healthz")[0] == 200
    refused = json.dumps({"metadata": {"labels": {"example.com/ä": "ü"}}})
    answer = cluster.request("PATCH", NODES[0], refused, kind="application/merge-patch+json")
    # such a label never gets as far as an operator
    assert not answer.ok
