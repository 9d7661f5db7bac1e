"""The node's standard-library client against a real API server."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_kube.address import Address, find
from driverforge_kube.apiserver import KubernetesClient
from support.cluster.kubernetes import OPERATOR, Api
from support.cluster.operator import add_node

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

NODE = "/api/v1/nodes/asked"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def server(api: Api, tmp_path: Path) -> KubernetesClient:
    """As in a pod: an account's folder and two variables."""
    (tmp_path / "ca.crt").write_bytes(api.certificate.read_bytes())
    (tmp_path / "token").write_text(f"{api.operator}\n")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    return KubernetesClient(find(environ, account=str(tmp_path)))


@pytest.fixture
def node(api: Api) -> Iterator[None]:
    add_node(api, "asked", os_id="ubuntu", version="22.04")
    yield
    api.request("DELETE", NODE)


@pytest.mark.usefixtures("node")
def test_a_node_is_read_and_its_label_changed(server: KubernetesClient) -> None:
    server.patch(NODE, {"metadata": {"labels": {"nvidia.com/gpu.deploy.driver": "pre-installed"}}})
    found = server.get(NODE)
    assert found
    assert found["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] == "pre-installed"
    assert "feature.node.kubernetes.io/system-os_release.ID" in found["metadata"]["labels"]


def test_what_is_not_there_is_none_to_read_and_nothing_to_delete(server: KubernetesClient) -> None:
    assert server.get("/api/v1/nodes/no-such") is None
    server.delete(f"{MAPS}/no-such")


def test_a_list_is_read_in_pages_and_by_label(api: Api, tmp_path: Path) -> None:
    server = KubernetesClient(_of_kubeconfig(api, tmp_path), page=2)
    for number in range(5):
        metadata = {"name": f"listed-{number}", "labels": {"kind": "listed", "odd": str(number % 2)}}
        server.create(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    try:
        names = [item["metadata"]["name"] for item in server.list(MAPS, labels="kind=listed")]
        assert names == [f"listed-{number}" for number in range(5)]
        odd = server.list(MAPS, labels="kind=listed,odd=1")
        assert [item["metadata"]["name"] for item in odd] == ["listed-1", "listed-3"]
    finally:
        for number in range(5):
            server.delete(f"{MAPS}/listed-{number}")
    assert list(server.list(MAPS, labels="kind=listed")) == []


def test_an_object_that_is_there_already_is_refused_in_the_servers_words(server: KubernetesClient) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice"}}
    server.create(MAPS, document)
    try:
        with pytest.raises(Unavailable, match="refuses POST") as caught:
            server.create(MAPS, document)
        assert 'configmaps \\"twice\\" already exists' in "\n".join(caught.value.details)
    finally:
        server.delete(f"{MAPS}/twice")


def test_an_answer_without_end_is_not_read(api: Api, tmp_path: Path) -> None:
    server = KubernetesClient(_of_kubeconfig(api, tmp_path), largest=100)
    with pytest.raises(Unavailable, match="larger than 100 bytes"):
        server.get("/api/v1/namespaces/default")


def test_a_token_is_read_for_each_request(server: KubernetesClient, tmp_path: Path) -> None:
    good = (tmp_path / "token").read_text()
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(NotPermitted, match="does not let us GET"):
        server.get(NODE)
    (tmp_path / "token").write_text(good)
    server.get(NODE)


def test_a_server_of_another_authority_is_not_trusted(api: Api, tmp_path: Path) -> None:
    stranger = replace(_of_kubeconfig(api, tmp_path), trust=ssl.create_default_context())
    with pytest.raises(TemporaryFailure, match="does not answer") as caught:
        KubernetesClient(stranger).get(NODE)
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.details[0]


def _of_kubeconfig(api: Api, folder: Path) -> Address:
    path = folder / "kubeconfig"
    path.write_text(api.kubeconfig(OPERATOR))
    return find({}, str(path))


def test_a_kubeconfig_as_json_says_where_and_who(api: Api, tmp_path: Path) -> None:
    assert KubernetesClient(_of_kubeconfig(api, tmp_path)).get("/api/v1/namespaces/default")


@pytest.mark.parametrize("text", ["apiVersion: v1\n", "{}", "[]", json.dumps({"current-context": "x"})])
def test_a_kubeconfig_of_another_form_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(InputError) as caught:
        find({}, str(tmp_path / "kubeconfig"))
    assert "-o json" in caught.value.resolution


def test_without_a_cluster_the_way_to_one_is_told() -> None:
    with pytest.raises(Unavailable) as caught:
        find({})
    assert "KUBECONFIG" in caught.value.resolution
