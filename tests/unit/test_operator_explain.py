"""`explain NODE`: the gate that is closed, the container, its last log line, the cause, what helps.

The messages are those of public reports; the issue is named where it is NVIDIA/gpu-operator's.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomllib

from driverforge_core import nodekeys
from driverforge_core.errors import InputError, NotPermitted
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gate import Gate, GateState
from driverforge_operator.explain.gates import closed
from driverforge_operator.explain.sentence import document, sentence, table
from driverforge_operator.ports import Log
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
EXITED = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}, "restartCount": 7}


def shut(scene: SceneFolder, folder: Path) -> tuple[Gate, Finding]:
    """The closed gate of the scene's node, through the folder of a dump."""
    _, gates = explain(Dump(scene.write(folder)), NAMESPACE, NODE)
    gate = closed(gates)
    assert gate is not None
    assert gate.finding is not None
    return gate, gate.finding


def crash(component: str, container: str, log: str) -> SceneFolder:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold(component, container, CRASHED, **EXITED)
    scene.log(component, container, log, previous=True)
    return scene


def test_a_ready_node_has_no_closed_gate(tmp_path: Path) -> None:
    _, gates = explain(Dump(SceneFolder().write(tmp_path)), NAMESPACE, NODE)
    assert {gate.name: gate.state for gate in gates} == dict.fromkeys(
        (gate.name for gate in gates), GateState.OPEN
    )
    assert sentence(NODE, gates) == "Node gpu-0 is ready: every gate is open."


def test_the_sentence_names_gate_container_log_line_cause_and_command(tmp_path: Path) -> None:
    scene = crash(
        "driver",
        "nvidia-driver-ctr",
        "modprobe nvidia\nmodprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n\n",
    )
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert sentence(NODE, gates) == (
        "Node gpu-0 is not ready because the gate 'driver pod' is closed on container nvidia-driver-ctr of "
        "pod gpu-operator/nvidia-driver-daemonset-x7k2p: CrashLoopBackOff, exited 1 after 7 restarts; its "
        "log ends with \"modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\"; "
        "likely cause: Secure Boot: the kernel does not accept the modules' signature [secure-boot]; try: "
        "driverforge build --select 'ubuntu22.04-amd64-595.91.07-jit' --registry nvcr.io/nvidia --push "
        "--sign-certificate FILE --sign-key FILE  # a key of mokutil --list-enrolled"
    )


def test_gates_below_a_closed_one_wait(tmp_path: Path) -> None:
    scene = crash("driver", "nvidia-driver-ctr", "")
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    states = [gate.state.name for gate in gates]
    assert states == ["OPEN"] * 4 + ["CLOSED"] + ["WAITS"] * 5 + ["OPEN"]
    assert table(NODE, gates, ()).splitlines()[5].split()[:3] == ["driver", "pod", "CLOSED"]


def failing_toolkit() -> SceneFolder:
    """Between two restarts, when no probe tells that it will fail again."""
    scene = SceneFolder()
    [toolkit] = scene.pod("container-toolkit")["status"]["containerStatuses"]
    toolkit.update(EXITED)
    error = "error: no NVIDIA driver libraries found"
    scene.log("container-toolkit", toolkit["name"], f"{error}\n", previous=True)
    return scene


@pytest.mark.parametrize(
    ("check", "state"),
    [
        ("driver-validation", {"waiting": {"reason": "PodInitializing"}}),  # no runtime handler yet
        ("toolkit-validation", {"waiting": {"reason": "CrashLoopBackOff"}}),
    ],
)
def test_a_toolkit_that_runs_again_after_an_error_is_named_until_it_is_validated(
    tmp_path: Path, check: str, state: dict[str, Any]
) -> None:
    scene = failing_toolkit()
    scene.hold("operator-validator", check, state)
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.what) == ("toolkit", "runs again after 7 restarts, and failed before")
    assert finding.last == "error: no NVIDIA driver libraries found"


def test_a_toolkit_that_recovered_is_not_blamed_for_what_comes_after_it(tmp_path: Path) -> None:
    scene = failing_toolkit()
    scene.hold("operator-validator", "cuda-validation", CRASHED, **EXITED)
    assert shut(scene, tmp_path)[0].name == "validator"


@pytest.mark.parametrize("validator", ["ready", "false"])
def test_a_toolkit_that_recovered_is_well_where_no_validator_waits_for_it(
    tmp_path: Path, validator: str
) -> None:
    scene = failing_toolkit()
    if validator == "false":
        scene.node["metadata"]["labels"][f"{nodekeys.DEPLOY}operator-validator"] = "false"
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None


def test_a_toolkit_that_runs_again_is_named_where_its_kubelet_forgot_how_it_ended(tmp_path: Path) -> None:
    scene = failing_toolkit()
    [toolkit] = scene.pod("container-toolkit")["status"]["containerStatuses"]
    toolkit["lastState"] = {}
    scene.hold("operator-validator", "driver-validation", {"waiting": {"reason": "PodInitializing"}})
    assert shut(scene, tmp_path)[0].name == "toolkit"


def test_a_toolkit_that_a_reboot_ended_did_not_fail(tmp_path: Path) -> None:
    scene = failing_toolkit()
    [toolkit] = scene.pod("container-toolkit")["status"]["containerStatuses"]
    toolkit["lastState"] = {"terminated": {"exitCode": 255, "reason": "Unknown"}}
    scene.hold("operator-validator", "toolkit-validation", CRASHED, **EXITED)
    assert shut(scene, tmp_path)[0].name == "validator"


