"""`driverforge-operator` as a process against an API server, and what a test gives it to work on."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER, OURS, OURS_SELECTOR
from support.cluster.kubernetes import OPERATOR, Api
from support.process import start, stop, until
from support.samples.operatorcases import driver_spec

ROOT = Path(__file__).parents[3]
NAMESPACE = "gpu-operator"
COMMAND = (sys.executable, "-m", "driverforge_operator")
_FEATURE = "feature.node.kubernetes.io/"


def establish(api: Api) -> None:
    """Install the custom resource definitions, and wait until they are served."""
    for path in sorted((ROOT / "charts/driverforge/crds").glob("*.yaml")):
        answer = api.apply(path.read_text())
        assert answer.ok, answer.message
    for version, kind in (("nvidia.com/v1", "ClusterPolicy"), ("nvidia.com/v1alpha1", "NVIDIADriver")):
        until(partial(_served, api, version, kind), f"{kind} of {version}")


def _served(api: Api, version: str, kind: str) -> bool:
    """Whether objects of a kind are served, and discovery, which lags behind, says so."""
    try:
        return api.request("GET", api.collection(version, kind, "")).ok
    except LookupError:
        return False


def add_node(api: Api, name: str, *, os_id: str, version: str, gpu: bool = True) -> None:
    """A node as Node Feature Discovery labels it; no kubelet runs for it."""
    labels = node_labels(os_id=os_id, version=version, kernel="6.8.0-45-generic", gpu=gpu)
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    answer = api.request("POST", "/api/v1/nodes", json.dumps(document))
    assert answer.ok, answer.message


def node_labels(*, os_id: str, version: str, kernel: str, gpu: bool = True) -> dict[str, str]:
    """Node Feature Discovery's, as far as somebody reads them."""
    return {
        f"{_FEATURE}system-os_release.ID": os_id,
        f"{_FEATURE}system-os_release.VERSION_ID": version,
        f"{_FEATURE}system-os_release.VERSION_ID.major": version.partition(".")[0],
        f"{_FEATURE}kernel-version.full": kernel,
        **({f"{_FEATURE}pci-10de.present": "true"} if gpu else {}),
    }


def merge(api: Api, path: str, change: Mapping[str, Any]) -> None:
    """Patch an object."""
    answer = api.request("PATCH", path, json.dumps(change), kind="application/merge-patch+json")
    assert answer.ok, answer.message


DRIVER = "/apis/nvidia.com/v1alpha1/nvidiadrivers/fleet"
SIMULATED = "op-"
"""How the names of nodes begin that no kubelet runs for."""
NODES = ("/api/v1/nodes/op-ubuntu", "/api/v1/nodes/op-rocky", "/api/v1/nodes/op-plain")
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/driverforge-operator"


@contextmanager
def small_cluster(api: Api) -> Iterator[Api]:
    """Three nodes of two systems, one without a GPU, and an NVIDIADriver for all."""
    with ground(api):
        add_node(api, "op-ubuntu", os_id="ubuntu", version="22.04")
        add_node(api, "op-rocky", os_id="rocky", version="9.5")
        add_node(api, "op-plain", os_id="ubuntu", version="22.04", gpu=False)
        add_driver(api, "fleet", default=True)
        yield api


@contextmanager
def ground(api: Api) -> Iterator[None]:
    """Our definitions and our namespace, empty before and after, whatever a test left there."""
    establish(api)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert api.apply(json.dumps(namespace)).ok
    _clear(api)
    yield
    _clear(api)


