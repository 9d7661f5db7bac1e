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


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["daemonsets"],
    }
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": WORDS}],
    }
    binding = {"policyName": "no-daemonsets", "validationActions": ["Deny"]}
    policies, bindings = (
        f"{ADMISSION}/{plural}"
        for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    )
    with small_cluster(api) as found:
        try:
            assert found.request("POST", policies, _document("ValidatingAdmissionPolicy", policy)).ok
            assert found.request("POST", bindings, _document("ValidatingAdmissionPolicyBinding", binding)).ok
            until(lambda: _denies(found), "the policy counts")
            yield found
        finally:
            for path in (bindings, policies):
                found.request("DELETE", f"{path}/no-daemonsets")


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


def test_what_the_server_rejects_is_a_condition_until_it_takes_it(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: _error(cluster)[0] == "ReconcileFailed", "the condition", log=log)
        words = _error(cluster)[1]
        assert "Failed to reconcile state-driver: DaemonSet " in words
        assert "422 Invalid" in words
        assert WORDS in words
        assert metric(log, "gpu_operator_reconciliation_status") == -2
        cluster.request("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/no-daemonsets")
        until(lambda: settled(cluster), "drivers", timeout=120, log=log)
        until(lambda: _error(cluster)[0] == "DriverNotReady", "the condition goes", log=log)
        until(lambda: metric(log, "gpu_operator_reconciliation_status") == 0, "no write fails", log=log)
