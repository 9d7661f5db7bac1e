"""Is a driver there, and does it serve: the node's own, or that of a container.

A node may have been left to its own driver, and have it no more. Whoever sees a node's own driver labels the
node `pre-installed`, which keeps driver pods away. NVIDIA's operator leaves it at that for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED
from driverforge_core.validations import DRIVER_CONTAINER, Component
from driverforge_host.gpu.detect import LOADED_VERSION, loaded_version
from driverforge_host.gpu.device_files import DRIVER, PROC_DEVICES, device_majors
from driverforge_host.gpu.roots import DriverRoots
from driverforge_host.gpu.smi import host_driver, nvidia_smi_of
from driverforge_host.ports import NODES, text_of
from driverforge_host.probe import REFCOUNT
from driverforge_toolkit.validate.context import (
    HOST_HERE,
    Context,
    NotValidated,
    Validated,
    run_nvidia_smi,
)
from driverforge_toolkit.validate.module_checks import EXTRAS, require_module

DRIVER_PODS = "app.kubernetes.io/component=nvidia-driver"
NVML = "libnvidia-ml.so.1"
OPERANDS_HERE = "/driver-root"  # where toolkit, device plugin and MIG manager have a container's driver
LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "usr/lib",
    "lib",
)
# the lines of DRIVER_CONTAINER, and the part that each switches on
SWITCHES = {
    "GDRCOPY_ENABLED": Component.GDRCOPY,
    "GDS_ENABLED": Component.NVIDIA_FS,
    "GPU_DIRECT_RDMA_ENABLED": Component.PEERMEM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDriver:
    """A driver that works, where it is, and what shows it."""

    on_host: bool
    roots: DriverRoots
    seen: str

    def as_environment(self) -> str:
        """The content of driver-ready: the pods that wait for it source it as a shell does.

        A path of a container is one of theirs, not of this one.
        """
        beside = not self.on_host and self.roots.dev_host == self.roots.driver
        values = {
            "IS_HOST_DRIVER": str(self.on_host).lower(),
            "NVIDIA_DRIVER_ROOT": self.roots.driver,
            "DRIVER_ROOT_CTR_PATH": HOST_HERE if self.on_host else OPERANDS_HERE,
            "NVIDIA_DEV_ROOT": self.roots.dev_host,
            "DEV_ROOT_CTR_PATH": OPERANDS_HERE if beside else HOST_HERE,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())


def check(context: Context) -> Validated:
    """Raises NotValidated with what is missing."""
    found = find(context)
    extras = () if found.on_host else _extras(context)
    files = {extra.ready_file: "" for extra in extras}
    for extra in extras:
        require_module(context.host, EXTRAS[extra], switched_on_by=DRIVER_CONTAINER)
    files[Component.DRIVER.ready_file] = found.as_environment()
    return Validated(seen=found.seen, files=files, roots=found.roots)


def find(context: Context) -> FoundDriver:
    """The driver of this node: its own first, then a container's. Raises NotValidated."""
    settings = context.settings
    if seen := host_driver(context.host):
        roots = DriverRoots(
            driver=settings.host_root, driver_here=HOST_HERE, dev=settings.host_root, dev_here=HOST_HERE
        )
        return FoundDriver(on_host=True, roots=roots, seen=f"the node's own driver: {seen}")
    _wait_for_container(context)
    roots = _container_roots(context)
    if settings.driver_validation_skip_gpu_init:
        return FoundDriver(on_host=False, roots=roots, seen=_loaded_module(context))
    return FoundDriver(on_host=False, roots=roots, seen=_container_smi(context, roots))


def _wait_for_container(context: Context) -> None:
    """Where the operator has a driver DaemonSet, its pod's startup probe speaks first."""
    namespace = context.settings.operator_namespace
    if not namespace or context.host.files.exists(context.status_file(DRIVER_CONTAINER)):
        return
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    names = [item["metadata"]["name"] for item in context.cluster().list(path, labels=DRIVER_PODS)]
    if names:
        raise NotValidated(
            "the driver's pod is not ready on this node",
            details=[
                f"{context.status_file(DRIVER_CONTAINER)} is missing; the pod's startup probe writes it",
                f"driver DaemonSets in {namespace}: {', '.join(names)}",
            ],
            resolution=f"kubectl -n {namespace} get pods -o wide -l {DRIVER_PODS}, then look into the log of "
            "the one on this node",
        )


