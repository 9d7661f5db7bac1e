"""Do containers get GPUs, and do the GPUs compute: toolkit, cuda, plugin."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core import log
from driverforge_core.devicecount import device_count
from driverforge_core.errors import UsageError
from driverforge_core.validations import Component
from driverforge_host.ports import JsonObject, text_of
from driverforge_toolkit.validate.context import Context, NotValidated, Validated, run_nvidia_smi

COUNT = 50_000  # elements: more than one block, and not a whole number of blocks
SONAME = "libcuda.so.1"
LIBRARY_FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64")
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
LOOKS, PAUSE = 30, 5.0  # for the node's capacity
POD = "nvidia-device-plugin-validator"
OWNER = "nvidia-operator-validator"  # the DaemonSet of the validators
POD_LOOKS = 60


def check_toolkit(context: Context) -> Validated:
    """The container runtime put the driver into this container."""
    if context.host.commands.find("nvidia-smi") is None:
        raise NotValidated(
            "the container runtime did not put the driver into this container",
            details=["there is no nvidia-smi on PATH"],
            resolution="look whether this pod has the runtime class nvidia and NVIDIA_VISIBLE_DEVICES=all, "
            "and into the log of the toolkit's pod on this node; `driverctl doctor` names known problems",
        )
    seen = run_nvidia_smi(context.host, ["nvidia-smi"], what="in a container that got the driver")
    return Validated(seen=seen, files={Component.TOOLKIT.ready_file: ""})


def check_cuda(context: Context) -> Validated:
    """Add two vectors on each GPU, and compare the sums."""
    first = [float(n) for n in range(COUNT)]
    second = [float(2 * n + 1) for n in range(COUNT)]
    # whole numbers below 2^24 are exact as 32-bit floats
    expected = [a + b for a, b in zip(first, second, strict=True)]
    names = []
    for name, sums in context.cuda(libraries(context)).add_on_each(first, second):
        wrong = [n for n in range(COUNT) if sums[n] != expected[n]]
        if wrong:
            n = wrong[0]
            raise NotValidated(
                f"{name} computes wrongly",
                details=[
                    f"{len(wrong)} of {COUNT} sums are wrong",
                    f"the first: {first[n]} + {second[n]} = {sums[n]} at {n}",
                ],
                resolution="take the node out of service (kubectl cordon), and look for Xid and ECC errors: "
                "nvidia-smi -q -d ECC",
            )
        names.append(name)
    if not names:
        raise NotValidated(
            "CUDA sees no GPU in this container",
            details=["cuDeviceGetCount says 0"],
            resolution="set NVIDIA_VISIBLE_DEVICES=all on this container; "
            "with MIG on, make MIG devices first",
        )
    return Validated(
        seen=f"{COUNT} sums are right on each of: {', '.join(names)}", files={Component.CUDA.ready_file: ""}
    )


def libraries(context: Context) -> tuple[str, ...]:
    """Where libcuda may be: what the runtime put into this container first, then the driver's root."""
    ready = text_of(context.host.files, context.status_file(Component.DRIVER.ready_file))
    said = dict(line.split("=", 1) for line in ready.splitlines() if "=" in line)
    root = said.get("DRIVER_ROOT_CTR_PATH") or context.settings.driver_install_dir_ctr_path
    inside = context.host.files.under(root)
    there = [f"/{f}/{SONAME}" for f in LIBRARY_FOLDERS if inside.exists(f"/{f}/{SONAME}")]
    return (SONAME, *(f"{root.rstrip('/')}{inside.resolve(path)}" for path in there))


def check_plugin(context: Context) -> Validated:
    """The node offers GPUs; with WITH_WORKLOAD, a pod that asks for one gets one that computes."""
    offered = _wait_for_capacity(context)
    seen = ", ".join(f"{name}: {count}" for name, count in offered.items())
    if context.settings.with_workload:
        mixed = context.settings.mig_strategy == "mixed"
        _run_pod(
            context, next((name for name in offered if mixed and name.startswith(MIG)), next(iter(offered)))
        )
    return Validated(seen=seen, files={Component.PLUGIN.ready_file: ""})


