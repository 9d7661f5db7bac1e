"""`nvidia-validator` on fakes of the ports and real files: what it looks at, writes, and says."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_core.errors import DriverforgeError, InputError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED, WORKLOAD
from driverforge_core.validations import CC_MANAGER, DRIVER_CONTAINER, FOLDER, WRITTEN, Component
from driverforge_host.ports import JsonObject, LoadedModule
from driverforge_toolkit.app.validation import LINKS, validate
from driverforge_toolkit.validate.check_table import CHECKS
from driverforge_toolkit.validate.container_checks import COUNT, libraries
from driverforge_toolkit.validate.context import Context
from driverforge_toolkit.validate.driver_check import OPERANDS_HERE
from driverforge_toolkit.validate.validator_settings import VARIABLES, parse
from support.fakes.fakecluster import FakeCluster
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.heard import heard
from support.samples.operatorcases import result

ROOT = "/run/nvidia/driver"
SMI_LINE = "GPU 0: a fake (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
NODE_PATH = "/api/v1/nodes/n1"
NAMESPACE = "gpu-operator"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass
class FakeCuda:
    """Devices that add, but for `wrong` sums."""

    devices: Sequence[str] = ("a fake GPU",)
    wrong: int | None = None  # index of a sum
    asked: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, libraries: Sequence[str]) -> FakeCuda:
        self.asked.append(libraries)
        return self

    def add_on_each(
        self, first: Sequence[float], second: Sequence[float]
    ) -> Iterator[tuple[str, list[float]]]:
        for name in self.devices:
            sums = [a + b for a, b in zip(first, second, strict=True)]
            if self.wrong is not None:
                sums[self.wrong] += 1
            yield name, sums


@dataclass
class Bench:
    node: FakeNode
    cluster: FakeCluster = field(default_factory=FakeCluster)
    cuda: FakeCuda = field(default_factory=FakeCuda)

    def context(self, component: str, **variables: str) -> Context:
        environ = {"COMPONENT": component, "NODE_NAME": "n1", **variables}
        return Context(
            host=self.node.host,
            settings=parse(environ, {}),
            cluster=lambda: self.cluster,
            cuda=self.cuda,
        )

    def validate(self, component: str, **variables: str) -> list[str]:
        """The names of the files that are there afterwards."""
        validate(self.context(component, **variables))
        return self.written()

    def written(self) -> list[str]:
        return [name for name in self.node.files.list_dir(FOLDER) if not name.startswith(".")]

    def refused(self, component: str, **variables: str) -> DriverforgeError:
        """The error of a check that fails; a failure leaves no file that says the opposite."""
        with pytest.raises(DriverforgeError) as caught:
            self.validate(component, **variables)
        assert f"{component}-ready" not in self.written()
        assert caught.value.details, "what was seen"
        assert caught.value.resolution, "the next step"
        return caught.value

    def put(self, path: str, text: str = "") -> None:
        self.node.files.make_dirs(path.rpartition("/")[0])
        self.node.files.write_atomic(path, text.encode())

    def load(self, *names: str) -> None:
        for name in names:
            self.node.kernel.loaded_modules[name] = LoadedModule(
                name=name, refcount=0, holders=(), version="580.65.06", state="Live"
            )
        self.node.kernel.show()

    def put_driver(self) -> None:
        """A driver's container has published its root, and its nvidia-smi works."""
        for name in ("usr/bin/nvidia-smi", "usr/lib64/libnvidia-ml.so.1"):
            self.put(f"{ROOT}/{name}")
        self.node.files.make_dirs(f"{ROOT}/dev")
        self.node.commands.programs[f"{ROOT}/usr/bin/nvidia-smi"] = lambda _: (0, SMI_LINE, "")
        self.load("nvidia", "nvidia_uvm")

    def put_node(self, *, labels: dict[str, str] | None = None, **capacity: str) -> None:
        names = {"gpu": "nvidia.com/gpu", "mig": "nvidia.com/mig-1g.10gb", "shared": "nvidia.com/gpu.shared"}
        self.cluster.objects[NODE_PATH] = {
            "metadata": {"name": "n1", "labels": labels or {}},
            "status": {"capacity": {"cpu": "8", **{names[key]: count for key, count in capacity.items()}}},
        }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(node=fake_node(tmp_path))
    made.node.files.make_dirs(LINKS)
    return made


