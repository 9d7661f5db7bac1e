"""`explain NODE`: the gate that is closed, the container, its last log line, the cause, what helps.

The messages are those of public reports; the issue is named where it is NVIDIA/gpu-operator's.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.gate import GateState
from driverforge_operator.explain.gates import closed
from driverforge_operator.explain.sentence import sentence, table
from support.samples.explained import CRASHED, EXITED, crash, relabelled, shut
from support.samples.scenes import NAMESPACE, NODE, SceneFolder


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
        "driverforge build --select 'ubuntu22.04-amd64-595.91.07-jit' --registry REGISTRY --push "
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
    scene = relabelled(**{f"{nodekeys.DEPLOY}device-plugin": "false"})
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