PULLS = [
    (  # 1212
        (
            'Failed to pull image "nvcr.io/nvidia/driver:550.90.07-debian12": rpc error: code = NotFound '
            "desc = "
            'failed to pull and unpack image "nvcr.io/nvidia/driver:550.90.07-debian12": failed to resolve '
            'reference "nvcr.io/nvidia/driver:550.90.07-debian12": nvcr.io/nvidia/driver:550.90.07-debian12: '
            "not found"
        ),
        "image-missing",
    ),
    (  # 170, docker
        (
            'Failed to pull image "nvcr.io/nvidia/driver:460.32.03-amzn2": rpc error: code = Unknown desc '
            "= Error "
            "response from daemon: manifest for nvcr.io/nvidia/driver:460.32.03-amzn2 not found: manifest "
            "unknown: manifest unknown"
        ),
        "image-missing",
    ),
    (  # 332
        (
            'Failed to pull image "nvcr.io/nvidia/driver:510.47.03-ubuntu18.04": failed to do request: Head '
            '"https://nvcr.io/nvidia/driver/manifests/510.47.03-ubuntu18.04": dial tcp: lookup nvcr.io: '
            "no such host"
        ),
        "registry-unreachable",
    ),
    (
        (
            'Failed to pull image "r.example/driver:1": failed to resolve reference: unexpected status '
            "from HEAD "
            "request to https://r.example/v2/driver/manifests/1: 401 Unauthorized"
        ),
        "pull-denied",
    ),
    (
        'Failed to pull image "r.example/driver:1": no match for platform in manifest: not found',
        "image-architecture",
    ),
]


@pytest.mark.parametrize(("message", "cause"), PULLS)
def test_an_image_that_cannot_be_pulled(tmp_path: Path, message: str, cause: str) -> None:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold("driver", "nvidia-driver-ctr", {"waiting": {"reason": "ImagePullBackOff"}})
    scene.warn("Pod", "nvidia-driver-daemonset-x7k2p", "Failed", message)
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", cause)
    assert finding.evidence == (f"Failed: {message}",)


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("nvcr.io/nvidia/mine:595.91.07-ubuntu22.04", "ubuntu22.04-amd64-595.91.07-jit"),
        ("r:5000/a:580-6.8.0-60-generic-ubuntu24.04", "ubuntu24.04-amd64-580.*-6.8.0-60-generic"),
        ("r/mine:latest", "CELL"),
    ],
)
def test_a_missing_image_names_what_builds_it(tmp_path: Path, image: str, command: str) -> None:
    scene = SceneFolder()
    (container,) = scene.pod("driver")["spec"]["containers"]
    container["image"] = image
    scene.hold(
        "driver", "nvidia-driver-ctr", {"waiting": {"reason": "ErrImagePull", "message": "image not found"}}
    )
    assert shut(scene, tmp_path)[1].command == f"driverforge build --select '{command}'"


def test_a_missing_image_names_the_nodes_own_kernel(tmp_path: Path) -> None:
    """A tag has no '+'."""
    scene = SceneFolder()
    scene.node["status"]["nodeInfo"]["kernelVersion"] = "5.15.109+"
    (container,) = scene.pod("driver")["spec"]["containers"]
    container["image"] = "r:5000/mine:580-5.15.109_-ubuntu22.04"
    scene.hold(
        "driver", "nvidia-driver-ctr", {"waiting": {"reason": "ErrImagePull", "message": "image not found"}}
    )
    command = "driverforge build --select 'ubuntu22.04-amd64-580.*-5.15.109+'"
    assert shut(scene, tmp_path)[1].command == command


LOGS = [
    # 2166, and its driver manager's of earlier years
    (
        "k8s-driver-manager",
        "level=error msg=Unable to cleanup driver modules, attempting again",
        "driver-held",
    ),
    ("nvidia-driver-ctr", "Could not unload NVIDIA driver kernel modules, driver is in use", "driver-held"),
    ("nvidia-driver-ctr", "error: the NVIDIA driver 580.178.04 is in use", "driver-held"),
    (
        "k8s-driver-manager",
        "level=info msg=Waiting for MOFED to be installed...",
        "mofed",
    ),  # k8s-driver-manager 123
    ("nvidia-driver-ctr", "Could not resolve Linux kernel version", "kernel-headers"),  # 85, 155, 205
    (  # 583
        "nvidia-driver-ctr",
        "make[1]: *** /lib/modules/5.15.0-60-generic/build: No such file or directory.  Stop.",
        "kernel-headers",
    ),
    (  # 266
        "nvidia-driver-ctr",
        (
            "ERROR: The kernel module failed to load, because it was not signed by a key that is trusted "
            "by the "
            "kernel."
        ),
        "secure-boot",
    ),
    ("nvidia-driver-ctr", "Loading of unsigned module is rejected", "secure-boot"),  # 1726
    (
        "nvidia-driver-ctr",
        "error: every NVIDIA GPU on this node belongs to another driver: nouveau",
        "nouveau",
    ),
    (  # 1390: these words name nouveau for whatever went wrong
        "nvidia-driver-ctr",
        (
            "ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when this "
            "kernel "
            "module was built against the wrong or improperly configured kernel sources, with a version "
            "of gcc "
            "that differs from the one used to build the target kernel, or if another driver, such as "
            "nouveau, "
            "is present and prevents the NVIDIA kernel module from obtaining ownership of the NVIDIA GPU(s)"
        ),
        "unable-to-load",
    ),
    ("nvidia-driver-ctr", "something that nobody has seen before", "unknown"),
]


