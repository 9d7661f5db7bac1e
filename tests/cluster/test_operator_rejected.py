"""A cluster whose administrators let nobody make a DaemonSet: a person reads why where they look first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster.kubernetes import Api
from support.cluster.operator import DAEMONSETS, DRIVER, metric, operator, settled, small_cluster
from support.process import until

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WORDS = "no DaemonSet here: ask the platform team"


def _document(kind: str, spec: dict[str, Any]) -> str:
    metadata = {"name": "no-daemonsets"}
    version = "admissionregistration.k8s.io/v1"
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


RULE = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["daemonsets"],
}


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with small_cluster(api) as found:
        yield found


@pytest.fixture
def policy(cluster: Api) -> Iterator[str]:
    """The path of what makes a policy count that takes no DaemonSet."""
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": "false", "message": WORDS}],
    }
    binding = {"policyName": "no-daemonsets", "validationActions": ["Deny"]}
    policies, bindings = (
        f"{ADMISSION}/{plural}"
        for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    )
    try:
        assert cluster.request("POST", policies, _document("ValidatingAdmissionPolicy", policy)).ok
        assert cluster.request("POST", bindings, _document("ValidatingAdmissionPolicyBinding", binding)).ok
        until(lambda: _denies(cluster), "the policy counts")
        yield f"{bindings}/no-daemonsets"
    finally:
        for path in (bindings, policies):
            cluster.request("DELETE", f"{path}/no-daemonsets")


@pytest.fixture
def webhook(cluster: Api) -> Iterator[str]:
    """The path of a webhook that is asked about DaemonSets, and whose server is gone."""
    hook = {
        "name": "daemonsets.example.invalid",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [RULE],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    collection = f"{ADMISSION}/validatingwebhookconfigurations"
    document = json.loads(_document("ValidatingWebhookConfiguration", {}))
    try:
        assert cluster.request("POST", collection, json.dumps({**document, "webhooks": [hook]})).ok
        until(lambda: _denies(cluster), "the webhook counts")
        yield f"{collection}/no-daemonsets"
    finally:
        cluster.request("DELETE", f"{collection}/no-daemonsets")


def _denies(api: Api) -> bool:
    pod = {"containers": [{"name": "a", "image": "a.invalid/b"}]}
    labels = {"app": "probe"}
    document = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "probe"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    return not api.request("POST", f"{DAEMONSETS}?dryRun=All", json.dumps(document)).ok


def _error(api: Api) -> tuple[str, str]:
    conditions = api.request("GET", DRIVER).body.get("status", {}).get("conditions", ())
    found = [one for one in conditions if one["type"] == "Error"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def test_what_the_server_rejects_is_a_condition_until_it_takes_it(
    cluster: Api, policy: str, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: _error(cluster)[0] == "ReconcileFailed", "the condition", log=log)
        words = _error(cluster)[1]
        assert "Failed to reconcile state-driver: DaemonSet " in words
        assert "422 Invalid" in words
        assert WORDS in words
        assert metric(log, "gpu_operator_reconciliation_status") == -2
        cluster.request("DELETE", policy)
        until(lambda: settled(cluster), "drivers", timeout=120, log=log)
        until(lambda: _error(cluster)[0] == "DriverNotReady", "the condition goes", log=log)
        until(lambda: metric(log, "gpu_operator_reconciliation_status") == 0, "no write fails", log=log)


def test_a_webhook_whose_server_is_gone_is_a_condition_until_it_is_back(
    cluster: Api, webhook: str, tmp_path: Path
) -> None:
    """The API server calls that its own failure (500), which may end in a moment."""
    with operator(cluster, tmp_path) as log:
        until(lambda: _error(cluster)[0] == "ReconcileFailed", "the condition", timeout=180, log=log)
        assert "Failed to reconcile state-driver: DaemonSet " in _error(cluster)[1]
        assert 'failed calling webhook "daemonsets.example.invalid"' in _error(cluster)[1]
        cluster.request("DELETE", webhook)
        until(lambda: settled(cluster), "drivers", timeout=120, log=log)
        until(lambda: _error(cluster)[0] == "DriverNotReady", "the condition goes", log=log)