# --- driver -----------------------------------------------------------------------------------------


def test_a_containers_driver_is_told_as_a_shell_reads_it(bench: Bench) -> None:
    bench.put_driver()
    assert bench.validate("driver") == ["driver-ready"]
    assert bench.node.commands.environments[-1] == {"LD_PRELOAD": f"{ROOT}/usr/lib64/libnvidia-ml.so.1"}
    metadata = bench.node.files.metadata(f"{FOLDER}/driver-ready")
    assert metadata
    assert metadata.mode == 0o644, "pods of other users source it"
    words = shlex.split(bench.node.text(f"{FOLDER}/driver-ready"))
    assert dict(word.split("=", 1) for word in words) == {
        "IS_HOST_DRIVER": "false",
        "NVIDIA_DRIVER_ROOT": ROOT,
        "DRIVER_ROOT_CTR_PATH": "/driver-root",
        "NVIDIA_DEV_ROOT": ROOT,
        "DEV_ROOT_CTR_PATH": "/driver-root",
    }


@pytest.mark.parametrize("component", ["container-toolkit", "device-plugin", "mig-manager"])
def test_what_reads_driver_ready_has_the_driver_where_that_says(component: str) -> None:
    """By the recorded objects of NVIDIA's operator."""
    recorded = result("clusterpolicy", "default", "objects.yaml")
    switch = f"{nodekeys.DEPLOY}{component}"
    (pod,) = (
        one["spec"]["template"]["spec"]
        for one in recorded
        if one
        and one["kind"] == "DaemonSet"
        and switch in one["spec"]["template"]["spec"]["nodeSelector"]
        and "nvidia.com/mps.capable" not in one["spec"]["template"]["spec"]["nodeSelector"]
    )
    volume = next(one["name"] for one in pod["volumes"] if one.get("hostPath", {}).get("path") == ROOT)
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounts[volume] == OPERANDS_HERE


def test_a_root_without_device_files_leaves_them_to_the_host(bench: Bench) -> None:
    bench.put_driver()
    bench.node.files.remove_tree(f"{ROOT}/dev")
    bench.validate("driver")
    assert "NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n" in bench.node.text(f"{FOLDER}/driver-ready")


def test_the_nodes_own_driver_comes_first(bench: Bench) -> None:
    bench.put_driver()
    bench.node.host.node.make_dirs("/usr/bin")
    bench.node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
    bench.node.commands.programs["chroot"] = lambda words: (0, SMI_LINE, "")
    bench.validate("driver")
    assert ("chroot", NODE, "/usr/bin/nvidia-smi", "-L") in bench.node.commands.calls
    text = bench.node.text(f"{FOLDER}/driver-ready")
    assert text.startswith("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n")


def test_a_host_nvidia_smi_that_fails_is_no_driver(bench: Bench) -> None:
    bench.put_driver()
    bench.node.host.node.make_dirs("/usr/bin")
    bench.node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
    bench.node.commands.programs["chroot"] = lambda words: (9, "", "NVIDIA-SMI has failed")
    bench.validate("driver")
    assert "IS_HOST_DRIVER=false" in bench.node.text(f"{FOLDER}/driver-ready")


def left_to_its_own(bench: Bench) -> dict[str, str]:
    """The node's labels, as the driver manager leaves them where the node has a driver."""
    bench.put_node(labels={"keep": "me", DRIVER_SWITCH: PRE_INSTALLED})
    labels: dict[str, str] = bench.cluster.objects[NODE_PATH]["metadata"]["labels"]
    return labels


def test_a_node_whose_own_driver_is_gone_gets_its_switch_back(bench: Bench) -> None:
    """Defect 11: upstream's label stays for ever, and with it the node without a driver."""
    labels = left_to_its_own(bench)
    bench.refused("driver")
    assert labels == {"keep": "me"}


@pytest.mark.parametrize("left", ["a program", "a module", "another switch", "no name"])
def test_the_label_stays_where_something_is_left_of_the_driver(bench: Bench, left: str) -> None:
    labels = left_to_its_own(bench)
    match left:
        case "a program":
            bench.node.host.node.make_dirs("/usr/bin")
            bench.node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
            bench.node.commands.programs["chroot"] = lambda words: (9, "", "NVIDIA-SMI has failed")
        case "a module":
            bench.load("nvidia")
        case "another switch":
            labels[DRIVER_SWITCH] = "false"
    before = dict(labels)
    bench.refused("driver", NODE_NAME="" if left == "no name" else "n1")
    assert labels == before
    assert bench.cluster.calls == []