@pytest.mark.parametrize(("container", "log", "cause"), LOGS)
def test_what_a_drivers_log_says(tmp_path: Path, container: str, log: str, cause: str) -> None:
    gate, finding = shut(crash("driver", container, f"a line before\n{log}\n"), tmp_path)
    assert (gate.name, finding.cause, finding.last) == ("driver pod", cause, log)


def test_a_driver_that_compiles_is_no_failure_of_the_pod(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold("driver", "nvidia-driver-ctr", {"running": {}})
    scene.log("driver", "nvidia-driver-ctr", "Building kernel modules\n")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause, finding.last) == ("driver ready", "starting", "Building kernel modules")


def test_a_toolkit_that_still_waits_for_a_ready_driver(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.hold("container-toolkit", "driver-validation", {"running": {}})
    scene.log("container-toolkit", "driver-validation", "command failed, retrying after 5 seconds")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("toolkit", "stuck-init")


def test_a_runtime_without_the_handler(tmp_path: Path) -> None:
    scene = SceneFolder()  # 413
    scene.hold("operator-validator", "driver-validation", {"waiting": {"reason": "PodInitializing"}})
    scene.warn(
        "Pod",
        "nvidia-operator-validator-x7k2p",
        "FailedCreatePodSandBox",
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: "
        'no runtime for "nvidia" is configured',
    )
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("validator", "runtime-without-nvidia")


@pytest.mark.parametrize("state", ["running", "terminated"])
@pytest.mark.parametrize(
    ("event", "holds"), [("2026-11-23T23:41:10Z", False), ("2026-11-23T23:43:10Z", True)]
)
def test_a_sandbox_that_could_not_be_made_before_a_container_ran_is_past(
    tmp_path: Path, state: str, event: str, *, holds: bool
) -> None:
    # containerd is restarted for the toolkit's change while the validator's pod waits for its handler
    scene = SceneFolder()
    began = {state: {"startedAt": "2026-11-23T23:42:10Z", **({"exitCode": 1} if state != "running" else {})}}
    scene.hold("operator-validator", "toolkit-validation", began)
    scene.warn(
        "Pod",
        "nvidia-operator-validator-x7k2p",
        "FailedCreatePodSandBox",
        'failed to get sandbox runtime: no runtime for "nvidia" is configured',
        when=event,
    )
    _, finding = shut(scene, tmp_path)
    assert (finding.cause == "runtime-without-nvidia") is holds
    assert any("FailedCreatePodSandBox" in line for line in finding.evidence) is holds


def test_a_validator_that_waits_for_capacity_is_not_to_blame(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.hold("operator-validator", "plugin-validation", {"running": {}})
    scene.hold("device-plugin", "nvidia-device-plugin", CRASHED, **EXITED)
    scene.log(
        "device-plugin", "nvidia-device-plugin", "Failed to initialize NVML: Unknown Error", previous=True
    )
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("device plugin", "nvml-lost")


def test_a_validator_that_waits_for_capacity_in_vain_is_told_with_its_container(tmp_path: Path) -> None:
    scene = _relabelled(**{f"{nodekeys.DEPLOY}device-plugin": "false"})
    scene.hold("operator-validator", "plugin-validation", {"running": {}})
    scene.node["status"].update(capacity={}, allocatable={})
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert "is closed on container plugin-validation of pod" in sentence(NODE, gates)


def test_a_plugin_that_registered_nothing(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.hold("operator-validator", "plugin-validation", {"running": {}})
    scene.node["status"].update(capacity={}, allocatable={})
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("capacity", "not-registered")
    scene.node["status"].update(capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "0"})
    assert shut(scene, tmp_path)[1].cause == "gpus-unhealthy"


@pytest.mark.parametrize("count", ["1k", "2k", "1500"])
def test_a_kubelet_writes_a_thousand_shared_gpus_in_its_own_way(tmp_path: Path, count: str) -> None:
    scene = SceneFolder()
    scene.node["status"].update(capacity={"nvidia.com/gpu": count}, allocatable={"nvidia.com/gpu": count})
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None
    scene.node["status"]["allocatable"] = {"nvidia.com/gpu": "0"}
    assert shut(scene, tmp_path / "broken")[1].cause == "gpus-unhealthy"


def test_an_untolerated_taint_and_the_list_that_stands_it(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["spec"]["taints"] = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "team", "value": "ml", "effect": "NoSchedule"},
    ]
    del scene.pods["nvidia-driver-daemonset"]
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "taint")
    assert (
        finding.what == "DaemonSet nvidia-driver-daemonset does not stand the node's taint team=ml:NoSchedule"
    )
    head, _, patch = finding.command.partition(" -p ")
    assert head == "kubectl patch clusterpolicy cluster-policy --type=merge"
    # a list is replaced as a whole: the old ones have to be in it
    assert json.loads(patch.strip("'"))["spec"]["daemonsets"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists", "effect": "NoSchedule"},
    ]


def _relabelled(**labels: str | None) -> SceneFolder:
    scene = SceneFolder()
    for key, value in labels.items():
        if value is None:
            del scene.node["metadata"]["labels"][key]
        else:
            scene.node["metadata"]["labels"][key] = value
    return scene


def test_labels_that_stayed_paused(tmp_path: Path) -> None:
    key = f"{nodekeys.DEPLOY}device-plugin"  # 316, 2833
    scene = _relabelled(**{key: "paused-for-driver-upgrade"})
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "labels-paused")
    assert finding.command == f"kubectl label node gpu-0 --overwrite {key}=true"
    # while the driver manager is at it, its own trouble is what counts
    scene.hold("driver", "k8s-driver-manager", {"running": {}})
    scene.log("driver", "k8s-driver-manager", "Waiting for MOFED to be installed...")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "mofed")


