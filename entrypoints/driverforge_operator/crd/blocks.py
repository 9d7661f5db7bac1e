"""Blocks that both custom resources have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from driverforge_operator.crd.kubernetes import EnvVar, ResourceRequirements
from driverforge_operator.crd.model import Block, IntOrString

KernelModuleType = Literal["auto", "open", "proprietary"]
ImageName = Annotated[str, Field(pattern=r"[a-zA-Z0-9\-]+")]


class Image(Block):
    """Which image: repository, image and version together, or the whole name in `image`.

    A version that begins with `sha256:` is a digest. What is not written comes from the operator's own
    settings.
    """

    repository: str | None = None
    image: ImageName | None = None
    version: str | None = None
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[str, ...] | None = None


class Switched(Block):
    """What can be left out of the cluster."""

    enabled: bool | None = None


class ContainerSettings(Image):
    """An image and how its container is run."""

    resources: ResourceRequirements | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    host_network: bool | None = None


class Operand(ContainerSettings, Switched):
    """A program on the nodes: whether, which image, and how it is run."""


class SideCar(Image, Switched):
    """A program beside the driver: whether, which image, with which arguments."""

    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


class DriverManager(Image):
    """The init container that makes a node ready for another driver."""

    env: tuple[EnvVar, ...] | None = None


class Rdma(Block):
    """GPUDirect RDMA: nvidia-peermem beside the driver."""

    enabled: bool | None = None
    use_host_mofed: bool | None = None


class Named(Block):
    """The name of a ConfigMap or Secret."""

    name: str | None = None


class WaitForCompletion(Block):
    """Jobs that an upgrade waits for."""

    pod_selector: str | None = None
    timeout_seconds: int = Field(default=0, ge=0)


class PodDeletion(Block):
    """How pods that use GPUs are removed."""

    force: bool = False
    timeout_seconds: int = Field(default=300, ge=0)
    delete_empty_dir: bool = False


class Drain(Block):
    """How a node is drained."""

    enable: bool = False
    force: bool = False
    pod_selector: str | None = None
    timeout_seconds: int = Field(default=300, ge=0)
    delete_empty_dir: bool = False


class UpgradePolicy(Block):
    """How a new driver comes to nodes that run an old one."""

    auto_upgrade: bool = False
    max_parallel_upgrades: int = Field(default=1, ge=0)
    max_unavailable: IntOrString = "25%"
    wait_for_completion: WaitForCompletion | None = None
    pod_deletion: PodDeletion | None = None
    drain: Drain | None = None


class PoolStatus(Block):
    """Nodes that get the same driver: what they run, and how many of their pods are there."""

    name: str
    """The DaemonSet."""
    os: str
    arch: str | None = None
    kernel: str | None = None
    """Where the driver is precompiled for it."""
    image: str | None = None
    desired: int
    ready: int
    up_to_date: int
    reason: str | None = None
    """Why it stays as it is."""
    message: str | None = None
    """What is missing or wrong, and the command that helps."""