def test_a_cluster_that_does_not_answer_is_asked_again_and_then_no_more(bench: Bench) -> None:
    labels, asked = left_to_its_own(bench), []

    class Away(FakeCluster):
        def get(self, path: str) -> JsonObject | None:
            asked.append(path)
            if len(asked) == 1:
                raise TemporaryFailure("no answer")
            return bench.cluster.get(path)

        def patch(self, path: str, change: JsonObject) -> None:
            bench.cluster.patch(path, change)

    looks = iter([None, None, None, bench.put_driver])

    def wait(now: float) -> None:
        if act := next(looks):
            act()

    bench.node.clock.on_wait = wait
    context = replace(bench.context("driver", WITH_WAIT="true"), cluster=Away)
    validate(context)
    assert labels == {"keep": "me"}
    assert asked == [NODE_PATH] * 2


def test_who_may_not_read_the_node_waits_all_the_same(bench: Bench) -> None:
    def refuse() -> FakeCluster:
        raise NotPermitted("not yours")

    bench.node.clock.on_wait = lambda now: bench.put_driver()
    validate(replace(bench.context("driver", WITH_WAIT="true"), cluster=refuse))
    assert bench.written() == ["driver-ready"]


def test_with_a_driver_daemonset_the_pods_probe_speaks_first(bench: Bench) -> None:
    bench.put_driver()
    labels = {"app.kubernetes.io/component": "nvidia-driver"}
    bench.cluster.objects[f"{DAEMONSETS}/gpu-driver"] = {"metadata": {"name": "gpu-driver", "labels": labels}}
    error = bench.refused("driver", OPERATOR_NAMESPACE=NAMESPACE)
    assert error.brief == "the driver's pod is not ready on this node"
    assert "gpu-driver" in error.details[1]
    bench.put(f"{FOLDER}/{DRIVER_CONTAINER}")
    assert bench.validate("driver", OPERATOR_NAMESPACE=NAMESPACE) == ["driver-ready"]


def test_a_driver_of_no_daemonset_is_taken_as_it_is(bench: Bench) -> None:
    bench.put_driver()
    bench.validate("driver")
    assert bench.cluster.listed == [], "without a namespace nobody is asked"
    assert bench.validate("driver", OPERATOR_NAMESPACE=NAMESPACE) == ["driver-ready"]


def test_what_nvidia_smi_says_is_the_evidence(bench: Bench) -> None:
    bench.put_driver()
    bench.node.commands.programs[f"{ROOT}/usr/bin/nvidia-smi"] = lambda _: (6, "", "No devices were found")
    error = bench.refused("driver")
    assert error.brief == f"nvidia-smi fails with the driver of {ROOT}"
    assert "No devices were found" in error.details
    bench.node.commands.programs[f"{ROOT}/usr/bin/nvidia-smi"] = lambda _: (0, "\n", "")
    assert bench.refused("driver").brief == f"nvidia-smi names no GPU with the driver of {ROOT}"


def test_a_root_without_a_driver_is_told(bench: Bench) -> None:
    assert bench.refused("driver").details == (f"{ROOT} has no nvidia-smi",)
    bench.put(f"{ROOT}/usr/bin/nvidia-smi")
    assert bench.refused("driver").details == (f"{ROOT} has no libnvidia-ml.so.1",)


def test_without_a_gpu_the_loaded_module_is_looked_at_and_that_is_said(bench: Bench) -> None:
    said = bench.refused("driver", DRIVER_VALIDATION_SKIP_GPU_INIT="true")
    assert said.details[0] == "/sys/module/nvidia/version: missing"
    bench.load("nvidia")
    said = bench.refused("driver", DRIVER_VALIDATION_SKIP_GPU_INIT="true")
    assert said.details == ("/sys/module/nvidia/version: missing", "/proc/devices: nvidia-frontend")
    bench.put("/sys/module/nvidia/version", "580.65.06\n")
    with heard() as said_aloud:
        assert bench.validate("driver", DRIVER_VALIDATION_SKIP_GPU_INIT="true") == ["driver-ready"]
    assert "no GPU was tested" in said_aloud
    assert not bench.node.commands.calls, "no program of the driver ran"