def test_labels_that_are_missing(tmp_path: Path) -> None:
    feature = "feature.node.kubernetes.io/pci-10de.present"
    assert shut(_relabelled(**{feature: None}), tmp_path)[1].cause == "no-gpu"
    bare = SceneFolder()
    bare.node["metadata"]["labels"] = {}
    gate, finding = shut(bare, tmp_path)
    assert (gate.name, finding.cause) == ("NFD labels", "nfd-missing")
    bare.node["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    assert "does not stand a taint" in shut(bare, tmp_path)[1].told
    gate, finding = shut(_relabelled(**{nodekeys.GPU_PRESENT: None}), tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "operator-down")
    gate, finding = shut(_relabelled(**{nodekeys.OPERANDS: "false"}), tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "switched-off")


def test_a_worker_of_node_feature_discovery_that_crashes(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["metadata"]["labels"] = {}
    worker: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-operator-node-feature-discovery-worker-2f7hq", "namespace": "nfd"},
        "spec": {"nodeName": NODE, "containers": [{"name": "worker", "image": "nfd:1"}]},
        "status": {"containerStatuses": [{"name": "worker", "state": CRASHED, **EXITED}]},
    }
    scene.others.append(worker)
    gate, finding = shut(scene, tmp_path)
    assert gate.name == "NFD labels"
    assert finding.blocked is not None
    assert finding.blocked.log == Log(
        namespace="nfd", pod=worker["metadata"]["name"], container="worker", previous=True
    )


def test_pods_that_the_api_server_refuses(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    assert shut(scene, tmp_path)[1].cause == "no-pod-yet"
    scene.warn(
        "DaemonSet",
        "nvidia-driver-daemonset",
        "FailedCreate",
        'Error creating: pods "nvidia-driver-daemonset-hxf84" is forbidden: violates PodSecurity '
        '"baseline:latest": host namespaces (hostPID=true), privileged (container "nvidia-driver-ctr" '
        "must not "
        "set securityContext.privileged=true)",
    )
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "psa"
    assert finding.command.startswith("kubectl label namespace gpu-operator ")


def test_a_pod_that_waits_for_another_driver_to_go(tmp_path: Path) -> None:
    scene = SceneFolder()  # 1049, 2255
    pod = scene.pod("driver")
    del pod["spec"]["nodeName"]
    fields = [{"key": "metadata.name", "operator": "In", "values": [NODE]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod["spec"]["affinity"] = {"nodeAffinity": {required: terms}}
    told = "0/9 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    pod["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": told}
        ],
    }
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "other-driver-pod")
    assert finding.evidence == (f"Unschedulable: {told}",)


def test_a_node_with_labels_is_not_ready_where_nothing_is_asked_for(tmp_path: Path) -> None:
    """Its labels stay when the last custom resource goes."""
    scene = SceneFolder()
    scene.node["status"].update(capacity={}, allocatable={})
    scene.policy = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}
    scene.daemonsets, scene.pods = {}, {}
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "not-asked")
    assert finding.what == "nothing asks for operands"