def resources(node: JsonObject) -> dict[str, int]:
    """The GPUs and MIG devices of a node's capacity, whole GPUs first."""
    capacity: Mapping[str, object] = (node.get("status") or {}).get("capacity") or {}
    found = {
        name: number
        for name, count in capacity.items()
        # nvidia.com/gpu.shared is what time slicing may call them
        if name.startswith((GPU, MIG)) and (number := device_count(count))
    }
    return dict(sorted(found.items()))


def _wait_for_capacity(context: Context) -> dict[str, int]:
    elapsed = 0.0
    for elapsed in context.host.clock.ticks(timeout=LOOKS * PAUSE, interval=PAUSE):
        node = context.node()
        if found := resources(node):
            return found
        log.info("waiting", reason="the node offers no GPUs", seconds=round(elapsed))
    raise NotValidated(
        f"the node {context.settings.node_name} offers no GPUs to pods",
        details=[f"status.capacity has neither {GPU} nor {MIG}* after {elapsed:.0f} s"],
        resolution="look into the log of the device plugin's pod on this node "
        "(nvidia-device-plugin-daemonset), and whether the label nvidia.com/gpu.deploy.device-plugin is true",
    )


def _run_pod(context: Context, resource: str) -> None:
    """Run this image's own CUDA check in a pod that asks for one GPU, and remove the pod after it passed.

    A pod that failed stays, for its log.
    """
    settings, cluster = context.settings, context.cluster()
    if not settings.validator_image or not settings.operator_namespace:
        raise UsageError(
            "the plugin's pod has no image or no namespace",
            resolution="set VALIDATOR_IMAGE and OPERATOR_NAMESPACE, or WITH_WORKLOAD=false",
        )
    pods = f"/api/v1/namespaces/{settings.operator_namespace}/pods"
    # one of each node: names have to differ
    name = f"{POD}-{settings.node_name}"[:253]
    owner = cluster.get(f"/apis/apps/v1/namespaces/{settings.operator_namespace}/daemonsets/{OWNER}")
    cluster.delete(f"{pods}/{name}")
    phase = "gone"
    for _ in context.host.clock.ticks(timeout=POD_LOOKS * PAUSE, interval=PAUSE):
        found = cluster.get(f"{pods}/{name}")
        if phase == "gone" and found is not None:
            continue  # the one before it is still being removed
        if found is None:
            cluster.create(pods, workload_pod(context, name, resource, owner))
        phase = str((found or {}).get("status", {}).get("phase", "Pending"))
        if phase == "Succeeded":
            cluster.delete(f"{pods}/{name}")
            return
        if phase == "Failed":
            break
    raise NotValidated(
        f"a pod that asked for {resource} did not get a GPU that computes",
        details=[f"pod {name} in {settings.operator_namespace} is {phase}"],
        resolution=f"kubectl -n {settings.operator_namespace} describe pod {name}, and its log; "
        "where every GPU is in use, set WITH_WORKLOAD=false",
    )


def workload_pod(context: Context, name: str, resource: str, owner: JsonObject | None) -> JsonObject:
    """The pod. It belongs to the validators' DaemonSet, goes with it, and tolerates what that does."""
    settings = context.settings
    metadata: JsonObject = {"name": name, "labels": {"app": POD}}
    spec: JsonObject = {
        "nodeName": settings.node_name,
        "restartPolicy": "Never",
        "containers": [
            {
                "name": POD,
                "image": settings.validator_image,
                "imagePullPolicy": settings.validator_image_pull_policy,
                "command": ["nvidia-validator"],
                "env": [
                    {"name": "COMPONENT", "value": Component.CUDA.value},
                    {"name": "OUTPUT_DIR", "value": "/tmp"},  # noqa: S108, a folder of the pod's own
                ],
                "resources": {"limits": {resource: "1"}},
            }
        ],
    }
    if owner:
        uid = {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", **uid}]
        spec["tolerations"] = owner["spec"]["template"]["spec"].get("tolerations", [])
    if settings.validator_runtime_class:
        spec["runtimeClassName"] = settings.validator_runtime_class
    if secrets := [s.strip() for s in settings.validator_image_pull_secrets.split(",") if s.strip()]:
        spec["imagePullSecrets"] = [{"name": secret} for secret in secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