@pytest.mark.parametrize(
    ("switch", "module", "file"),
    [
        ("GDRCOPY_ENABLED", "gdrdrv", "gdrcopy-ready"),
        ("GDS_ENABLED", "nvidia_fs", "nvidia-fs-ready"),
        ("GPU_DIRECT_RDMA_ENABLED", "nvidia_peermem", "nvidia-peermem-ready"),
    ],
)
def test_what_the_drivers_pod_switched_on_has_to_be_loaded(
    bench: Bench, switch: str, module: str, file: str
) -> None:
    bench.put_driver()
    bench.put(f"{FOLDER}/{DRIVER_CONTAINER}", f"{switch}: true\n")
    assert bench.refused("driver").brief == f"the kernel module {module} is not loaded"
    bench.load(module)
    assert bench.validate("driver") == sorted(["driver-ready", file])


def test_the_nodes_links_to_device_files_are_made(bench: Bench) -> None:
    bench.put_driver()
    bench.validate("driver")
    assert "195:255" in bench.node.files.list_dir(LINKS)


def test_links_that_cannot_be_made_are_an_error_and_can_be_left_out(bench: Bench) -> None:
    bench.put_driver()
    bench.node.files.remove_tree(LINKS)
    assert "DISABLE_DEV_CHAR_SYMLINK_CREATION=true" in bench.refused("driver").resolution
    assert bench.validate("driver", DISABLE_DEV_CHAR_SYMLINK_CREATION="true") == ["driver-ready"]


# --- modules, toolkit, CUDA -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "module"),
    [("nvidia-fs", "nvidia_fs"), ("gdrcopy", "gdrdrv"), ("nvidia-peermem", "nvidia_peermem")],
)
def test_a_module_is_validated_where_it_is_loaded(bench: Bench, component: str, module: str) -> None:
    assert module in bench.refused(component).brief
    bench.load(module)
    assert bench.validate(component) == [f"{component}-ready"]


def test_the_network_driver_is_asked_for_where_there_is_a_device(bench: Bench) -> None:
    assert bench.validate("mofed") == []
    base = "/sys/bus/pci/devices/0000:5e:00.0"
    for name, text in (("vendor", "0x15b3\n"), ("device", "0x101d\n"), ("class", "0x020000\n")):
        bench.put(f"{base}/{name}", text)
    assert "0000:5e:00.0" in bench.refused("mofed").details[0]
    bench.load("mlx5_core")
    assert bench.validate("mofed") == ["mofed-ready"]


def test_the_toolkit_works_where_the_container_got_the_driver(bench: Bench) -> None:
    assert bench.refused("toolkit").brief.startswith("the container runtime did not put the driver")
    bench.node.commands.programs["nvidia-smi"] = lambda _: (0, SMI_LINE, "")
    assert bench.validate("toolkit") == ["toolkit-ready"]


def test_cuda_works_where_each_sum_is_right(bench: Bench) -> None:
    assert bench.validate("cuda") == ["cuda-ready"]


def test_a_gpu_that_computes_wrongly_is_named_with_its_sum(bench: Bench) -> None:
    bench.cuda.wrong = COUNT - 1
    error = bench.refused("cuda")
    assert error.brief == "a fake GPU computes wrongly"
    assert error.details[0] == f"1 of {COUNT} sums are wrong"
    assert "= 149999.0 at 49999" in error.details[1]


def test_cuda_without_a_gpu_fails(bench: Bench) -> None:
    bench.cuda.devices = ()
    assert bench.refused("cuda").brief == "CUDA sees no GPU in this container"


def test_libcuda_is_the_containers_own_then_that_of_the_drivers_root(bench: Bench) -> None:
    bench.put("/elsewhere/usr/lib64/libcuda.so.580")
    bench.node.files.symlink("libcuda.so.580", "/elsewhere/usr/lib64/libcuda.so.1")
    bench.put(f"{FOLDER}/driver-ready", "DRIVER_ROOT_CTR_PATH=/elsewhere\n")
    found = libraries(bench.context("cuda"))
    assert found == ("libcuda.so.1", "/elsewhere/usr/lib64/libcuda.so.580")