@pytest.mark.parametrize("by_resource", [False, True])
def test_an_nvidiadriver_asks_for_a_driver_only_where_it_decides(
    tmp_path: Path, *, by_resource: bool
) -> None:
    """It has no switch of its own: with a ClusterPolicy that does not say so it is disabled."""
    scene = SceneFolder()
    scene.policy["spec"]["driver"] = {"enabled": False, "useNvidiaDriverCRD": by_resource}
    metadata = {"name": "default", "uid": "driver"}
    scene.others.append({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": metadata})
    del scene.pods["nvidia-driver-daemonset"]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    (gate,) = [one for one in gates if one.name == "driver pod"]
    assert ("no custom resource asks for it" in gate.told) is not by_resource


def test_no_daemonset_for_this_node(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.KERNEL] = "5.15.0-99-generic"
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "not-selected")
    assert "=5.15.0-99-generic, and the node has 5.15.0-131-generic" in finding.what
    # nothing at all: what the custom resource says counts
    del scene.daemonsets["nvidia-driver-daemonset"]
    assert shut(scene, tmp_path)[1].cause == "operator-down"


BUILD = "driverforge build --select 'ubuntu22.04-amd64-595.1-jit' --registry r --push"
MISSING = f"ubuntu22.04: no registry has r/driver:595.1-ubuntu22.04 for amd64: {BUILD}"
NO_CONFIG = "ubuntu22.04: ConfigMap a is not there"
NVD = "nvidia.com/v1alpha1"


def undeployed() -> SceneFolder:
    """The first roll-out of a driver: its DaemonSet is not there yet."""
    scene = SceneFolder()
    scene.wait_behind_driver()
    del scene.pods["nvidia-driver-daemonset"], scene.daemonsets["nvidia-driver-daemonset"]
    return scene


def says(reason: str, message: str, *pools: dict[str, str]) -> dict[str, Any]:
    """A status with an error."""
    error = {"type": "Error", "status": "True", "reason": reason, "message": message}
    return {"state": "notReady", "conditions": [error], "pools": list(pools)}


def pool(
    reason: str, message: str = "", *, system: str = "ubuntu22.04", arch: str = "amd64", kernel: str = ""
) -> dict[str, str]:
    """A pool as a status shows it; without a reason its objects are there."""
    found = {"name": "pool", "os": system, "arch": arch, "kernel": kernel, "reason": reason}
    return {**found, "message": message.removeprefix(f"{system}: ")}


def nvidia_driver(name: str, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name}
    return {"apiVersion": NVD, "kind": "NVIDIADriver", "metadata": metadata, "spec": spec, "status": status}


HELD = pool("ImageMissing", MISSING)


@pytest.mark.parametrize(
    ("reason", "message", "told", "command"),
    [
        (
            "ImageMissing",
            MISSING,
            "no registry has r/driver:595.1-ubuntu22.04 for amd64 [image-missing]",
            BUILD,
        ),
        (
            "ConfigurationMissing",
            "ubuntu22.04: ConfigMap repos is not there",
            "ConfigMap repos is not there [configuration-missing]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
        (
            "InvalidSpec",
            "spec.driver.version: Input should be a valid string",
            "spec.driver.version: Input should be a valid string [invalid-spec]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
        (
            "ReconcileFailed",
            "Failed to reconcile state-driver: DaemonSet a/b: no; room: none",
            "Failed to reconcile state-driver: DaemonSet a/b: no; room: none [reconcile-failed]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
    ],
)
def test_the_operators_own_answer_is_what_the_sentence_says(
    tmp_path: Path, reason: str, message: str, told: str, command: str
) -> None:
    scene = undeployed()
    scene.policy["status"] = says(
        reason, message, *([pool(reason, message)] if message[:6] == "ubuntu" else ())
    )
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert sentence(NODE, gates) == (
        "Node gpu-0 is not ready because the gate 'driver pod' is closed: no DaemonSet brings the driver; "
        f"likely cause: the operator says of ClusterPolicy cluster-policy: {told}; try: {command}"
    )
    found = document(NODE, gates, ())["finding"]
    assert found is not None
    assert (found["command"], found["evidence"]) == (
        command,
        [f"ClusterPolicy cluster-policy: {reason}: {message}"],
    )


def test_a_page_of_the_servers_words_is_cut_for_people_alone(tmp_path: Path) -> None:
    scene = undeployed()
    scene.policy["status"] = says("ReconcileFailed", "no " * 500)
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert len(sentence(NODE, gates)) < 600
    found = document(NODE, gates, ())["finding"]
    assert found is not None
    assert "no " * 500 in found["told"]


def test_what_is_wrong_with_other_resources_is_no_answer(tmp_path: Path) -> None:
    scene = undeployed()
    younger = copy.deepcopy(scene.policy)
    younger["metadata"] |= {"name": "younger", "creationTimestamp": "2026-01-01T00:00:00Z"}
    younger["status"] = says("Ignored", "cluster-policy is older")
    scene.others += [younger, nvidia_driver("fleet", says("Disabled", "the ClusterPolicy decides"))]
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.evidence) == ("operator-down", ())


def test_what_a_resource_says_that_is_ready_is_no_answer(tmp_path: Path) -> None:
    scene = undeployed()
    ready = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "rolled out"}
    scene.policy["status"] = {"state": "ready", "conditions": [ready]}
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.evidence) == ("operator-down", ())


@pytest.mark.parametrize("by", ["owner", "selector", "no selector", "default"])
def test_of_several_nvidiadrivers_the_one_that_claims_the_node_answers(tmp_path: Path, by: str) -> None:
    scene = undeployed()
    scene.policy["spec"]["driver"] = {"enabled": True, "useNvidiaDriverCRD": True}
    scene.policy["status"] = says("OperandNotReady", "states not ready: [state-operator-validation]")
    if by == "owner":
        scene.node["metadata"]["labels"][nodekeys.DRIVER_OWNER] = "mine"
    mine = {
        "owner": {"nodeSelector": {"pool": "was"}},
        "selector": {"nodeSelector": {nodekeys.OS_ID: "ubuntu"}},
        "no selector": {},
        "default": {"default": True},
    }[by]
    broken = says("InvalidSpec", "spec.version: of another")
    scene.others += [
        nvidia_driver("another", broken, nodeSelector={"pool": "b"}),
        nvidia_driver("mine", says("ImageMissing", MISSING, HELD), **mine),
        nvidia_driver(
            "spare", broken, **({"nodeSelector": {"a": "b"}} if by == "default" else {"default": True})
        ),
    ]
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.command) == ("image-missing", BUILD)
    assert finding.evidence == (f"NVIDIADriver mine: ImageMissing: {MISSING}",)


def test_a_driver_that_is_rolled_out_elsewhere_holds_nothing_back(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.policy["spec"]["driver"] = {"enabled": True, "useNvidiaDriverCRD": True}
    scene.others.append(nvidia_driver("fleet", says("DriverNotReady", "0 of 1 pods are ready"), default=True))
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.OS_ID] = "sles"
    assert shut(scene, tmp_path)[1].cause == "not-selected"


OTHERS = MISSING.replace("ubuntu22.04", "rocky9")
ELSEWHERE = pool("ImageMissing", OTHERS, system="rocky9")
ARM = MISSING.replace("amd64", "arm64")
HELD_ARM = pool("ImageMissing", ARM, arch="arm64")
KERNEL = "5.15.0-131-generic"


def of_kernel(kernel: str, text: str = MISSING) -> str:
    return text.replace("595.1", f"595-{kernel}")


def held_kernel(kernel: str) -> dict[str, str]:
    return pool("ImageMissing", of_kernel(kernel), kernel=kernel)


EITHER = f"{of_kernel(KERNEL)}; or, to compile on the node: {MISSING.partition(': ')[2]}"


