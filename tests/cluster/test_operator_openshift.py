"""The recorded cases with OpenShift, on an API server that has its kinds and their objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_operator.state.kinds import KIND_OF
from driverforge_operator.state.openshift import CLUSTER_VERSION, DRIVER_TOOLKIT, OPENSHIFT, PROXY
from support.cluster.kubernetes import Api
from support.cluster.operator import DAEMONSETS, add_driver, ground, metric, operator
from support.process import until
from support.samples.operatorcases import case_input, result

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

CONSTRAINTS = KIND_OF["security.openshift.io/v1", "SecurityContextConstraints"]
KINDS = (*OPENSHIFT, CONSTRAINTS)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
AUTHORITIES = "/api/v1/namespaces/gpu-operator/configmaps/gpu-operator-trusted-ca"
LIMIT = 60  # seconds


def definition(kind: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # a group that is OpenShift's own may be used with this alone
            "annotations": {"api-approved.kubernetes.io": "unapproved, test"},
        },
        "spec": {
            "group": kind.group,
            "names": {"kind": kind.name, "plural": kind.plural},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": ANYTHING},
                }
            ],
        },
    }


def put(api: Api, kind: Any, **fields: Any) -> None:
    metadata = {"name": kind.only, **({"namespace": kind.namespace} if kind.namespace else {})}
    document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}
    answer = api.apply(json.dumps(document))
    assert answer.ok, answer.message


def served(api: Api, kind: Any) -> bool:
    try:
        return bool(api.collection(kind.api_version, kind.name, "default"))
    except LookupError:
        return False


@pytest.fixture
def openshift(api: Api) -> Iterator[Api]:
    """A cluster with OpenShift's kinds, and its version; images of the driver toolkit are the case's."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with ground(api):
        for kind in KINDS:
            answer = api.apply(json.dumps(definition(kind)))
            assert answer.ok, answer.message
        for kind in KINDS:
            until(lambda kind=kind: served(api, kind), kind.name, timeout=LIMIT)
        api.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift"}}))
        history = [{"state": "Partial", "version": "4.17.0"}, {"state": "Completed", "version": "4.16.21"}]
        put(api, CLUSTER_VERSION, status={"history": history})
        yield api
    for kind in KINDS:
        api.request("DELETE", f"{definitions}/{kind.plural}.{kind.group}")
    for kind in KINDS:
        until(lambda kind=kind: not served(api, kind), f"no {kind.name}", timeout=LIMIT)


def start(api: Api, case: str) -> None:
    given = case_input("nvidiadriver", case)
    tags = [
        {"name": name, "from": {"kind": "DockerImage", "name": image}}
        for name, image in {**(given.get("driverToolkitImages") or {}), "latest": "x"}.items()
    ]
    put(api, DRIVER_TOOLKIT, spec={"tags": tags})
    for one in given["nodes"]:
        labels = {key: value for key, value in one["Labels"].items() if key != nodekeys.DRIVER_OWNER}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"op-{one['Name']}", "labels": labels},
        }
        assert api.request("POST", "/api/v1/nodes", json.dumps(document)).ok
    add_driver(api, "fleet", **given["spec"], default=True)


def told(workload: dict[str, Any]) -> tuple[Any, ...]:
    """Of a driver's DaemonSet what OpenShift decides, and the digest, which counts all of it."""
    pod = workload["spec"]["template"]["spec"]
    values = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    return (
        pod["nodeSelector"].get(nodekeys.OSTREE_VERSION, ""),
        values["DRIVER_CONFIG_DIGEST"],
        values.get("OPENSHIFT_VERSION", ""),
        *(one["image"] for one in pod["containers"]),
    )


@pytest.mark.parametrize("case", ["openshift-dtk", "openshift-precompiled"])
def test_drivers_of_openshift_are_the_recorded_ones(openshift: Api, tmp_path: Path, case: str) -> None:
    start(openshift, case)
    wanted = sorted(told(one) for one in result("nvidiadriver", case, "daemonsets.yaml") if one)

    def made() -> list[tuple[Any, ...]]:
        return sorted(told(one) for one in openshift.request("GET", DAEMONSETS).body["items"])

    with operator(openshift, tmp_path) as log:
        until(lambda: made() == wanted, "the recorded drivers", log=log)
    constraints = openshift.request("GET", f"/apis/{CONSTRAINTS.api_version}/{CONSTRAINTS.plural}").body[
        "items"
    ]
    # one for each account
    accounts = {one["spec"]["template"]["spec"]["serviceAccountName"] for one in daemonsets(openshift)}
    assert {one["metadata"]["name"] for one in constraints} == accounts
    assert all(
        one["users"] == [f"system:serviceaccount:gpu-operator:{one['metadata']['name']}"]
        for one in constraints
    )


def daemonsets(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.request("GET", DAEMONSETS).body["items"]
    return found


def test_a_proxy_that_comes_later_and_the_certificates_that_openshift_writes(
    openshift: Api, tmp_path: Path
) -> None:
    start(openshift, "openshift-dtk")
    with operator(openshift, tmp_path) as log:
        until(lambda: len(daemonsets(openshift)) == 2, "drivers", log=log)
        put(openshift, PROXY, spec={"httpProxy": "http://proxy.example", "trustedCA": {"name": "user-ca"}})
        until(lambda: openshift.request("GET", AUTHORITIES).ok, "the ConfigMap", log=log)
        until(lambda: all(map(proxied, daemonsets(openshift))), "drivers use the proxy", log=log)
        change = json.dumps({"data": {"ca-bundle.crt": "CERTIFICATES"}})
        openshift.request("PATCH", AUTHORITIES, change, kind="application/merge-patch+json")
        rounds = metric(log, "gpu_operator_reconciliation_total")
        put(openshift, PROXY, spec={"httpProxy": "http://other.example", "trustedCA": {"name": "user-ca"}})
        until(lambda: metric(log, "gpu_operator_reconciliation_total") != rounds, "another round", log=log)
    assert openshift.request("GET", AUTHORITIES).body["data"] == {"ca-bundle.crt": "CERTIFICATES"}


def proxied(workload: dict[str, Any]) -> bool:
    variables = workload["spec"]["template"]["spec"]["containers"][0]["env"]
    return {"name": "HTTP_PROXY", "value": "http://proxy.example"} in variables