def _container_roots(context: Context) -> DriverRoots:
    """A root without device files leaves them to the host, as on systems with a read-only one."""
    install, here = context.settings.driver_install_dir, context.settings.driver_install_dir_ctr_path
    if context.host.files.is_dir(f"{here}/dev"):
        return DriverRoots(driver=install, driver_here=here, dev=install, dev_here=here)
    return DriverRoots(driver=install, driver_here=here, dev=context.settings.host_root, dev_here=HOST_HERE)


def _container_smi(context: Context, roots: DriverRoots) -> str:
    """Run the root's nvidia-smi with the root's NVML: the root need not be a whole system."""
    here, files = roots.driver_seen, context.host.files
    smi = nvidia_smi_of(files, here)
    inside = files.under(here)
    library = next((f"/{f}/{NVML}" for f in LIBRARY_FOLDERS if inside.exists(f"/{f}/{NVML}")), "")
    if not smi or not library:
        raise NotValidated(
            f"{roots.driver} is not the root of a driver",
            details=[f"{here} has no {'nvidia-smi' if not smi else NVML}"],
            resolution="look whether the driver's pod on this node is ready; where the driver is installed "
            "elsewhere, set hostPaths.driverInstallDir",
        )
    preload = {"LD_PRELOAD": f"{here}{inside.resolve(library)}"}
    said = run_nvidia_smi(
        context.host, [f"{here}{inside.resolve(smi)}"], what=f"with the driver of {roots.driver}", env=preload
    )
    return f"the driver of {roots.driver}: {said}"


def _loaded_module(context: Context) -> str:
    """The kernel's side of the driver, for nodes that have no GPU that works."""
    files = context.host.files
    version, majors = loaded_version(files), device_majors(text_of(files, PROC_DEVICES))
    if not version or not any(name in majors for name in DRIVER):
        raise NotValidated(
            "the driver's kernel module does not serve",
            details=[
                f"{LOADED_VERSION}: {version or 'missing'}",
                f"{PROC_DEVICES}: {', '.join(sorted(majors)) or 'no nvidia device'}",
            ],
            resolution="look into the log of the driver's pod on this node",
        )
    log.warning("no GPU was tested", why="DRIVER_VALIDATION_SKIP_GPU_INIT is true", module=version)
    return f"module {version} is loaded; no GPU was tested"


def _extras(context: Context) -> tuple[Component, ...]:
    lines = text_of(context.host.files, context.status_file(DRIVER_CONTAINER)).splitlines()
    said: Mapping[str, str] = {
        key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)
    }
    return tuple(extra for name, extra in SWITCHES.items() if said.get(name) == "true")


def take_back(context: Context) -> bool:
    """Take that label off this node if nothing is left of its own driver; False asks for another try.

    The operator then switches the driver on again. A driver that is loaded, or is there and does not work, is
    somebody's to look at: the label stays.
    """
    host, name = context.host, context.settings.node_name
    if not name or nvidia_smi_of(host.files, host.node.root) or host.files.exists(REFCOUNT):
        return True
    try:
        labels = context.node()["metadata"].get("labels") or {}
        if labels.get(DRIVER_SWITCH) == PRE_INSTALLED:
            context.cluster().patch(f"{NODES}/{name}", {"metadata": {"labels": {DRIVER_SWITCH: None}}})
            log.info(
                "the node's own driver is gone", label=f"{DRIVER_SWITCH}-", seen="no nvidia-smi, no module"
            )
    except DriverforgeError as error:
        log.warning("nobody can say whether this node was left to its own driver", error=error.brief)
        # a missing right stays missing
        return not isinstance(error, TemporaryFailure)
    return True