def without_driver(*, others: bool) -> SceneFolder:
    """A node that has no driver DaemonSet, where there are some of other nodes or none."""
    if not others:
        return undeployed()
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.OS_ID] = "sles"
    return scene


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("message", "pools", "command"),
    [
        (f"{OTHERS}; {MISSING}", [ELSEWHERE, HELD], BUILD),
        (f"{ARM}; {MISSING}", [HELD_ARM, HELD], BUILD),
        (
            "; ".join(of_kernel(f"5.15.0-{number}-generic") for number in (9, 131, 99)),
            [held_kernel(f"5.15.0-{number}-generic") for number in (9, 131, 99)],
            of_kernel(KERNEL, BUILD),
        ),
        # pools that are there, and those of another reason, have no words in it
        (
            f"{ARM}; {MISSING}",
            [
                pool("", kernel=KERNEL, arch="arm64"),
                HELD_ARM,
                pool("ConfigurationMissing", "ConfigMap a is not there", arch="riscv64"),
                HELD,
            ],
            BUILD,
        ),
        # either image would do
        (
            EITHER,
            [pool("ImageMissing", EITHER, kernel=KERNEL)],
            of_kernel(KERNEL, BUILD),
        ),
        # what is rejected beside it does not hide it
        (f"Failed to reconcile state-dcgm: Service a/b: 403 no; {MISSING}", [HELD], BUILD),
    ],
)
def test_a_pool_that_is_held_back_is_told_with_its_own_command(
    tmp_path: Path, message: str, pools: list[dict[str, str]], command: str, *, others: bool
) -> None:
    scene = without_driver(others=others)
    reason = "ReconcileFailed" if message.startswith("Failed") else "ImageMissing"
    scene.policy["status"] = says(reason, message, *pools)
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.command) == ("image-missing", command)
    assert finding.told.startswith("the operator says of ClusterPolicy cluster-policy: no registry has")
    assert "state-dcgm" not in finding.told
    assert finding.evidence == (f"ClusterPolicy cluster-policy: {reason}: {message}",)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("reason", "message", "pools"),
    [
        ("ImageMissing", OTHERS, [ELSEWHERE, pool("")]),
        ("ImageMissing", ARM, [HELD_ARM, pool("NotRolledOut")]),
        (
            "ImageMissing",
            of_kernel("5.15.0-99-generic"),
            [pool("", kernel=KERNEL), held_kernel("5.15.0-99-generic")],
        ),
        # a status of before the node came
        ("ImageMissing", ARM, [HELD_ARM]),
        # of an operator that says nothing of pools
        ("ImageMissing", MISSING, []),
        ("ReconcileFailed", "Failed to reconcile state-dcgm: Service a/b: 403 no", []),
        ("ReconcileFailed", "Failed to reconcile labels of nodes: Node gpu-00 and Node b: 403 no", []),
        ("ReconcileFailed", f"Failed to reconcile state-dcgm: Service a/b: no; {OTHERS}", [ELSEWHERE]),
        # of a driver's spec that nodes of another system cannot have
        (
            "InvalidSpec",
            "rocky9: spec.version: no",
            [pool("InvalidSpec", "spec.version: no", system="rocky9")],
        ),
    ],
)
def test_what_is_wrong_elsewhere_is_shown_and_is_no_answer(
    tmp_path: Path, reason: str, message: str, pools: list[dict[str, str]], *, others: bool
) -> None:
    scene = without_driver(others=others)
    scene.policy["status"] = says(reason, message, *pools)
    _, finding = shut(scene, tmp_path)
    assert finding.cause == ("not-selected" if others else "operator-down")
    assert "driverforge build" not in finding.command
    assert f"ClusterPolicy cluster-policy: {reason}: {message}" in finding.evidence


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("told", "beside"),
    [
        ("Failed to reconcile state-driver: DaemonSet a/b: 403 no", "state-dcgm: Service a/b"),
        ("Failed to reconcile labels of nodes: Node a and Node gpu-0 and 3 more: 403 no", "state-dcgm: A b"),
    ],
)
def test_of_what_is_rejected_the_nodes_own_part_is_told(
    tmp_path: Path, told: str, beside: str, *, others: bool
) -> None:
    scene = without_driver(others=others)
    message = f"Failed to reconcile {beside}: 409 no; {told}"
    scene.policy["status"] = says("ReconcileFailed", message, pool(""))
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "reconcile-failed"
    assert finding.told == f"the operator says of ClusterPolicy cluster-policy: {told}"
    # and that, too, where an image is missing elsewhere, which is told behind it
    scene.policy["status"] = says("ReconcileFailed", f"{message}; {OTHERS}", ELSEWHERE)
    assert shut(scene, tmp_path)[1] == replace(
        finding, evidence=(f"ClusterPolicy cluster-policy: ReconcileFailed: {message}; {OTHERS}",)
    )


def test_a_held_pool_without_words_is_told_with_its_reason(tmp_path: Path) -> None:
    scene = undeployed()
    scene.policy["status"] = says(
        "ReconcileFailed", "Failed to reconcile state-driver: A b: no", pool("ImageMissing")
    )
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "image-missing"
    assert finding.told == "the operator says of ClusterPolicy cluster-policy: pool pool: ImageMissing"
    assert finding.command == "kubectl describe clusterpolicy cluster-policy"


