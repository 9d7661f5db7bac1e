"""Where NVIDIA's chart and its ClusterPolicy name images, and when the operator uses each.

A row for each image of gpu-operator v1.11 to v26.7. Sources: the chart's templates (operator.yaml,
clusterpolicy.yaml, nvidiadriver.yaml) and the operator's states. ClusterPolicy's `spec` has the same paths as
the chart's values. Our chart has them too, and its operator's image in a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_mirror.charts.chart import NFD, OURS
from driverforge_mirror.charts.values import Values, at, is_true, text_at

CHART_SLOT = "chart"
PACKAGES_SLOT = "driver.repoConfig"
UNPULLED = (CHART_SLOT, PACKAGES_SLOT)
"""Where the chart itself stands, and nodes' packages: no pod pulls these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on one value. `unset` is what the operator takes where it is not set.

    `known`: it counts only where the chart knows the value; older charts have no sandbox mode.
    """

    path: str
    wanted: str = "true"
    unset: str = "false"
    known: bool = False

    def holds(self, values: Values) -> bool:
        if self.known and at(values, self.path) is None:
            return True
        found = text_at(values, self.path) or self.unset
        return is_true(found) if self.wanted == "true" else found == self.wanted

    def told(self, values: Values) -> str:
        found = text_at(values, self.path)
        return f"{self.path} is {found}" if found else f"{self.path} is not set, which means {self.unset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for an image.

    `per_system`: its tag ends with the node's OS, as the driver's does. `chart_version`: without a version of
    its own it has the chart's. `tag` is the key of its version, '' where `image` is the whole reference.
    """

    path: str
    purpose: str
    when: tuple[When, ...] = ()
    per_system: bool = False
    chart_version: bool = False
    tag: str = "version"

    def closed(self, values: Values) -> tuple[When, ...]:
        """The conditions that do not hold."""
        return tuple(one for one in self.when if not one.holds(values))

    def said(self, values: Values) -> dict[str, str]:
        """What the values say here of an image, by key."""
        keys = ("repository", "image", self.tag) if self.tag else ("image",)
        found = {key: text_at(values, f"{self.path}.{key}") for key in keys}
        return {key: text for key, text in found.items() if text}

    def image(self, values: Values, app_version: str) -> str:
        """The image that is named here, without what the node's OS adds; '' where none is.

        ClusterPolicy's rule: `repository`, `image` and `version` together, or `image` alone as it stands.
        """
        said = self.said(values)
        repository, name, version = (said.get(key, "") for key in ("repository", "image", self.tag))
        if not version and self.chart_version:
            version = app_version
        if self.tag == "tag":
            return f"{repository}:{version}" if repository and version else ""
        if repository and name and version:
            return f"{repository}/{name}{'@' if version.startswith('sha256:') else ':'}{version}"
        return name if name and not repository and not version else ""


def _enabled(component: str, *, unset: str = "true") -> When:
    return When(path=f"{component}.enabled", unset=unset)


_SANDBOX = When(path="sandboxWorkloads.enabled")
_KUBEVIRT = When(path="sandboxWorkloads.mode", wanted="kubevirt", unset="kubevirt", known=True)
_KATA = When(path="sandboxWorkloads.mode", wanted="kata", unset="kubevirt", known=True)
_DRIVER = _enabled("driver")
_VGPU = (_SANDBOX, _enabled("vgpuManager", unset="false"))
_VFIO = (_SANDBOX, _enabled("vfioManager", unset="false"))

SLOTS = (
    Slot(path=OURS, purpose="the operator itself", tag=""),
    Slot(path="operator", purpose="the operator itself", chart_version=True),
    Slot(
        path="operator.initContainer",
        purpose="prepares a folder for the DCGM exporter on OpenShift",
        when=(When(path="platform.openshift"), _enabled("dcgmExporter")),
    ),
    Slot(path="validator", purpose="proves each component on each GPU node", chart_version=True),
    Slot(path="driver", purpose="the driver", when=(_DRIVER,), per_system=True),
    Slot(path="driver.manager", purpose="makes room for the driver on its node", when=(_DRIVER,)),
    Slot(path="toolkit", purpose="the container toolkit", when=(_enabled("toolkit"),)),
    Slot(path="devicePlugin", purpose="offers GPUs to pods", when=(_enabled("devicePlugin"),)),
    Slot(path="dcgm", purpose="DCGM's host engine", when=(_enabled("dcgm"),)),
    Slot(path="dcgmExporter", purpose="metrics of the GPUs", when=(_enabled("dcgmExporter"),)),
    Slot(path="gfd", purpose="labels nodes with what their GPUs are", when=(_enabled("gfd"),)),
    Slot(path="migManager", purpose="divides GPUs (MIG)", when=(_enabled("migManager"),)),
    Slot(
        path="nodeStatusExporter",
        purpose="metrics of each node's state",
        when=(_enabled("nodeStatusExporter", unset="false"),),
        chart_version=True,
    ),
    Slot(
        path="gds",
        purpose="GPUDirect Storage, in the driver's pod",
        when=(_DRIVER, _enabled("gds", unset="false")),
        per_system=True,
    ),
    Slot(
        path="gdrcopy",
        purpose="GDRCopy, in the driver's pod",
        when=(_DRIVER, _enabled("gdrcopy", unset="false")),
        per_system=True,
    ),
    Slot(path="vgpuManager", purpose="the vGPU host driver", when=_VGPU, per_system=True),
    Slot(path="vgpuManager.driverManager", purpose="makes room for the vGPU host driver", when=_VGPU),
    Slot(
        path="vgpuDeviceManager",
        purpose="creates vGPU devices",
        when=(_SANDBOX, _enabled("vgpuDeviceManager", unset="false")),
    ),
    Slot(path="vfioManager", purpose="hands GPUs to virtual machines", when=_VFIO),
    Slot(path="vfioManager.driverManager", purpose="makes room for vfio-pci", when=_VFIO),
    Slot(
        path="sandboxDevicePlugin",
        purpose="offers GPUs to KubeVirt's machines",
        when=(_SANDBOX, _enabled("sandboxDevicePlugin", unset="false"), _KUBEVIRT),
    ),
    Slot(
        path="kataSandboxDevicePlugin",
        purpose="offers GPUs to Kata's machines",
        when=(_SANDBOX, _enabled("kataSandboxDevicePlugin", unset="false"), _KATA),
    ),
    Slot(
        path="kataManager",
        purpose="Kata's runtime classes",
        when=(_SANDBOX, _enabled("kataManager", unset="false")),
    ),
    Slot(
        path="ccManager",
        purpose="confidential computing",
        when=(_SANDBOX, _enabled("ccManager", unset="false"), _KATA),
    ),
    Slot(
        path="draDriver",
        purpose="GPUs as DRA resources",
        when=(When(path="gpuCluster.deployCR"),),
    ),
    Slot(
        path=f"{NFD}.image",
        purpose="finds out what each node is (Node Feature Discovery)",
        when=(_enabled("nfd"),),
        tag="tag",
    ),
)
BY_PATH: Mapping[str, Slot] = {slot.path: slot for slot in SLOTS}
IMAGE_KEYS = ("repository", "image", "version", "tag", "digest")