# --- plugin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [{"gpu": "8"}, {"mig": "7"}, {"gpu": "1k"}, {"shared": "40"}])
def test_the_plugin_works_where_the_node_offers_devices(bench: Bench, capacity: dict[str, str]) -> None:
    bench.put_node(**capacity)
    assert bench.validate("plugin", WITH_WORKLOAD="false") == ["plugin-ready"]


def test_the_plugin_gets_time_to_offer_devices(bench: Bench) -> None:
    bench.put_node(gpu="0")
    began = bench.node.clock.time
    bench.node.clock.on_wait = lambda now: bench.put_node(gpu="1") if now - began > 140 else None
    assert bench.validate("plugin", WITH_WORKLOAD="false") == ["plugin-ready"]


def test_a_node_that_offers_nothing_is_told_after_its_time(bench: Bench) -> None:
    bench.put_node()
    error = bench.refused("plugin", WITH_WORKLOAD="false")
    assert error.brief == "the node n1 offers no GPUs to pods"


def workload(bench: Bench, phase: str) -> dict[str, str]:
    bench.put_node(gpu="8", mig="7")
    bench.cluster.objects[f"{DAEMONSETS}/nvidia-operator-validator"] = {
        "metadata": {"name": "nvidia-operator-validator", "uid": "u"},
        "spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}},
    }
    bench.cluster.on_create = lambda path: bench.cluster.objects[path].update(status={"phase": phase})
    return {"OPERATOR_NAMESPACE": NAMESPACE, "VALIDATOR_IMAGE": "site/validator:1"}


def pod(bench: Bench) -> dict[str, Any]:
    return bench.cluster.objects[f"{PODS}/nvidia-device-plugin-validator-n1"]