def test_pods_that_are_waited_for_hold_no_daemonset_back(tmp_path: Path) -> None:
    scene = without_driver(others=True)
    scene.policy["status"] = says("OperandNotReady", "states not ready: [state-driver]", pool(""))
    assert shut(scene, tmp_path)[1].cause == "not-selected"
    # where there is none at all it is what is known
    scene = without_driver(others=False)
    compiles = f"rocky9: nodes compile, since {OTHERS.partition(': ')[2]}"
    elsewhere = pool("", compiles, system="rocky9")
    scene.policy["status"] = says(
        "OperandNotReady", f"states not ready: [state-driver]; {compiles}", elsewhere
    )
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.told.rpartition(": ")[2]) == ("operand-not-ready", "[state-driver]")
    assert finding.command == "kubectl describe clusterpolicy cluster-policy"


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (says("ImageMissing", MISSING, HELD), "operator-down"),
        (says("ConfigurationMissing", NO_CONFIG, pool("ConfigurationMissing", NO_CONFIG)), "operator-down"),
        (says("ReconcileFailed", "Failed to reconcile state-driver: DaemonSet a/b: no"), "operator-down"),
        (
            says("ReconcileFailed", "Failed to reconcile state-container-toolkit: DaemonSet a/b: no"),
            "reconcile-failed",
        ),
        (says("InvalidSpec", "spec.toolkit.image: no"), "invalid-spec"),
        (says("OperandNotReady", "states not ready: [state-container-toolkit]: a"), "operand-not-ready"),
    ],
)
def test_a_drivers_image_is_no_reason_for_a_missing_toolkit(
    tmp_path: Path, status: dict[str, Any], cause: str
) -> None:
    scene = SceneFolder()
    name = "nvidia-container-toolkit-daemonset"
    del scene.pods[name], scene.daemonsets[name]
    scene.policy["status"] = status
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("toolkit", cause)
    assert "driverforge build" not in finding.command
    (evidence,) = finding.evidence
    assert status["conditions"][0]["message"] in evidence


@pytest.mark.parametrize("policy", [True, False])
def test_labels_that_are_rejected_are_shown_with_the_servers_words(tmp_path: Path, *, policy: bool) -> None:
    scene = _relabelled(**{nodekeys.GPU_PRESENT: None})
    rejected = says("ReconcileFailed", "Failed to reconcile labels of nodes: Node gpu-0: 403 no right")
    if policy:
        scene.policy["status"] = rejected
    else:
        scene.policy = nvidia_driver("fleet", rejected, nodeSelector={"other": "nodes"})
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "operator-down")
    (line,) = finding.evidence
    assert line.endswith("ReconcileFailed: Failed to reconcile labels of nodes: Node gpu-0: 403 no right")


def test_switches_that_are_rejected_are_shown_with_the_servers_words(tmp_path: Path) -> None:
    scene = SceneFolder()
    switches = [key for key in scene.node["metadata"]["labels"] if key.startswith(nodekeys.DEPLOY)]
    scene = _relabelled(**dict.fromkeys(switches))
    scene.policy["status"] = says("ReconcileFailed", "Failed to reconcile labels of nodes: 403 no right")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "operator-down")
    (line,) = finding.evidence
    assert line.endswith("ReconcileFailed: Failed to reconcile labels of nodes: 403 no right")


def test_a_driver_of_the_host_is_no_closed_gate(tmp_path: Path) -> None:
    scene = _relabelled(**{f"{nodekeys.DEPLOY}driver": "pre-installed"})
    del scene.pods["nvidia-driver-daemonset"]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None
    assert [gate.name for gate in gates if gate.state is GateState.OFF] == ["driver pod", "driver ready"]


def test_a_node_for_virtual_machines_has_no_gates_of_containers(tmp_path: Path) -> None:
    scene = SceneFolder("sandbox-mixed-nodes")
    machines = [
        name
        for name, node in scene.nodes.items()
        if f"{nodekeys.DEPLOY}vfio-manager" in node["metadata"]["labels"]
    ]
    assert machines
    for name in machines:
        _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, name)
        states = {gate.name: gate.state for gate in gates}
        assert states["deploy labels"] is GateState.OPEN
        assert states["toolkit"] is states["validator"] is GateState.OFF


def test_a_node_that_is_not_ready_or_held_back(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["spec"] = {"taints": [{"key": "readiness.k8s.io/gpu", "effect": "NoSchedule"}]}
    assert shut(scene, tmp_path)[1].cause == "unready-taint"
    scene.node["spec"] = {"taints": [{"key": nodekeys.NOT_READY, "effect": "NoSchedule"}]}
    assert shut(scene, tmp_path)[1].cause == "ready-taint"
    scene.node["spec"] = {"unschedulable": True}
    assert shut(scene, tmp_path)[1].cause == "cordoned"
    told = "container runtime is down"
    scene.node["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": told}
    ]
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.evidence) == ("kubelet", (told,))


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no node gpu-9"):
        explain(Dump(SceneFolder().write(tmp_path)), NAMESPACE, "gpu-9")


def narrow(scene: SceneFolder, folder: Path, *plurals: str) -> Dump:
    """What a user sees who may not list these kinds."""

    class Narrow(Dump):
        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.plural in plurals:
                raise NotPermitted("the API server answers 403 Forbidden", details=[kind.plural])
            return super().everywhere(kind, fields=fields)

    return Narrow(scene.write(folder))


def test_a_node_that_may_not_be_read_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="nodes may not be read") as refused:
        explain(narrow(SceneFolder(), tmp_path, "nodes"), NAMESPACE, NODE)
    assert refused.value.details == ("nodes: the API server answers 403 Forbidden; nodes",)
    assert "kubectl auth can-i list nodes" in refused.value.resolution


RESOURCES = ("clusterpolicies", "nvidiadrivers")


