"""Every environment variable that the driver commands read, in one table.

The operator hands its configuration to the driver pod in these (the names are NVIDIA's contract); `docs/environment.md` is
generated from the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable: what it means, its default, and who usually sets it."""

    name: str
    meaning: str
    default: str = ""
    set_by: str = "operator or manifest"
    allowed: tuple[str, ...] = ()


BOOLEAN = ("true", "false")

VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="DRIVER_VERSION", meaning="Version of the driver in the image, as `535.261.03`.", set_by="image"
    ),
    Variable(
        name="DRIVER_BRANCH",
        meaning="Branch of the driver in the image, for programs that expect it there. Not read: `DRIVER_VERSION` says it.",
        set_by="image",
    ),
    Variable(
        name="TARGETARCH",
        meaning="Architecture of the image, for programs that expect it there. Not read: `/opt/driverforge/image.json` says it.",
        set_by="image",
    ),
    Variable(
        name="DRIVER_TYPE",
        meaning="`passthrough`: the data-centre driver. `vgpu` is not served by this image and is refused.",
        default="passthrough",
        set_by="image",
        allowed=("passthrough",),
    ),
    Variable(
        name="KERNEL_MODULE_TYPE",
        meaning="Which kernel modules to load. `auto` goes by the GPUs of the node, the driver branch, and what the image has.",
        default="auto",
        allowed=("auto", "open", "proprietary"),
    ),
    Variable(
        name="DRIVER_CONFIG_DIGEST",
        meaning="Digest of the operator's configuration. A driver that was loaded under the same digest, in the same version, "
        "is kept loaded. "
        "Where it is not set, driverctl computes one from these settings.",
        set_by="operator",
    ),
    Variable(
        name="GPU_DIRECT_RDMA_ENABLED",
        meaning="Also load `nvidia-peermem`, on nodes with a network device of PCI vendor 15b3 and InfiniBand in the kernel. Where it is "
        "compiled on the node, it is compiled against the network driver's build files. That it cannot be loaded is a warning.",
        default="false",
        allowed=BOOLEAN,
    ),
    Variable(
        name="USE_HOST_MOFED",
        meaning="The network driver (MOFED, DOCA) is installed on the host, not in a container. Read together with "
        "`GPU_DIRECT_RDMA_ENABLED`: its build files are then also looked for in `/usr/src/ofa_kernel` of the host, not only in "
        "`/run/mellanox/drivers/usr/src/ofa_kernel`.",
        default="false",
        allowed=BOOLEAN,
    ),
    Variable(
        name="HTTP_PROXY",
        meaning="Proxy for downloads of kernel headers (`http_proxy` as well). Handed to the package manager.",
    ),
    Variable(
        name="HTTPS_PROXY",
        meaning="Proxy for downloads over TLS (`https_proxy` as well). Handed to the package manager.",
    ),
    Variable(
        name="NO_PROXY",
        meaning="Hosts that are reached without a proxy (`no_proxy` as well). Handed to the package manager.",
    ),
    Variable(
        name="SSL_CERT_FILE",
        meaning="A file with the certificate authorities to trust for downloads. Handed to the package manager.",
    ),
    Variable(
        name="OPENSHIFT_VERSION",
        meaning="Release of the OpenShift cluster, as `4.19`: kernel headers are also looked for in its repository (Red Hat family).",
    ),
    Variable(
        name="DNF_RELEASEVER",
        meaning="Release whose repositories have the kernel headers, where it is another than the image's (Red Hat family).",
    ),
    Variable(
        name="APT_CONFIG",
        meaning="A configuration file of apt for downloads of kernel headers (Debian family).",
        set_by="manifest",
    ),
    Variable(
        name="SOURCE_DATE_EPOCH",
        meaning="Time stamp of what `driverctl build` makes, in seconds since 1970, for builds that come out the same bytes again. "
        "Anything but a number is refused by `build`.",
        set_by="builder",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The variables of the table as values."""

    driver_version: str  # '' where the image does not say (then image.json does)
    module_type: str  # 'auto', 'open', 'proprietary'
    config_digest: str  # '' outside an operator
    gpu_direct_rdma: bool
    host_mofed: bool


def parse(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment; an empty value counts as not set. Raises InputError with every bad value at once."""
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
    return Settings(
        driver_version=values["DRIVER_VERSION"],
        module_type=values["KERNEL_MODULE_TYPE"],
        config_digest=values["DRIVER_CONFIG_DIGEST"],
        gpu_direct_rdma=values["GPU_DIRECT_RDMA_ENABLED"] == "true",
        host_mofed=values["USE_HOST_MOFED"] == "true",
    )


def page() -> str:
    """docs/environment.md, in full."""
    lines = [
        "# Environment variables",
        "",
        "What `driverctl init`, `load`, `unload`, `build` and `status` (and the name `nvidia-driver`) read from their environment.",
        "Any other value than an allowed one ends with exit status 65 and a message that lists every bad value.",
        "",
        "This page is generated from `entrypoints/driverforge_node/settings.py` by `hack/environment-page`.",
        "",
        "| variable | meaning | allowed | default | set by |",
        "|---|---|---|---|---|",
    ]
    for v in VARIABLES:
        allowed = ", ".join(f"`{word}`" for word in v.allowed) or "any text"
        default = f"`{v.default}`" if v.default else "not set"
        lines.append(f"| `{v.name}` | {v.meaning} | {allowed} | {default} | {v.set_by} |")
    return "\n".join(lines) + "\n"