@pytest.mark.parametrize(
    ("strategy", "resource"), [("single", "nvidia.com/gpu"), ("mixed", "nvidia.com/mig-1g.10gb")]
)
def test_a_pod_that_asks_for_a_gpu_has_to_compute(bench: Bench, strategy: str, resource: str) -> None:
    variables = workload(bench, "Failed")
    error = bench.refused("plugin", MIG_STRATEGY=strategy, **variables)
    assert resource in error.brief
    spec = pod(bench)["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {resource: "1"}}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert pod(bench)["metadata"]["ownerReferences"][0]["uid"] == "u"
    workload(bench, "Succeeded")
    assert bench.validate("plugin", MIG_STRATEGY=strategy, **variables) == ["plugin-ready"]
    assert f"{PODS}/nvidia-device-plugin-validator-n1" not in bench.cluster.objects


def test_a_pod_of_an_earlier_run_is_not_taken_for_this_ones(bench: Bench) -> None:
    """Its removal takes as long as its grace period, and until then it is what the API server shows."""
    variables = workload(bench, "Succeeded")
    old = {"metadata": {"name": "nvidia-device-plugin-validator-n1"}, "status": {"phase": "Failed"}}
    path = f"{PODS}/nvidia-device-plugin-validator-n1"
    bench.cluster.objects[path] = old
    bench.cluster.lingers = {path}
    began = bench.node.clock.time
    bench.node.clock.on_wait = lambda now: bench.cluster.let_go() if now - began > 20 else None
    assert bench.validate("plugin", **variables) == ["plugin-ready"]


def test_a_pod_that_never_ends_is_given_up(bench: Bench) -> None:
    error = bench.refused("plugin", **workload(bench, "Pending"))
    assert error.details == (f"pod nvidia-device-plugin-validator-n1 in {NAMESPACE} is Pending",)


# --- virtual machines -------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["vfio-pci", "vgpu-manager", "vgpu-devices"])
def test_a_node_for_containers_says_so_and_nothing_else(bench: Bench, component: str) -> None:
    bench.put_node()
    assert bench.validate(component) == ["workload-type"]
    assert bench.node.text(f"{FOLDER}/workload-type") == "container\n"


def test_every_gpu_has_to_be_bound_to_vfio(bench: Bench) -> None:
    bench.put_node(labels={WORKLOAD: "vm-passthrough"})
    assert bench.refused("vfio-pci").details == ("0000:3b:00.0: no driver",)
    bench.node.add_gpu("0000:3b:00.0", driver="vfio-pci")
    # of Grace Hopper, and what came after it
    bench.node.add_gpu("0009:01:00.0", driver="nvgrace_gpu_vfio_pci")
    assert bench.validate("vfio-pci") == ["vfio-pci-ready", "workload-type"]


def test_vfio_waits_where_it_is_asked_to(bench: Bench) -> None:
    """Defect 12: upstream's ignores WITH_WAIT, and the pod restarts with a growing delay instead."""
    bench.put_node(labels={WORKLOAD: "vm-passthrough"})
    bench.node.clock.on_wait = lambda now: bench.node.add_gpu("0000:3b:00.0", driver="vfio-pci")
    assert "vfio-pci-ready" in bench.validate("vfio-pci", WITH_WAIT="true")


def test_a_node_without_a_gpu_is_not_ready_to_pass_one_through(tmp_path: Path) -> None:
    bench = Bench(node=fake_node(tmp_path, gpu=False))
    bench.put_node(labels={WORKLOAD: "vm-passthrough"})
    assert bench.refused("vfio-pci").brief == "the node has no GPU"


def test_a_label_that_nobody_knows_is_the_default(bench: Bench) -> None:
    bench.put_node(labels={WORKLOAD: "mining"})
    bench.validate("vfio-pci", DEFAULT_GPU_WORKLOAD_CONFIG="vm-vgpu")
    assert bench.node.text(f"{FOLDER}/workload-type") == "vm-vgpu\n"


def test_a_vgpu_manager_is_the_nodes_own_or_a_containers(bench: Bench) -> None:
    bench.put_node(labels={WORKLOAD: "vm-vgpu"})
    bench.refused("vgpu-manager")
    bench.load("nvidia", "nvidia_vgpu_vfio")
    assert bench.validate("vgpu-manager", CLEANUP_ALL="true") == ["vgpu-manager-ready", "workload-type"]
    bench.node.host.node.make_dirs("/usr/bin")
    bench.node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
    bench.node.commands.programs["chroot"] = lambda words: (0, SMI_LINE, "")
    assert bench.validate("vgpu-manager") == ["host-vgpu-manager-ready", "workload-type"]


@pytest.mark.parametrize("own", [False, True], ids=["container", "host"])
def test_a_vgpu_manager_has_made_all_virtual_functions(bench: Bench, *, own: bool) -> None:
    bench.put_node(labels={WORKLOAD: "vm-vgpu"})
    bench.load("nvidia", "nvidia_vgpu_vfio")
    if own:
        bench.node.host.node.make_dirs("/usr/bin")
        bench.node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
        bench.node.commands.programs["chroot"] = lambda words: (0, SMI_LINE, "")
    for address, total in (("0000:3b:00.0", "16\n"), ("0000:86:00.0", "0\n")):
        gpu = {"vendor": "0x10de\n", "device": "0x2236\n", "class": "0x030200\n", "sriov_totalvfs": total}
        for name, text in {**gpu, "sriov_numvfs": "0\n"}.items():
            bench.put(f"/sys/bus/pci/devices/{address}/{name}", text)
    # a network card's are its own matter
    for name, text in {"vendor": "0x15b3\n", "class": "0x020000\n", "sriov_totalvfs": "8\n"}.items():
        bench.put(f"/sys/bus/pci/devices/0000:5e:00.0/{name}", text)
    for there in ("0\n", "15\n"):
        bench.put("/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", there)
        bench.refused("vgpu-manager")
    bench.put("/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", "16\n")
    ready = "host-vgpu-manager-ready" if own else "vgpu-manager-ready"
    assert ready in bench.validate("vgpu-manager")


@pytest.mark.parametrize(
    "path",
    [
        "/sys/bus/mdev/devices/6f0f3a5e-1c2d-4e5f-8a9b-0c1d2e3f4a5b/name",
        "/sys/bus/pci/devices/0000:3b:00.4/nvidia/current_vgpu_type",
    ],
)
def test_vgpu_devices_are_mediated_or_virtual_functions_with_a_type(bench: Bench, path: str) -> None:
    bench.put_node(labels={WORKLOAD: "vm-vgpu"})
    bench.put("/sys/bus/pci/devices/0000:3b:00.5/nvidia/current_vgpu_type", "0\n")
    bench.refused("vgpu-devices")
    bench.put(path, "557\n")
    assert bench.validate("vgpu-devices") == ["vgpu-devices-ready", "workload-type"]


def test_confidential_computing_is_asked_for_where_gpus_can_do_it(bench: Bench) -> None:
    bench.put_node()
    assert bench.validate("cc-manager") == []
    bench.put_node(labels={"nvidia.com/cc.capable": "true"})
    assert CC_MANAGER in bench.refused("cc-manager").details[0]
    bench.put(f"{FOLDER}/{CC_MANAGER}")
    assert bench.validate("cc-manager") == ["cc-manager-ready"]


# --- the run ----------------------------------------------------------------------------------------


def test_every_component_but_metrics_has_a_check() -> None:
    assert set(Component) - set(CHECKS) == {Component.METRICS}


def test_a_file_of_an_earlier_run_goes_before_the_check(bench: Bench) -> None:
    bench.put(f"{FOLDER}/gdrcopy-ready")
    bench.refused("gdrcopy")


def test_cleanup_removes_what_validators_wrote_and_nothing_else(bench: Bench) -> None:
    for name in (*WRITTEN, DRIVER_CONTAINER, ".driver-daemons-status", "somebody-elses"):
        bench.put(f"{FOLDER}/{name}")
    bench.load("gdrdrv")
    assert bench.validate("gdrcopy", CLEANUP_ALL="true") == ["gdrcopy-ready", "somebody-elses"]
    assert {DRIVER_CONTAINER, ".driver-daemons-status"} <= set(bench.node.files.list_dir(FOLDER))


def test_a_wait_tells_its_reason_once_and_ends_where_the_part_works(bench: Bench) -> None:
    began = bench.node.clock.time
    bench.node.clock.on_wait = lambda now: bench.load("gdrdrv") if now - began >= 100 else None
    with heard(logging.INFO) as said:
        assert bench.validate("gdrcopy", WITH_WAIT="true", SLEEP_INTERVAL_SECONDS="7") == ["gdrcopy-ready"]
    assert bench.node.clock.time - began == 105
    assert said.count("waiting") == 1


def test_a_long_wait_tells_its_reason_again(bench: Bench) -> None:
    began = bench.node.clock.time
    bench.node.clock.on_wait = lambda now: bench.load("gdrdrv") if now - began >= 1000 else None
    with heard(logging.INFO) as said:
        bench.validate("gdrcopy", WITH_WAIT="true")
    assert said.count("waiting") == 4


def test_a_wait_ends_at_a_stop_signal_with_its_reason(bench: Bench) -> None:
    bench.node.clock.stop_at = bench.node.clock.time + 20
    error = bench.refused("gdrcopy", WITH_WAIT="true")
    assert isinstance(error, TemporaryFailure)
    assert error.brief == "stopped by SIGTERM while waiting: the kernel module gdrdrv is not loaded"


def test_no_wait_cures_a_setting_that_is_missing(bench: Bench) -> None:
    assert isinstance(bench.refused("plugin", WITH_WAIT="true", NODE_NAME=""), InputError)


def test_a_node_that_the_cluster_does_not_know_is_told(bench: Bench) -> None:
    with pytest.raises(Unavailable, match="the cluster has no node n1"):
        bench.validate("cc-manager")


def test_every_wrong_value_is_told_at_once() -> None:
    wrong = {"COMPONENT": "gpu", "WITH_WAIT": "yes", "SLEEP_INTERVAL_SECONDS": "-1", "MIG_STRATEGY": "some"}
    with pytest.raises(InputError) as caught:
        parse(wrong, {})
    assert [re.split("[=:]", line)[0] for line in caught.value.details] == [
        v.name for v in VARIABLES if v.name in wrong
    ]


@pytest.mark.parametrize("port", ["65536", "-1", "９", "", "8000 "])
def test_metrics_need_a_port_that_is_one(port: str) -> None:
    with pytest.raises(InputError) as caught:
        parse({"COMPONENT": "metrics", "METRICS_PORT": port}, {})
    assert "METRICS_PORT" in caught.value.details[0]


def test_metrics_need_a_port() -> None:
    with pytest.raises(InputError) as caught:
        parse({"COMPONENT": "metrics"}, {})
    assert "METRICS_PORT" in caught.value.details[0]


def test_a_flag_counts_before_its_variable() -> None:
    settings = parse({"COMPONENT": "driver", "WITH_WAIT": "True"}, {"COMPONENT": "cuda"})
    assert (settings.component, settings.with_wait) == (Component.CUDA, True)
