"""The chart on a real API server: what it makes is accepted, what it allows is enough, and nothing stays."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from support.cluster.kubernetes import OPERATOR, Api
from support.cluster.operator import ROOT, add_node, establish, everything, forget, merge, token
from support.helm import IMAGE, NAMESPACE, Helm, with_chart
from support.process import Finished, run, start, stop, until
from support.skipping import provided
from support.upstream import helm as helm_program

# programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

ACCOUNT = "driverforge-operator"


@pytest.fixture
def helm(api: Api, tmp_path: Path) -> Helm:
    config = tmp_path / "kubeconfig"
    config.write_text(api.kubeconfig(OPERATOR))
    return with_chart(provided(helm_program.program), tmp_path, KUBECONFIG=str(config), NO_PROXY="127.0.0.1")


@pytest.fixture
def installed(api: Api, helm: Helm) -> Iterator[Helm]:
    """A release whose Deployment nobody runs, and whose hooks nobody runs either."""
    before = everything(api)
    helm(
        "install", "driverforge", str(helm.chart), "--namespace", NAMESPACE, "--create-namespace",
        "--no-hooks", "--force-conflicts", "--set", f"nfd.enabled=false,driverforge.image={IMAGE}",
        "--set", "driver.nvidiaDriverCRD.enabled=true",
    )  # fmt: skip
    yield helm
    helm("uninstall", "driverforge", "--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found")
    forget(api)
    assert everything(api) == before


def make_namespace(api: Api) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert api.apply(yaml.safe_dump(namespace)).ok


def as_account(api: Api, text: str, path: Path) -> Path:
    config = json.loads(api.kubeconfig(OPERATOR))
    config["users"][0]["user"] = {"token": text}
    path.write_text(json.dumps(config))
    return path


def operator(config: Path, *words: str) -> list[str]:
    return [
        "env",
        f"KUBECONFIG={config}",
        "NO_PROXY=127.0.0.1",
        f"PYTHONPATH={ROOT / 'entrypoints'}",
        sys.executable,
        "-m",
        "driverforge_operator",
        *words,
    ]


def finished(config: Path, *words: str) -> Finished:
    return run(*operator(config, *words), env=dict(os.environ))


def test_a_strict_server_takes_every_object(api: Api, helm: Helm) -> None:
    establish(api)
    made = helm.objects(
        "driver.nvidiaDriverCRD.enabled=true",
        "operator.cleanupCRD=true",
        "driverforge.env[0].name=NO_PROXY,driverforge.env[0].value=localhost",
        "driverforge.caConfigMap.name=site-authorities",
    )
    make_namespace(api)
    assert {"ClusterPolicy", "NVIDIADriver", "Deployment", "Job"} <= {one["kind"] for one in made}
    for one in made:
        answer = api.apply(yaml.safe_dump(one), dry_run=True)
        assert answer.ok, (one["kind"], answer.message)


def test_pods_of_the_chart_are_as_restricted_as_it_gets(api: Api, helm: Helm) -> None:
    # this server's namespaces are `restricted`
    needed = (
        {"kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}},
    )
    for one in needed:
        assert api.apply(yaml.safe_dump({"apiVersion": "v1", **one})).ok
    for one in helm.objects("operator.cleanupCRD=true"):
        if one["kind"] in ("Deployment", "Job"):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x", "namespace": NAMESPACE},
                # an account is looked for only where one is named
                "spec": {
                    key: value
                    for key, value in one["spec"]["template"]["spec"].items()
                    if key != "serviceAccountName"
                },
            }
            answer = api.apply(yaml.safe_dump(pod), dry_run=True)
            assert answer.ok, (one["metadata"]["name"], answer.message)
            (container,) = pod["spec"]["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default").ok


def test_its_account_may_do_what_the_operator_does(api: Api, installed: Helm, tmp_path: Path) -> None:
    add_node(api, "chart-0", os_id="ubuntu", version="22.04")
    config = as_account(api, token(api, ACCOUNT), tmp_path / "account")
    log = tmp_path / "operator.log"
    child = start(operator(config, "run", "--namespace", NAMESPACE, "--listen", "127.0.0.1:0"), log=log)
    try:
        until(partial(has_driver, api), "a DaemonSet", child=child, log=log)
    finally:
        stop(child)
    assert "may not" not in log.read_text()
    assert " 403 " not in log.read_text(), log.read_text()
    node = api.request("GET", "/api/v1/nodes/chart-0").body["metadata"]
    assert node["labels"]["nvidia.com/gpu.deploy.driver"] == "true"
    merge(api, "/api/v1/nodes/chart-0", {"metadata": {"labels": {"nvidia.com/gpu.deploy.dcgm": "false"}}})
    # as the hook does after the operator's end
    installed("uninstall", "driverforge", "--namespace", NAMESPACE, "--no-hooks")
    hook_rights(api, installed)
    try:
        said = finished(
            as_account(api, token(api, "driverforge-cleanup"), tmp_path / "hook"), "cleanup"
        ).stdout
    finally:
        remove_hook_rights(api)
    assert "deleted DaemonSet nvidia-gpu-driver-ubuntu22.04" in said
    assert "somebody else wrote it: nvidia.com/gpu.deploy.dcgm=false" in said
    node = api.request("GET", "/api/v1/nodes/chart-0").body["metadata"]
    assert [key for key in node["labels"] if key.startswith("nvidia.com/")] == ["nvidia.com/gpu.deploy.dcgm"]
    assert not [key for key in node.get("annotations", {}) if key.startswith("nvidia.com/")]
    api.request("DELETE", "/api/v1/nodes/chart-0")


def test_the_doctor_in_its_pod_finds_only_what_is_wrong(api: Api, installed: Helm, tmp_path: Path) -> None:
    """Its account may not list definitions: that they are missing is not said."""
    (deployment,) = [one["metadata"] for one in installed.objects() if one["kind"] == "Deployment"]
    config = as_account(api, token(api, ACCOUNT), tmp_path / "account")
    words = operator(config, "doctor", "--namespace", NAMESPACE, "--json")
    done = run(*words, env=dict(os.environ), check=False)
    assert done.status == 1, done.stderr
    said = json.loads(done.stdout)
    # nobody runs the Deployment's pods here
    assert [(one["where"], one["cause"]) for one in said["found"]] == [("operators", "operator-down")]
    assert said["found"][0]["what"] == f"Deployment {NAMESPACE}/{deployment['name']} has no running pod"
    assert any(one.startswith("customresourcedefinitions: ") for one in said["unread"])
    assert f"deploy/{deployment['name']} --" in (ROOT / "docs/operator-explain.md").read_text()


def test_its_account_reads_no_secret_of_another_namespace(api: Api, installed: Helm) -> None:
    account = Api(port=api.port, certificate=api.certificate, token=token(api, ACCOUNT))
    assert account.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets").ok
    for path in ("/api/v1/namespaces/default/secrets", "/api/v1/secrets"):
        assert account.request("GET", path).status == 403


def test_definitions_go_where_that_is_asked(api: Api, helm: Helm, tmp_path: Path) -> None:
    establish(api)
    make_namespace(api)
    driver = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "mine"}}
    assert api.apply(yaml.safe_dump({**driver, "spec": {"image": "driver"}})).ok
    hook_rights(api, helm, "driverforge-cleanup", "operator.cleanupCRD=true")
    config = as_account(api, token(api, "driverforge-cleanup"), tmp_path / "hook")
    assert "stays: NVIDIADriver mine" in finished(config, "cleanup").stdout
    said = finished(config, "cleanup", "--custom-resources").stdout
    remove_hook_rights(api)
    assert "deleted NVIDIADriver mine" in said
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    until(lambda: not api.request("GET", definitions).body["items"], "no definition")


def test_nvidias_operator_beside_it_is_told(api: Api, installed: Helm) -> None:
    labels = {"app.kubernetes.io/component": "gpu-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu-operator", "namespace": "default", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
    words = ("upgrade", "driverforge", str(installed.chart), "--namespace", NAMESPACE, "--reuse-values")
    assert "WARNING" not in installed(*words, "--no-hooks").stdout
    assert api.apply(yaml.safe_dump(theirs)).ok
    said = installed(*words, "--no-hooks").stdout
    api.request("DELETE", "/apis/apps/v1/namespaces/default/deployments/gpu-operator")
    assert "NVIDIA's gpu-operator runs in the namespace default" in said


def has_driver(api: Api) -> bool:
    found = api.request("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets").body["items"]
    return any(one["metadata"]["name"].startswith("nvidia-gpu-driver") for one in found)


def hook_rights(api: Api, helm: Helm, name: str = "driverforge-cleanup", *settings: str) -> None:
    """What Helm makes before a hook's Job."""
    for one in helm.objects(*settings):
        if one["metadata"]["name"] == name and one["kind"] != "Job":
            assert api.apply(yaml.safe_dump(one)).ok


