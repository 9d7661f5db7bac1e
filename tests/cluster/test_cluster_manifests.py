"""docs/kubernetes/*.yaml given to a real API server, document by document, strictly."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.kubernetes import Answer, Api, documents

FOLDER = Path(__file__).parents[2] / "docs/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def applied(api: Api) -> Iterator[dict[str, list[Answer]]]:
    """Every document of every file, in the order of the file; file name -> answers.

    What would run on nodes goes again: other tests of this server have drivers of their own.
    """
    found = {file.name: [api.apply(document) for document in documents(file.read_text())] for file in FILES}
    yield found
    for one in (answer.body for answers in found.values() for answer in answers if answer.ok):
        if one["kind"] in ("DaemonSet", "Job"):
            path = api.collection(one["apiVersion"], one["kind"], one["metadata"]["namespace"])
            assert api.request("DELETE", f"{path}/{one['metadata']['name']}").ok


@pytest.fixture
def driver(applied: dict[str, list[Answer]]) -> dict[str, Any]:
    """The driver's DaemonSet as the server stores it, defaults filled in."""
    stored = [answer.body for answer in applied["driver.yaml"] if answer.body["kind"] == "DaemonSet"]
    assert len(stored) == 1
    return copy.deepcopy(stored[0])


def _manifest(kind: str) -> str:
    """The one document of this kind in driver.yaml."""
    (found,) = (
        text
        for text in documents((FOLDER / "driver.yaml").read_text())
        if yaml.safe_load(text)["kind"] == kind
    )
    return found


def _pod(driver: dict[str, Any], namespace: str) -> str:
    """The pod that the DaemonSet controller would make from the template."""
    template = driver["spec"]["template"]
    metadata = {
        "name": "nvidia-driver-x7k2p",
        "namespace": namespace,
        "labels": template["metadata"]["labels"],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_document_is_applied(applied: dict[str, list[Answer]], file: Path) -> None:
    answers = applied[file.name]
    assert answers
    assert [answer.message for answer in answers if not answer.ok] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_applying_again_changes_nothing(api: Api, applied: dict[str, list[Answer]], file: Path) -> None:
    again = [api.apply(document) for document in documents(file.read_text())]
    versions = [answer.body["metadata"]["resourceVersion"] for answer in applied[file.name]]
    assert [(answer.status, answer.body["metadata"]["resourceVersion"]) for answer in again] == [
        (200, version) for version in versions
    ]


def test_a_misspelt_field_is_refused(api: Api, driver: dict[str, Any]) -> None:
    answer = api.apply(_manifest("DaemonSet").replace("hostPID: true", "hostPid: true"), dry_run=True)
    assert not answer.ok
    assert ".spec.template.spec.hostPid: field not declared in schema" in answer.message


def test_a_repeated_field_is_refused(api: Api, driver: dict[str, Any]) -> None:
    answer = api.apply(
        _manifest("DaemonSet").replace("hostPID: true", "hostPID: true\n      hostPID: false"), dry_run=True
    )
    assert not answer.ok
    assert 'key "hostPID" already set in map' in answer.message


def test_the_pod_of_the_template_is_admitted(api: Api, driver: dict[str, Any]) -> None:
    """The server looks at priority class, service account and pod security when a pod is made.

    It does not when the pod's DaemonSet is.
    """
    answer = api.apply(_pod(driver, driver["metadata"]["namespace"]), dry_run=True)
    assert answer.status == 201, answer.message
    assert answer.body["spec"]["priority"] >= 2_000_000_000


def test_a_restricted_namespace_refuses_the_pod(api: Api, driver: dict[str, Any]) -> None:
    """So it is the label of our namespace that lets the driver in, where a cluster is strict by default."""
    namespace, account = yaml.safe_load(_manifest("Namespace")), yaml.safe_load(_manifest("ServiceAccount"))
    namespace["metadata"] = {"name": "unlabelled"}
    account["metadata"]["namespace"] = "unlabelled"
    assert [api.apply(json.dumps(manifest)).status for manifest in (namespace, account)] == [201, 201]
    answer = api.apply(_pod(driver, "unlabelled"), dry_run=True)
    assert answer.status == 403
    assert 'violates PodSecurity "restricted:latest"' in answer.message


def test_a_pod_with_an_unknown_service_account_is_refused(api: Api, driver: dict[str, Any]) -> None:
    driver["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"
    answer = api.apply(_pod(driver, driver["metadata"]["namespace"]), dry_run=True)
    assert answer.status == 403
    assert 'serviceaccount "nobody" not found' in answer.message


def test_a_kind_that_nobody_defined_is_an_error(api: Api) -> None:
    with pytest.raises(LookupError, match="no Nothing of"):
        api.apply(
            json.dumps(
                {
                    "apiVersion": "no.such/v1",
                    "kind": "Nothing",
                    "metadata": {"name": "cluster-policy"},
                }
            )
        )
