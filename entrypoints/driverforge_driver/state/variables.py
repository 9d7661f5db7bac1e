"""Every environment variable that the driver's commands read, in one table.

NVIDIA's operator configures the driver pod by them, so the names are its contract. `hack/environment-page`
makes docs/environment.md of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from driverforge_core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable: what it means, its default, and who usually sets it."""

    name: str
    meaning: str
    default: str = ""
    set_by: str = "operator or manifest"
    allowed: tuple[str, ...] = ()


class WantedModuleType(Enum):
    """The values of KERNEL_MODULE_TYPE: which type of modules to load."""

    # by the GPUs of the node, the driver branch, and what the image has
    AUTO = "auto"
    OPEN = "open"
    PROPRIETARY = "proprietary"

    def accepts(self, module_type: str) -> bool:
        """Whether modules of this type ('open', 'proprietary') are what is asked for."""
        return self is WantedModuleType.AUTO or self.value == module_type


BOOLEAN = ("true", "false")
# conftest.sh's own name, which is on make's command line as well
IGNORE_REALTIME = "IGNORE_PREEMPT_RT_PRESENCE"

VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="DRIVER_VERSION",
        meaning="Version of the driver in the image, for example `535.261.03`.",
        set_by="image",
    ),
    Variable(
        name="DRIVER_BRANCH",
        meaning=(
            "Branch of the driver in the image. It is there for other programs; driverctl reads "
            "`DRIVER_VERSION`."
        ),
        set_by="image",
    ),
    Variable(
        name="TARGETARCH",
        meaning=(
            "Architecture of the image. It is there for other programs; driverctl reads "
            "`/opt/driverforge/image.json`."
        ),
        set_by="image",
    ),
    Variable(
        name="DRIVER_TYPE",
        meaning="`passthrough`: the data-centre driver. `vgpu` is refused: this image does not serve it.",
        default="passthrough",
        set_by="image",
        allowed=("passthrough",),
    ),
    Variable(
        name="KERNEL_MODULE_TYPE",
        meaning=(
            "Which kernel modules to load. `auto` chooses by the GPUs of the node, the driver "
            "branch, and what the image has."
        ),
        default=WantedModuleType.AUTO.value,
        allowed=tuple(each.value for each in WantedModuleType),
    ),
    Variable(
        name="DRIVER_CONFIG_DIGEST",
        meaning=(
            "Digest of the operator's configuration. A loaded driver of the same digest and version"
            " is kept. Where the variable is not set, driverctl computes a digest from these "
            "settings."
        ),
        set_by="operator",
    ),
    Variable(
        name="GPU_DIRECT_RDMA_ENABLED",
        meaning=(
            "Load `nvidia-peermem` as well, on nodes with a network device of PCI vendor 15b3 and "
            "InfiniBand in the kernel. If it is compiled on the node, it is compiled against the "
            "network driver's build files. If it cannot be loaded, that is a warning."
        ),
        default="false",
        allowed=BOOLEAN,
    ),
    Variable(
        name="USE_HOST_MOFED",
        meaning=(
            "The network driver (MOFED, DOCA) is installed on the host, not in a container. With "
            "`GPU_DIRECT_RDMA_ENABLED`, its build files are then looked for in "
            "`/usr/src/ofa_kernel` of the host as well, not only in "
            "`/run/mellanox/drivers/usr/src/ofa_kernel`."
        ),
        default="false",
        allowed=BOOLEAN,
    ),
    Variable(
        name="TAKE_OVER_HOST_DRIVER",
        meaning=(
            "Unload and replace a driver that the host loaded, from a package of its own (as `--take-over`). "
            "Without it, such a node is refused and its driver left alone."
        ),
        default="false",
        allowed=BOOLEAN,
        set_by="manifest",
    ),
    Variable(
        name="HTTP_PROXY",
        meaning=(
            "Proxy for downloads of kernel headers (`http_proxy` as well). Passed to the package manager."
        ),
    ),
    Variable(
        name="HTTPS_PROXY",
        meaning="Proxy for downloads over TLS (`https_proxy` as well). Passed to the package manager.",
    ),
    Variable(
        name="NO_PROXY",
        meaning="Hosts to reach without a proxy (`no_proxy` as well). Passed to the package manager.",
    ),
    Variable(
        name="SSL_CERT_FILE",
        meaning=(
            "File with the certificate authorities to trust for downloads. Passed to the package manager."
        ),
    ),
    Variable(
        name="OPENSHIFT_VERSION",
        meaning=(
            "Release of the OpenShift cluster, for example `4.19`. Kernel headers are looked for in"
            " its repository as well (Red Hat family)."
        ),
    ),
    Variable(
        name="DNF_RELEASEVER",
        meaning=(
            "Release whose repositories have the kernel headers, if that is not the image's own "
            "(Red Hat family)."
        ),
    ),
    Variable(
        name="APT_CONFIG",
        meaning="Configuration file of apt, for downloads of kernel headers (Debian family).",
        set_by="manifest",
    ),
    Variable(
        name="PLAIN_COMPILE",
        meaning=(
            "Compile with NVIDIA's own conftest, and every object from its source: nothing that earlier "
            "compilations found out is used or kept ([fast-compile](fast-compile.md))."
        ),
        default="false",
        allowed=BOOLEAN,
        set_by="builder or manifest",
    ),
    Variable(
        name=IGNORE_REALTIME,
        meaning=(
            "Compile for a real-time kernel (PREEMPT_RT), too, which NVIDIA does not support "
            "([real-time kernels](matrix.md#real-time-kernels)). Any text but the empty one "
            "does; make and NVIDIA's conftest are told. Without it, such a kernel is refused before anything "
            "is compiled."
        ),
        set_by="builder or manifest",
    ),
    Variable(
        name="SOURCE_DATE_EPOCH",
        meaning=(
            "Time stamp of what `driverctl build` makes, in seconds since 1970, for reproducible "
            "builds. `build` refuses anything but a number."
        ),
        set_by="builder",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """The variables of the table as values."""

    # '' where it is not set: image.json says it then
    driver_version: str
    module_type: WantedModuleType
    # '' without an operator
    config_digest: str
    gpu_direct_rdma: bool
    mofed_on_host: bool
    take_over: bool
    plain_compile: bool
    realtime: bool


def parse(environ: Mapping[str, str]) -> DriverSettings:
    """Settings from the environment. An empty value counts as not set.

    Raises InputError with every bad value at once.
    """
    values = {v.name: environ.get(v.name, "").strip() or v.default for v in VARIABLES}
    problems = [
        f"environment: {v.name}={values[v.name]!r}: write one of {', '.join(v.allowed)}"
        for v in VARIABLES
        if v.allowed and values[v.name] and values[v.name] not in v.allowed
    ]
    if problems:
        raise InputError(
            "an environment variable has a value that is not allowed",
            details=problems,
            resolution="see docs/environment.md",
        )
    return DriverSettings(
        driver_version=values["DRIVER_VERSION"],
        module_type=WantedModuleType(values["KERNEL_MODULE_TYPE"]),
        config_digest=values["DRIVER_CONFIG_DIGEST"],
        gpu_direct_rdma=values["GPU_DIRECT_RDMA_ENABLED"] == "true",
        mofed_on_host=values["USE_HOST_MOFED"] == "true",
        take_over=values["TAKE_OVER_HOST_DRIVER"] == "true",
        plain_compile=values["PLAIN_COMPILE"] == "true",
        realtime=bool(values[IGNORE_REALTIME]),
    )
