"""A store that forgets while nobody listens: what is told no more is listed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_core import nodekeys
from support.cluster import kubernetes_build
from support.cluster.faultproxy import Asked, Fault, fault_proxy
from support.cluster.kubernetes import Api, api_server
from support.cluster.operator import (
    DAEMONSETS,
    DRIVER,
    NODES,
    add_node,
    merge,
    operator,
    settled,
    small_cluster,
)
from support.process import until
from support.skipping import provided

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Api]:
    """A server that answers watches from its store, not from its own memory."""
    programs = provided(kubernetes_build.programs)
    with api_server(programs, tmp_path, options=["--watch-cache=false"]) as api, small_cluster(api):
        yield api


def test_what_a_compaction_forgot_is_listed_again(forgetful: Api, tmp_path: Path) -> None:
    with fault_proxy(forgetful) as proxy, operator(forgetful, tmp_path, config=proxy.kubeconfig()) as log:
        until(lambda: settled(forgetful), "drivers", log=log)

        def deaf(asked: Asked) -> Fault | None:
            return Fault(status=500) if asked.watch else None

        proxy.decide = deaf
        proxy.drop()
        assert forgetful.request("DELETE", NODES[1]).ok
        merge(forgetful, DRIVER, {"spec": {"version": "580.126.09"}})
        add_node(forgetful, "op-later", os_id="ubuntu", version="24.04")
        forgetful.compact()
        proxy.decide = lambda _: None
        until(
            lambda: images(forgetful) == {"ubuntu22.04", "ubuntu24.04"},
            "what is so now",
            log=log,
            timeout=120,
        )
        assert "410" in log.read_text()
        labels = forgetful.request("GET", "/api/v1/nodes/op-later").body["metadata"]["labels"]
        assert labels[nodekeys.GPU_PRESENT] == "true"


def images(api: Api) -> set[str]:
    """The systems for which the new version is there."""
    found = api.request("GET", DAEMONSETS).body["items"]
    names = [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in found]
    return {name.rpartition("-")[2] if "580.126.09" in name else name for name in names}
