"""The operator's adapter against a real API server: pages, watches, and what a refusal means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.ports import Gone, Kind
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER, NODE, OURS, OURS_SELECTOR, name_of
from support.cluster.adapter import adapter
from support.cluster.kubernetes import Api
from support.cluster.operator import add_node, establish

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

NAMESPACE = "default"
NAMES = [f"api-{number}" for number in range(5)]
(CONFIGMAPS,) = (kind for kind in OURS if kind.name == "ConfigMap")
UNKNOWN: Kind[dict[str, Any]] = Kind(
    group="no.such", version="v1", name="Nothing", plural="nothings", namespaced=False, model=dict
)


@pytest.fixture
def server(api: Api) -> Iterator[ApiServer]:
    with adapter(api, NAMESPACE) as found:
        yield found


@pytest.fixture
def nodes(api: Api) -> Iterator[None]:
    for name in NAMES:
        add_node(api, name, os_id="ubuntu", version="22.04")
    yield
    for name in NAMES:
        api.request("DELETE", f"/api/v1/nodes/{name}")


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {MANAGED_BY: MANAGER}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.mark.usefixtures("nodes")
def test_a_list_comes_in_pages(server: ApiServer) -> None:
    pages = [[name_of(item) for item in page.items] for page in server.pages(NODE)]
    assert max(map(len, pages)) == 2
    assert set(NAMES) <= {name for page in pages for name in page}


@pytest.mark.usefixtures("nodes")
def test_a_watch_goes_on_where_the_list_ended(api: Api, server: ApiServer) -> None:
    *_, last = server.pages(NODE)
    assert api.request("DELETE", f"/api/v1/nodes/{NAMES[0]}").ok
    with closing(server.watch(NODE, last.version)) as events:
        event = next(events)
    assert event.item is not None
    assert (event.deleted, event.item.metadata.name) == (True, NAMES[0])
    assert int(event.version) > int(last.version)


def test_an_object_applied_twice_is_written_once(server: ApiServer) -> None:
    first = server.apply(CONFIGMAPS, config_map("twice", a="1"))
    assert server.apply(CONFIGMAPS, config_map("twice", a="1")) == first
    (found,) = [one for page in server.pages(CONFIGMAPS, labels=OURS_SELECTOR) for one in page.items]
    assert (found["apiVersion"], found["kind"], found["data"]) == ("v1", "ConfigMap", {"a": "1"})
    for _ in range(2):
        server.delete(CONFIGMAPS, "twice")
    assert [page.items for page in server.pages(CONFIGMAPS, labels=OURS_SELECTOR)] == [()]


@pytest.mark.parametrize("group", ["no.such", "nvidia.com"])
def test_a_kind_that_is_not_installed_has_no_objects(api: Api, server: ApiServer, group: str) -> None:
    establish(api)
    unknown = replace(UNKNOWN, group=group)
    assert [(page.items, page.served) for page in server.pages(unknown)] == [((), False)]


def test_a_part_of_kubernetes_that_is_not_there_is_a_failure(server: ApiServer) -> None:
    with pytest.raises(TemporaryFailure):
        list(server.pages(replace(UNKNOWN, group="apps")))


def test_a_node_that_is_gone_is_no_other_failure(server: ApiServer) -> None:
    with pytest.raises(Gone):
        server.patch(NODE, "nobody", {"metadata": {"labels": {"a": "b"}}})


def test_a_refusal_has_the_servers_own_words(api: Api, server: ApiServer) -> None:
    with pytest.raises(Unavailable) as refused:
        server.apply(CONFIGMAPS, config_map("Not A Name"))
    assert not isinstance(refused.value, TemporaryFailure)
    assert "Not A Name" in refused.value.details[0]
    with (
        adapter(api, NAMESPACE, user=next(iter(api.nodes))) as kubelet,
        pytest.raises(NotPermitted) as forbidden,
    ):
        kubelet.apply(CONFIGMAPS, config_map("theirs"))
    assert "cannot patch resource" in forbidden.value.details[0]