@pytest.mark.parametrize("label", ["true", None])
def test_custom_resources_that_may_not_be_read_are_not_said_to_be_missing(
    tmp_path: Path, label: str | None
) -> None:
    scene = undeployed()
    scene.daemonsets, scene.pods = {}, {}
    if label is None:
        del scene.node["metadata"]["labels"][nodekeys.GPU_PRESENT]
    _, gates = explain(narrow(scene, tmp_path, *RESOURCES), NAMESPACE, NODE)
    (present,) = [one for one in gates if one.name == "gpu.present"]
    if label:
        assert (present.state, present.told) == (
            GateState.OPEN,
            "true; custom resources may not be read",
        )
        return
    assert present.state is GateState.CLOSED
    assert present.finding is not None
    assert present.finding.cause == "operator-down"
    assert present.finding.told.startswith("custom resources may not be read: ")


@pytest.mark.parametrize("hidden", [RESOURCES, RESOURCES[:1]])
def test_a_switch_asks_for_an_operand_where_custom_resources_may_not_be_read(
    tmp_path: Path, hidden: tuple[str, ...]
) -> None:
    _, gates = explain(narrow(undeployed(), tmp_path, *hidden), NAMESPACE, NODE)
    found = closed(gates)
    assert found is not None
    assert (found.name, found.told) == ("driver pod", "no DaemonSet brings the driver")


def test_a_policy_that_may_be_read_is_believed_of_its_operands(tmp_path: Path) -> None:
    """Whatever NVIDIADrivers say, which nobody may read here."""
    scene = undeployed()
    toolkit = "nvidia-container-toolkit-daemonset"
    del scene.pods[toolkit], scene.daemonsets[toolkit]
    scene.policy["spec"]["toolkit"] = {"enabled": False}
    states = []
    for by_resource in (False, True):
        scene.policy["spec"]["driver"] = {"enabled": False, "useNvidiaDriverCRD": by_resource}
        _, gates = explain(narrow(scene, tmp_path, "nvidiadrivers"), NAMESPACE, NODE)
        states.append({one.name: one.state for one in gates})
    assert [one["driver pod"] for one in states] == [GateState.OFF, GateState.CLOSED]
    assert [one["toolkit"] for one in states] == [GateState.OFF, GateState.OFF]


def test_kubectl_finds_it_as_a_plugin() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-driverforge"] == scripts["driverforge-operator"]


def test_what_a_user_may_not_read_is_told(tmp_path: Path) -> None:
    class Narrow(Dump):
        """A user of one namespace."""

        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.namespaced:
                raise NotPermitted("the API server answers 403 Forbidden", details=[kind.plural])
            return super().everywhere(kind, fields=fields)

    sight, gates = explain(Narrow(SceneFolder().write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None
    assert [one.partition(":")[0] for one in sight.unread] == [
        "pods of all namespaces",
        "daemonsets of all namespaces",
        "events of all namespaces",
    ]


def test_a_pod_that_goes_is_what_the_next_one_waits_for(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.pod("driver")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "pod-goes")
    name = f"{NAMESPACE}/nvidia-driver-daemonset-x7k2p"
    assert finding.what == f"pod {name} is to go since 2026-01-01T00:00:00Z, and is still there"


@pytest.mark.parametrize(
    ("machine", "component", "gate"),
    [
        ("gpu-1", "vfio-manager", "VM: vfio-manager"),
        ("gpu-1", "sandbox-device-plugin", "VM: sandbox-device-plugin"),
        ("gpu-2", "vgpu-manager", "VM: vgpu-manager"),
    ],
)
def test_what_virtual_machines_need_holds_their_node_up(
    tmp_path: Path, machine: str, component: str, gate: str
) -> None:
    scene = SceneFolder("sandbox-mixed-nodes")
    pods = scene.of_machines(machine)
    assert component in pods
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, machine)
    assert closed(gates) is None
    main = pods[component]["status"]["containerStatuses"][0]
    main.update(ready=False, started=False, state=CRASHED, **EXITED)
    pods[component]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, machine)
    shut_one = closed(gates)
    assert shut_one is not None
    assert shut_one.name == gate
    scene.others = [one for one in scene.others if one is not pods[component]]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, machine)
    shut_one = closed(gates)
    assert shut_one is not None
    assert (shut_one.name, shut_one.finding and shut_one.finding.cause) == (gate, "no-pod-yet")


def test_another_operand_with_the_same_switch_is_not_the_device_plugin(tmp_path: Path) -> None:
    scene = SceneFolder()
    mps = copy.deepcopy(scene.pod("device-plugin"))
    mps["metadata"] |= {"name": "mps", "creationTimestamp": "2026-01-01T00:00:00Z"}
    mps["spec"]["nodeSelector"]["nvidia.com/mps.capable"] = "true"
    mps["status"] = {"phase": "Pending"}
    scene.others.append(mps)
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "team", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
    ],
    ids=lambda one: one["key"],
)
def test_a_taint_that_keeps_no_pod_of_a_daemonset_away(tmp_path: Path, taint: dict[str, str]) -> None:
    scene = SceneFolder()
    scene.node["spec"]["taints"] = [taint]
    del scene.pods["nvidia-driver-daemonset"]
    assert shut(scene, tmp_path)[1].cause == "no-pod-yet"


def test_a_container_that_runs_again_has_its_own_log(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.hold("driver", "nvidia-driver-ctr", {"running": {}}, **EXITED)
    scene.log("driver", "nvidia-driver-ctr", "the life before", previous=True)
    scene.log("driver", "nvidia-driver-ctr", "this life")
    assert shut(scene, tmp_path)[1].last == "this life"
