"""NVIDIADriver, nvidia.com/v1alpha1: the driver of some nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from driverforge_operator.crd.blocks import (
    ContainerSettings,
    DriverManager,
    ImageName,
    KernelModuleType,
    Named,
    PoolStatus,
    Rdma,
    SideCar,
    UpgradePolicy,
)
from driverforge_operator.crd.kubernetes import (
    Condition,
    NodeAffinity,
    PodSecurityContext,
    Probe,
    Toleration,
)
from driverforge_operator.crd.model import Block, rules

DriverType = Literal["gpu", "vgpu", "vgpu-host-manager"]


class DriverUpgradePolicy(UpgradePolicy):
    """How a new driver comes to nodes that run an old one."""

    auto_upgrade: bool = True


class Licensing(Block):
    """The licence of a vGPU guest."""

    name: str | None = None
    """Deprecated: a Secret is the place for a licence."""
    secret_name: str | None = None
    nls_enabled: bool | None = None


class NvidiaDriverSpec(ContainerSettings):
    """Which driver, on which nodes."""

    # each of these fails late in NVIDIA's operator: after it was stored, in the log
    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!self.default || !has(self.nodeSelector) || size(self.nodeSelector) == 0",
                "the default driver is for nodes that no other claims: leave out nodeSelector, or default",
            ),
            (
                "!has(self.nodeSelector) || !('nvidia.com/gpu-operator.driver.owner' in self.nodeSelector)",
                "nodeSelector: the operator writes nvidia.com/gpu-operator.driver.owner; use another label",
            ),
            (
                (
                    "!has(self.usePrecompiled) || !self.usePrecompiled || "
                    "!(has(self.gds) && has(self.gds.enabled) && self.gds.enabled || "
                    "has(self.gdrcopy) && has(self.gdrcopy.enabled) && self.gdrcopy.enabled)"
                ),
                "precompiled drivers have no GDS and no GDRCopy: leave out usePrecompiled, or those",
            ),
            (
                (
                    "!has(self.usePrecompiled) || !self.usePrecompiled || "
                    "!has(self.version) || !self.version.startsWith('sha256:')"
                ),
                "version: a digest names one kernel's image: write the driver's branch, e.g. '580'",
            ),
            # which GDS needs the open modules is a condition only: CEL orders versions by nothing but regular
            # expressions, and the limit is NVIDIA's to move
        )
    )

    driver_type: DriverType = Field(
        default="gpu", json_schema_extra=rules(("self == oldSelf", "driverType cannot change: make another"))
    )
    default: bool = False
    """The driver of all nodes that no other NVIDIADriver claims."""
    use_precompiled: bool | None = Field(
        default=None,
        json_schema_extra=rules(("self == oldSelf", "usePrecompiled cannot change: make another")),
    )
    image: ImageName | None = "nvcr.io/nvidia/driver"
    kernel_module_type: KernelModuleType = "auto"
    use_open_kernel_modules: bool | None = None
    """Deprecated: kernelModuleType says it."""
    manager: DriverManager | None = None
    rdma: Rdma | None = None
    gds: SideCar | None = None
    gdrcopy: SideCar | None = None
    repo_config: Named | None = None
    cert_config: Named | None = None
    kernel_module_config: Named | None = None
    licensing_config: Licensing | None = None
    virtual_topology_config: Named | None = None
    secret_env: str | None = None
    pod_security_context: PodSecurityContext | None = None
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    node_selector: dict[str, str] | None = None
    node_affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    priority_class_name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    upgrade_policy: DriverUpgradePolicy | None = None


class NvidiaDriverStatus(Block):
    """What became of it."""

    state: Literal["ignored", "ready", "notReady", "disabled"]
    namespace: str | None = None
    observed_generation: int | None = None
    conditions: tuple[Condition, ...] | None = None
    pools: tuple[PoolStatus, ...] | None = None