def remove_hook_rights(api: Api, name: str = "driverforge-cleanup") -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for path in (
        f"{rbac}/clusterrolebindings",
        f"{rbac}/clusterroles",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    ):
        api.request("DELETE", f"{path}/{name}")


def test_an_upgrade_brings_the_definitions(api: Api, helm: Helm, tmp_path: Path) -> None:
    establish(api)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nvidiadrivers.nvidia.com"
    merge(api, path, {"spec": {"names": {"shortNames": ["old"]}}})
    name = "driverforge-upgrade-crds"
    make_namespace(api)
    hook_rights(api, helm, name)
    config = as_account(api, token(api, name), tmp_path / "hook")
    assert "applied nvidiadrivers.nvidia.com" in finished(config, "crds", "--apply").stdout
    remove_hook_rights(api, name)
    assert api.request("GET", path).body["spec"]["names"]["shortNames"] == ["nvd", "nvdriver", "nvdrivers"]


def test_resources_of_another_writer_are_taken_over(api: Api, helm: Helm) -> None:
    """As NVIDIA's chart leaves them."""
    establish(api)
    theirs = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": next(one["spec"] for one in helm.objects() if one["kind"] == "ClusterPolicy"),
    }
    theirs["spec"]["driver"]["version"] = "570.1"
    path = "/apis/nvidia.com/v1/clusterpolicies"
    assert api.request("POST", path, json.dumps(theirs)).ok
    helm(
        *("install", "driverforge", str(helm.chart), "--namespace", NAMESPACE, "--create-namespace"),
        *("--no-hooks", "--take-ownership", "--force-conflicts"),
        *("--set", f"nfd.enabled=false,driverforge.image={IMAGE}"),
    )
    found = api.request("GET", f"{path}/cluster-policy").body
    assert found["spec"]["driver"]["version"] == "595.91.07"
    helm("uninstall", "driverforge", "--namespace", NAMESPACE, "--no-hooks")
    api.request("DELETE", f"{path}/cluster-policy")