def _clear(api: Api) -> None:
    """Delete resources, simulated nodes, pods, events and all that operators made."""
    for kind in (NVIDIA_DRIVER, CLUSTER_POLICY):
        api.request("DELETE", f"/apis/{kind.api_version}/{kind.plural}")
    for node in api.request("GET", "/api/v1/nodes").body["items"]:
        name = node["metadata"]["name"]
        if name.startswith(SIMULATED):
            api.request("DELETE", f"/api/v1/nodes/{name}")
    deployments = DAEMONSETS.replace("daemonsets", "deployments")
    for collection in (DAEMONSETS, deployments, "/api/v1/namespaces/default/events"):
        api.request("DELETE", collection)
    for pod in api.request("GET", PODS).body["items"]:
        api.request("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    api.request("DELETE", LEASE)
    forget(api)


def add_driver(api: Api, name: str, **spec: Any) -> None:
    """An NVIDIADriver with the few fields that it must have, and more."""
    document = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": {**driver_spec("minimal"), **spec},
    }
    answer = api.apply(json.dumps(document))
    assert answer.ok, answer.message


def settled(api: Api) -> bool:
    """Whether all that the small cluster wants is there."""
    status = api.request("GET", DRIVER).body.get("status", {})
    return len(api.request("GET", DAEMONSETS).body["items"]) == 2 and status.get("state") == "notReady"


def everything(api: Api) -> set[str]:
    """The names of all that a chart may leave behind."""
    kinds = (
        ("v1", "ServiceAccount"),
        ("v1", "Pod"),
        ("batch/v1", "Job"),
        ("coordination.k8s.io/v1", "Lease"),
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    )
    found = set()
    for version, kind in kinds:
        answer = api.request("GET", api.collection(version, kind, NAMESPACE))
        found |= {f"{kind} {one['metadata']['name']}" for one in answer.body["items"]}
    return found


def token(api: Api, account: str, pod: dict[str, Any] | None = None) -> str:
    """A token of a service account, bound to a pod as a kubelet asks for it."""
    bound = (
        {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        if pod
        else None
    )
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound} if bound else {},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    answer = api.request("POST", path, json.dumps(asked))
    assert answer.ok, answer.message
    return str(answer.body["status"]["token"])


def forget(api: Api) -> None:
    """Delete all that operators made, but labels of nodes."""
    for kind in OURS:
        namespace = f"namespaces/{NAMESPACE}/" if kind.namespaced else ""
        base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        answer = api.request("DELETE", f"{base}/{namespace}{kind.plural}?labelSelector={OURS_SELECTOR}")
        # a kind may not be served
        assert answer.ok or answer.status == 404, answer.message


@contextmanager
def operator(api: Api, folder: Path, *words: str, config: str = "") -> Iterator[Path]:
    """Run it until the block ends; yields its log."""
    child, log = launch(api, folder, *words, config=config)
    try:
        yield log
    finally:
        stop(child)


def launch(
    api: Api, folder: Path, *words: str, config: str = "", name: str = "operator"
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start it with more `words`, and maybe another kubeconfig than the API server's own.

    Its log and the port that it serves are those of `name`.
    """
    kubeconfig, log = folder / f"{name}.kubeconfig", folder / f"{name}.log"
    kubeconfig.write_text(config or api.kubeconfig(OPERATOR))
    argv = [*COMMAND, "run", "--namespace", NAMESPACE, "--listen", "127.0.0.1:0", "--lease", "3"]
    return start([*argv, *words], log=log, env=environment(kubeconfig)), log


def environment(kubeconfig: Path) -> dict[str, str]:
    """What `COMMAND` needs to work on the cluster of a kubeconfig."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(ROOT / "entrypoints"),
    }


def page(log: Path, path: str) -> tuple[int, str]:
    """Status and text of one of its pages; its log says where it serves."""
    served = re.findall(r"serving port=(\d+)", log.read_text())
    if not served:
        return 0, ""
    with closing(http.client.HTTPConnection("127.0.0.1", int(served[-1]), timeout=30)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (ConnectionError, http.client.HTTPException):
            # it has ended
            return 0, ""


def metric(log: Path, series: str) -> float | None:
    """A value of /metrics."""
    lines = page(log, "/metrics")[1].splitlines()
    return next((float(one.rpartition(" ")[2]) for one in lines if one.rpartition(" ")[0] == series), None)
