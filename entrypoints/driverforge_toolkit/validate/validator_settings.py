"""Every variable that `nvidia-validator` reads, in one table; each has a flag of the same name.

NVIDIA's operator configures its validator pods by them. `hack/environment-page` makes
docs/validator-environment.md of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_core import validations
from driverforge_core.errors import InputError
from driverforge_core.nodekeys import WORKLOADS
from driverforge_core.validations import Component


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `kind` is 'text', 'bool' or 'number'; '' as `default` is not set."""

    name: str
    meaning: str
    default: str = ""
    kind: str = "text"
    allowed: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.lower().replace("_", "-")


TRUE, FALSE = ("1", "t", "true"), ("0", "f", "false")

VARIABLES: tuple[Setting, ...] = (
    Setting(
        name="COMPONENT",
        meaning="Which part to look at; `metrics` serves metrics and stays.",
        allowed=tuple(component.value for component in Component),
    ),
    Setting(
        name="WITH_WAIT",
        meaning="Look again until the part works, instead of failing.",
        default="false",
        kind="bool",
    ),
    Setting(
        name="SLEEP_INTERVAL_SECONDS",
        meaning="Pause between two looks.",
        default="5",
        kind="number",
    ),
    Setting(
        name="WITH_WORKLOAD",
        meaning="`plugin`: also run a pod that asks for a GPU, and computes on it.",
        default="true",
        kind="bool",
    ),
    Setting(
        name="CLEANUP_ALL",
        meaning="First remove every file that a validator wrote.",
        default="false",
        kind="bool",
    ),
    Setting(
        name="OUTPUT_DIR",
        meaning="Folder of the files by which containers wait for each other.",
        default=validations.FOLDER,
    ),
    Setting(
        name="NODE_NAME",
        meaning="The node's name. `plugin`, `metrics` and sandbox parts need it; `driver` takes the label "
        "`nvidia.com/gpu.deploy.driver=pre-installed` off it once the node's own driver is gone.",
    ),
    Setting(
        name="OPERATOR_NAMESPACE",
        meaning="Where the operator's pods are. `driver` asks there whether the driver comes from a pod.",
    ),
    Setting(
        name="KUBECONFIG",
        meaning="A kubeconfig as JSON. Not set: the pod's own service account.",
    ),
    Setting(
        name="HOST_ROOT",
        meaning="The host's root as the host calls it; it is written to `driver-ready`.",
        default="/",
    ),
    Setting(
        name="DRIVER_INSTALL_DIR",
        meaning="The driver's root as the host calls it, where a container brings the driver.",
        default="/run/nvidia/driver",
    ),
    Setting(
        name="DRIVER_INSTALL_DIR_CTR_PATH",
        meaning="The same folder as this container calls it.",
        default="/run/nvidia/driver",
    ),
    Setting(
        name="DISABLE_DEV_CHAR_SYMLINK_CREATION",
        meaning="`driver`: make no links to device files in `/dev/char`.",
        default="false",
        kind="bool",
    ),
    Setting(
        name="DRIVER_VALIDATION_SKIP_GPU_INIT",
        meaning="`driver`: run no nvidia-smi. The loaded module and its device number are looked at instead, "
        "which does not show that a GPU works.",
        default="false",
        kind="bool",
    ),
    Setting(
        name="MIG_STRATEGY",
        meaning="`plugin`: `mixed` takes MIG resources first for its pod.",
        default="single",
        allowed=("none", "single", "mixed"),
    ),
    Setting(
        name="DEFAULT_GPU_WORKLOAD_CONFIG",
        meaning="What a node is for that has no label `nvidia.com/gpu.workload.config`.",
        default="container",
        allowed=WORKLOADS,
    ),
    Setting(
        name="METRICS_PORT", meaning="Port of `metrics`; 0 is refused there.", default="0", kind="number"
    ),
    Setting(name="VALIDATOR_IMAGE", meaning="Image of the pod of `WITH_WORKLOAD`: the validator's own."),
    Setting(name="VALIDATOR_IMAGE_PULL_POLICY", meaning="Its pull policy.", default="IfNotPresent"),
    Setting(name="VALIDATOR_IMAGE_PULL_SECRETS", meaning="Its pull secrets, separated by commas."),
    Setting(name="VALIDATOR_RUNTIME_CLASS", meaning="Its runtime class."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorSettings:
    """The variables' values, one field each."""

    component: Component
    with_wait: bool
    sleep_interval_seconds: int
    with_workload: bool
    cleanup_all: bool
    output_dir: str
    node_name: str
    operator_namespace: str
    kubeconfig: str
    host_root: str
    driver_install_dir: str
    driver_install_dir_ctr_path: str
    disable_dev_char_symlink_creation: bool
    driver_validation_skip_gpu_init: bool
    mig_strategy: str
    default_gpu_workload_config: str
    metrics_port: int
    validator_image: str
    validator_image_pull_policy: str
    validator_image_pull_secrets: str
    validator_runtime_class: str


def parse(environ: Mapping[str, str], flags: Mapping[str, str | None]) -> ValidatorSettings:
    """Flags, by the variable's name, count before variables. Raises InputError with every wrong value."""
    texts = {v.name: flags.get(v.name) or environ.get(v.name) or v.default for v in VARIABLES}
    problems = [problem for v in VARIABLES if (problem := _problem(v, texts[v.name]))]
    if texts["COMPONENT"] == Component.METRICS.value and texts["METRICS_PORT"] == "0":
        problems.append("METRICS_PORT: the component metrics needs a port, for example 8000")
    if problems:
        raise InputError(
            "the validator cannot start with these settings",
            details=problems,
            resolution="set them on the container; all variables are in docs/validator-environment.md",
        )
    values = {v.name.lower(): _value(v, texts[v.name]) for v in VARIABLES}
    return ValidatorSettings(**{**values, "component": Component(texts["COMPONENT"])})  # type: ignore[arg-type]


def _problem(variable: Setting, text: str) -> str:
    """What is wrong with a value, '' for nothing."""
    if variable.allowed and text not in variable.allowed:
        return f"{variable.name}={text!r}: write one of {', '.join(variable.allowed)}"
    if variable.kind == "bool" and text.lower() not in TRUE + FALSE:
        return f"{variable.name}={text!r}: write true or false"
    # 65535 is the last port, and a pause of 18 hours
    if variable.kind == "number" and not (text.isascii() and text.isdigit() and int(text[:9]) <= 0xFFFF):
        return f"{variable.name}={text!r}: write a number from 0 to 65535"
    return ""


def _value(variable: Setting, text: str) -> str | bool | int:
    if variable.kind == "bool":
        return text.lower() in TRUE
    return int(text) if variable.kind == "number" else text