def test_a_nodes_pods_change_their_own_node_only(api: Api, installed: Helm, tmp_path: Path) -> None:
    for name in ("chart-1", "chart-2"):
        add_node(api, name, os_id="ubuntu", version="22.04")
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "nvidia-x", "namespace": NAMESPACE},
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "nvidia-x"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "nvidia-x", "namespace": NAMESPACE}],
    }
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    merge(api, f"/api/v1/namespaces/{NAMESPACE}", label)
    pods = {}
    # nobody makes it where no controllers run
    default = {**account, "metadata": {"name": "default", "namespace": NAMESPACE}}
    for one in (account, default, binding):
        assert api.apply(yaml.safe_dump(one)).ok
    for node in ("chart-1", "chart-2"):
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"on-{node}", "namespace": NAMESPACE},
            "spec": {
                "nodeName": node,
                "serviceAccountName": "nvidia-x",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "x"}],
            },
        }
        pods[node] = api.apply(yaml.safe_dump(document)).body
    theirs = Api(port=api.port, certificate=api.certificate, token=token(api, "nvidia-x", pods["chart-1"]))
    change = json.dumps({"metadata": {"labels": {"a": "b"}}})
    kind = "application/merge-patch+json"

    def refused() -> str:
        return theirs.request("PATCH", "/api/v1/nodes/chart-2", change, kind=kind).message

    # a policy counts a moment after it was made
    until(lambda: "may change that node" in refused(), "the policy")
    assert theirs.request("PATCH", "/api/v1/nodes/chart-1", change, kind=kind).ok
    base = f"/api/v1/namespaces/{NAMESPACE}/pods"
    answer = theirs.request("DELETE", f"{base}/on-chart-2")
    assert 'may change that node and its pods only, not pods on-chart-2 of node "chart-2"' in answer.message
    assert theirs.request("DELETE", f"{base}/on-chart-1").ok

    def made(node: str, account: str) -> str:
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "serviceAccountName": account}
        metadata = {"name": "made", "namespace": NAMESPACE}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        answer = theirs.request("POST", f"{base}?dryRun=All", json.dumps(document))
        return "" if answer.ok else str(answer.message)

    # what the validator makes, and what would be a way to other nodes or to the operator's rights
    assert [made("chart-1", "default"), made("chart-1", "nvidia-x")] == ["", ""]
    assert 'not pods made of node "chart-2"' in made("chart-2", "default")
    assert 'not pods made of node ""' in made("", "default")
    assert f"may make no pod with the account {ACCOUNT}" in made("chart-1", ACCOUNT)
    # a token that no pod has belongs to no node
    unbound = Api(port=api.port, certificate=api.certificate, token=token(api, "nvidia-x"))
    assert "may change" in unbound.request("PATCH", "/api/v1/nodes/chart-1", change, kind=kind).message
    for path in (
        f"{base}/on-chart-2",
        "/api/v1/nodes/chart-1",
        "/api/v1/nodes/chart-2",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nvidia-x",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nvidia-x",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default",
    ):
        assert api.request("DELETE", path).ok
