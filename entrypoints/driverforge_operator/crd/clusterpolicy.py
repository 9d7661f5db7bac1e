"""ClusterPolicy, nvidia.com/v1: all operands of a cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from driverforge_operator.crd.blocks import (
    ContainerSettings,
    DriverManager,
    Image,
    KernelModuleType,
    Named,
    Operand,
    PoolStatus,
    Rdma,
    SideCar,
    Switched,
    UpgradePolicy,
)
from driverforge_operator.crd.kubernetes import (
    Condition,
    EnvVar,
    PodSecurityContext,
    Probe,
    ServiceMonitor,
    Toleration,
)
from driverforge_operator.crd.model import Block, rules
from driverforge_operator.crd.read import Problem


class OperatorMetrics(Block):
    """Metrics of the operator itself."""

    service_monitor: ServiceMonitor | None = None


class OperatorSettings(Block):
    """Settings of the operator itself."""

    default_runtime: Literal["docker", "crio", "containerd"] = "docker"
    """Deprecated, without effect: each node's own runtime counts."""
    runtime_class: str = "nvidia"
    init_container: Image | None = None
    """Deprecated, without effect."""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    use_ocp_driver_toolkit: bool | None = Field(default=None, alias="use_ocp_driver_toolkit")
    """On OpenShift, whether the driver toolkit's container compiles the modules; not written: yes."""
    metrics: OperatorMetrics | None = None


class RollingUpdate(Block):
    """How DaemonSets roll."""

    max_unavailable: str | None = None


class DaemonSets(Block):
    """What all DaemonSets have in common."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    """Instead of the toleration of nvidia.com/gpu, not beside it."""
    priority_class_name: str | None = None
    pod_security_context: PodSecurityContext | None = None
    update_strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class RepoConfig(Block):
    """A ConfigMap of package repositories."""

    config_map_name: str | None = None


class Licensing(Block):
    """The licence of a vGPU guest."""

    config_map_name: str | None = None
    """Deprecated: a Secret is the place for a licence."""
    secret_name: str | None = None
    nls_enabled: bool | None = None


class VirtualTopology(Block):
    """A ConfigMap of a virtual machine's topology."""

    config: str | None = None


class DriverSettings(Operand):
    """The driver of all nodes, unless NVIDIADriver resources are used."""

    use_nvidia_driver_crd: bool | None = Field(default=None, alias="useNvidiaDriverCRD")
    """Leave the driver to NVIDIADriver resources."""
    use_precompiled: bool | None = None
    kernel_module_type: KernelModuleType = "auto"
    use_open_kernel_modules: bool | None = None
    """Deprecated: kernelModuleType says it."""
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    rdma: Rdma | None = None
    upgrade_policy: UpgradePolicy | None = None
    manager: DriverManager | None = None
    repo_config: RepoConfig | None = None
    cert_config: Named | None = None
    licensing_config: Licensing | None = None
    virtual_topology: VirtualTopology | None = None
    kernel_module_config: Named | None = None
    secret_env: str | None = None


class Toolkit(Operand):
    """The container toolkit."""

    install_dir: str = "/usr/local/nvidia"


class NamedDefault(Block):
    """A ConfigMap, and which of its entries counts where a node names none."""

    name: str | None = None
    default: str | None = None


class Mps(Block):
    """Where MPS keeps its pipes."""

    root: str = "/run/nvidia/mps"


class DevicePlugin(Operand):
    """The device plugin."""

    config: NamedDefault | None = None
    mps: Mps | None = None


class Dcgm(Operand):
    """DCGM's own host engine."""

    host_port: int | None = Field(default=None, json_schema_extra={"format": "int32"})


class ExporterService(Block):
    """The Service of the exporter."""

    type: str | None = None
    internal_traffic_policy: str | None = None


class HpcJobMapping(Block):
    """Jobs of a batch system in the metrics."""

    enabled: bool | None = None
    directory: str | None = None


class DcgmExporter(Operand):
    """GPU metrics for Prometheus."""

    annotations: dict[str, str] | None = None
    config: Named | None = None
    service_monitor: ServiceMonitor | None = None
    service: ExporterService | None = None
    host_pid: bool | None = Field(default=None, alias="hostPID")
    enable_pod_labels: bool | None = None
    enable_pod_uid: bool | None = Field(default=None, alias="enablePodUID")
    pod_label_allowlist_regex: tuple[str, ...] | None = None
    hpc_job_mapping: HpcJobMapping | None = None


class Mig(Block):
    """How MIG devices are offered."""

    strategy: Literal["none", "single", "mixed"] | None = None


class MigConfig(Block):
    """The MIG layouts, and which of them counts where a node names none."""

    name: str | None = None
    default: Literal["all-disabled", ""] = "all-disabled"


class MigManager(Operand):
    """What makes MIG devices."""

    config: MigConfig | None = None
    gpu_clients_config: Named | None = None


class CheckSettings(Block):
    """Variables of one check."""

    env: tuple[EnvVar, ...] | None = None


