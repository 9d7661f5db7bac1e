"""The policy that holds a node's pods to their own node, on a real API server: what they tell of nodes.

test_chart_cluster.py has it for nodes and pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from support.cluster.kubernetes import Api
from support.cluster.operator import NAMESPACE, ROOT, add_node, ground, token
from support.process import until

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

ACCOUNT = "nvidia-gpu-feature-discovery"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
NODE_NAME = "nfd.node.kubernetes.io/node-name"
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io"},
    "spec": {
        "group": "nfd.k8s-sigs.io",
        "scope": "Namespaced",
        "names": {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def feature(name: str, node: str) -> str:
    document = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {NODE_NAME: node} if node else {}},
        "spec": {"labels": {"nvidia.com/gpu.count": "8"}},
    }
    return json.dumps(document)


@pytest.fixture
def discovery(api: Api) -> Iterator[Api]:
    """GPU Feature Discovery's token on the node op-own, with more rights than it has."""
    policy = ROOT / "charts/driverforge/kustomize/driverforge.yaml"
    documents = [one for one in yaml.safe_load_all(policy.read_text()) if "Admission" in one["kind"]]
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "discovery", "namespace": NAMESPACE},
        "spec": {
            "nodeName": "op-own",
            "serviceAccountName": ACCOUNT,
            "containers": [{"name": "c", "image": "x"}],
        },
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": PRIVILEGED},
    }
    with ground(api):
        add_node(api, "op-own", os_id="ubuntu", version="22.04")
        for one in (namespace, DEFINITION, account, binding, *documents):
            answer = api.apply(json.dumps(one))
            assert answer.ok, answer.message
        made = api.apply(json.dumps(pod))
        assert made.ok, made.message
        until(lambda: api.request("GET", FEATURES).ok, "NodeFeature is served")
        yield Api(port=api.port, certificate=api.certificate, token=token(api, ACCOUNT, made.body))
        for one in (DEFINITION, account, binding, *documents):
            metadata = one["metadata"]
            collection = api.collection(one["apiVersion"], one["kind"], metadata.get("namespace", ""))
            api.request("DELETE", f"{collection}/{metadata['name']}")


def test_features_of_another_node_are_not_told(api: Api, discovery: Api) -> None:
    def refused(name: str, node: str) -> str:
        answer = discovery.request("POST", f"{FEATURES}?dryRun=All", feature(name, node))
        return "" if answer.ok else str(answer.message)

    # a policy counts a moment after it was made
    until(lambda: 'not nodefeatures a of node "op-other"' in refused("a", "op-other"), "the policy")
    assert 'of node ""' in refused("a", "")
    assert api.request("POST", FEATURES, feature("other", "op-other")).ok
    own = f"{FEATURES}/own"
    assert discovery.request("POST", FEATURES, feature("own", "op-own")).ok

    def changed(path: str, node: str) -> str:
        body = json.dumps({"metadata": {"labels": {NODE_NAME: node}}, "spec": {"labels": {"a": node}}})
        answer = discovery.request("PATCH", path, body, kind="application/merge-patch+json")
        return "" if answer.ok else str(answer.message)

    assert changed(own, "op-own") == ""
    assert "to another node" in changed(own, "op-other")
    # nor are another node's taken away
    assert 'of node "op-other"' in changed(f"{FEATURES}/other", "op-own")
    assert 'of node "op-other"' in discovery.request("DELETE", f"{FEATURES}/other").message
    assert discovery.request("DELETE", own).ok
