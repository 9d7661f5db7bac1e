"""The node's state as Prometheus metrics, under NVIDIA's names (gpu-operator v26.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from driverforge_core import log
from driverforge_core.errors import DriverforgeError
from driverforge_core.validations import Component
from driverforge_host.gpu.detect import pci_devices
from driverforge_host.gpu.pci import NVIDIA_VENDOR
from driverforge_kube import prometheus
from driverforge_kube.prometheus import Metric, Sample
from driverforge_toolkit.validate import driver_check
from driverforge_toolkit.validate.container_checks import resources
from driverforge_toolkit.validate.context import Context

OPERATOR = "gpu_operator_"
NODE = f"{OPERATOR}node_"
# metric, help: in the order of the page
METRICS: tuple[tuple[str, str], ...] = (
    (f"{NODE}metrics_ready_ts_seconds", "when these metrics were first served, in seconds since the epoch"),
    (f"{NODE}driver_ready", "1 where the driver was validated on this node"),
    (f"{NODE}toolkit_ready", "1 where the container toolkit was validated on this node"),
    (f"{NODE}plugin_ready", "1 where the device plugin was validated on this node"),
    (f"{NODE}cuda_ready", "1 where CUDA was validated on this node"),
    (f"{NODE}driver_validation", "1 where the driver works now, 0 where it does not"),
    (f"{NODE}driver_validation_last_success_ts_seconds", "when the driver worked last"),
    (f"{NODE}device_plugin_devices_total", "GPUs and MIG devices of the node's capacity, -1 where unknown"),
    (f"{NODE}device_plugin_validation_last_success_ts_seconds", "when the node offered a GPU last"),
    (f"{OPERATOR}nvidia_pci_devices_total", "NVIDIA's PCI devices, -1 where they cannot be counted"),
)
READY = (Component.DRIVER, Component.TOOLKIT, Component.PLUGIN, Component.CUDA)


@dataclass
class NodeMetrics:
    """What was seen last. `look_at_node` runs nvidia-smi and asks the cluster; `look_at_files` does not."""

    context: Context
    values: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((name for name, _ in METRICS), 0.0)
    )
    page: str = ""

    def look_at_files(self) -> None:
        files = self.context.host.files
        for component in READY:
            there = files.exists(self.context.status_file(component.ready_file))
            self.values[f"{NODE}{component.value}_ready"] = float(there)
        self._publish()

    def look_at_node(self) -> None:
        now = self.context.host.clock.now()
        works = self._known(lambda: bool(driver_check.find(self.context).seen), otherwise=0)
        self.values[f"{NODE}driver_validation"] = works
        if works:
            self.values[f"{NODE}driver_validation_last_success_ts_seconds"] = now
        devices = self._known(lambda: sum(resources(self.context.node()).values()), otherwise=-1)
        self.values[f"{NODE}device_plugin_devices_total"] = devices
        if devices > 0:
            self.values[f"{NODE}device_plugin_validation_last_success_ts_seconds"] = now
        self.values[f"{OPERATOR}nvidia_pci_devices_total"] = self._known(self._pci_devices, otherwise=-1)
        self._publish()

    def _pci_devices(self) -> int:
        return sum(device.vendor == NVIDIA_VENDOR for device in pci_devices(self.context.host.files))

    def _known(self, look: Callable[[], int], *, otherwise: int) -> float:
        try:
            return float(look())
        except (DriverforgeError, OSError) as error:
            log.warning(
                "a metric is not known", why=str(error), seen="; ".join(getattr(error, "details", ()))
            )
            return float(otherwise)

    def _publish(self) -> None:
        """Make the page anew: readers see the old one or the new one, never a part."""
        started = f"{NODE}metrics_ready_ts_seconds"
        self.values[started] = self.values[started] or self.context.host.clock.now()
        labels = {"node": self.context.settings.node_name}
        self.page = prometheus.page(
            (Metric(name=name, about=meaning), [Sample(value=self.values[name], labels=labels)])
            for name, meaning in METRICS
        )