class Validator(ContainerSettings):
    """What checks each node, step by step."""

    plugin: CheckSettings | None = None
    toolkit: CheckSettings | None = None
    driver: CheckSettings | None = None
    cuda: CheckSettings | None = None
    vfio_pci: CheckSettings | None = Field(default=None, alias="vfioPCI")
    vgpu_manager: CheckSettings | None = None
    vgpu_devices: CheckSettings | None = None


class Cdi(Block):
    """The Container Device Interface."""

    enabled: bool = True
    default: bool = False
    """Deprecated, without effect."""
    nri_plugin_enabled: bool = False


class HostPaths(Block):
    """Places on the nodes."""

    root_fs: str | None = Field(default=None, alias="rootFS")
    driver_install_dir: str | None = None
    kubelet_root_dir: str = "/var/lib/kubelet"


class SandboxWorkloads(Block):
    """GPUs for virtual machines."""

    enabled: bool | None = None
    default_workload: str = "container"
    mode: Literal["kubevirt", "kata"] = "kubevirt"


class VgpuManager(Operand):
    """The vGPU driver of a host."""

    driver_manager: DriverManager | None = None
    kernel_module_config: Named | None = None


class VfioManager(Operand):
    """What binds GPUs to vfio-pci."""

    driver_manager: DriverManager | None = None


class VgpuDeviceConfig(Block):
    """The vGPU layouts, and which of them counts where a node names none."""

    name: str | None = None
    default: str = "default"


class VgpuDeviceManager(Operand):
    """What makes vGPU devices."""

    config: VgpuDeviceConfig | None = None


class CcManager(Operand):
    """Confidential computing."""

    default_mode: Literal["on", "off", "devtools"] | None = None


class KataArtifacts(Block):
    """Where a runtime class of Kata comes from."""

    url: str
    pull_secret: str | None = None


class KataRuntimeClass(Block):
    """A runtime class of Kata."""

    name: str
    node_selector: dict[str, str] | None = None
    artifacts: KataArtifacts | None = None


class KataConfig(Block):
    """Runtime classes of Kata."""

    artifacts_dir: str = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"
    runtime_classes: tuple[KataRuntimeClass, ...] | None = None


class KataManager(Operand):
    """Deprecated, without effect."""

    config: KataConfig | None = None


class ClusterPolicySpec(Block):
    """What the cluster's nodes with GPUs get."""

    # these fail late in NVIDIA's operator: after it was stored
    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.cdi) || !self.cdi.nriPluginEnabled || self.cdi.enabled",
                "cdi.nriPluginEnabled: the plugin gives devices by CDI: write spec.cdi.enabled: true",
            ),
            (
                (
                    "!has(self.cdi) || !self.cdi.nriPluginEnabled || "
                    "!has(self.toolkit.enabled) || self.toolkit.enabled"
                ),
                "cdi.nriPluginEnabled: the plugin is the toolkit's: write spec.toolkit.enabled: true",
            ),
        )
    )

    operator: OperatorSettings
    daemonsets: DaemonSets
    driver: DriverSettings
    toolkit: Toolkit
    device_plugin: DevicePlugin
    dcgm: Dcgm
    dcgm_exporter: DcgmExporter
    gfd: Operand
    node_status_exporter: Operand
    validator: Validator | None = None
    mig: Mig | None = None
    mig_manager: MigManager | None = None
    gds: SideCar | None = None
    gdrcopy: SideCar | None = None
    cdi: Cdi | None = None
    psa: Switched | None = None
    psp: Switched | None = None
    """Deprecated, without effect: Kubernetes 1.25 has no pod security policies."""
    host_paths: HostPaths | None = None
    sandbox_workloads: SandboxWorkloads | None = None
    vgpu_manager: VgpuManager | None = None
    vfio_manager: VfioManager | None = None
    vgpu_device_manager: VgpuDeviceManager | None = None
    sandbox_device_plugin: Operand | None = None
    kata_sandbox_device_plugin: Operand | None = None
    cc_manager: CcManager | None = None
    kata_manager: KataManager | None = None


def contradictions(spec: ClusterPolicySpec) -> tuple[Problem, ...]:
    """What the schema's rules refuse, for a dump, and for what was stored before there were rules."""
    cdi = spec.cdi or Cdi()
    if not cdi.nri_plugin_enabled:
        return ()
    found = (
        (cdi.enabled, "the plugin gives devices by CDI: write spec.cdi.enabled: true"),
        (spec.toolkit.enabled is not False, "the plugin is the toolkit's: write spec.toolkit.enabled: true"),
    )
    return tuple(Problem(path="spec.cdi.nriPluginEnabled", what=what) for fine, what in found if not fine)


class ClusterPolicyStatus(Block):
    """What became of it."""

    state: Literal["ignored", "ready", "notReady"]
    namespace: str | None = None
    observed_generation: int | None = None
    conditions: tuple[Condition, ...] | None = None
    pools: tuple[PoolStatus, ...] | None = None
