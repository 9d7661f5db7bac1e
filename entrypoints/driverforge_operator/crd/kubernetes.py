"""Kubernetes' own types, where they stand inside a custom resource."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from driverforge_operator.crd.model import Block, Quantity

LONGEST_MESSAGE = 32768
"""Characters of a condition's message: Kubernetes' own limit, beyond which the whole status is refused."""


class EnvVar(Block):
    """A variable of a container."""

    name: str
    value: str | None = None


class ResourceRequirements(Block):
    """What a container asks for, and what it may use."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Toleration(Block):
    """A taint that the pods stand."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class SELinuxOptions(Block):
    """The SELinux context of a pod."""

    level: str | None = None
    role: str | None = None
    type: str | None = None
    user: str | None = None


class Profile(Block):
    """A seccomp or AppArmor profile."""

    type: str
    localhost_profile: str | None = None


class Sysctl(Block):
    """A kernel setting of a pod."""

    name: str
    value: str


class WindowsOptions(Block):
    """Settings of Windows pods; no driver runs there."""

    gmsa_credential_spec: str | None = None
    gmsa_credential_spec_name: str | None = None
    host_process: bool | None = None
    run_as_user_name: str | None = None


class PodSecurityContext(Block):
    """The security settings of a whole pod."""

    app_armor_profile: Profile | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    run_as_user: int | None = None
    se_linux_change_policy: str | None = Field(default=None, alias="seLinuxChangePolicy")
    se_linux_options: SELinuxOptions | None = Field(default=None, alias="seLinuxOptions")
    seccomp_profile: Profile | None = None
    supplemental_groups: tuple[int, ...] | None = None
    supplemental_groups_policy: str | None = None
    sysctls: tuple[Sysctl, ...] | None = None
    windows_options: WindowsOptions | None = None


class Requirement(Block):
    """A condition on one label or field of a node."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Block):
    """Conditions that all hold."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class PreferredTerm(Block):
    """Conditions that count for a node by their weight."""

    preference: NodeSelectorTerm
    weight: int


class NodeSelector(Block):
    """Terms of which one holds."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class NodeAffinity(Block):
    """Which nodes pods go to."""

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Probe(Block):
    """Times of a probe; what it runs is the driver's own."""

    initial_delay_seconds: int | None = None
    timeout_seconds: int | None = Field(default=None, ge=1)
    period_seconds: int | None = Field(default=None, ge=1)
    success_threshold: int | None = Field(default=None, ge=1)
    failure_threshold: int | None = Field(default=None, ge=1)


class Condition(Block):
    """What is so of a resource, since when, and why."""

    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    message: str = Field(max_length=LONGEST_MESSAGE)
    observed_generation: int | None = Field(default=None, ge=0)
    reason: str = Field(min_length=1, max_length=1024)
    status: Literal["True", "False", "Unknown"]
    type: str = Field(max_length=316)


class RelabelConfig(Block):
    """A rule of Prometheus that rewrites labels."""

    action: str | None = None
    modulus: int | None = None
    regex: str | None = None
    replacement: str | None = None
    separator: str | None = None
    source_labels: tuple[str, ...] | None = None
    target_label: str | None = None


class ServiceMonitor(Block):
    """How Prometheus reads the metrics."""

    enabled: bool | None = None
    interval: str | None = None
    scrape_timeout: str | None = None
    honor_labels: bool | None = None
    additional_labels: dict[str, str] | None = None
    relabelings: tuple[RelabelConfig, ...] | None = None


def as_written(block: Block) -> dict[str, Any]:
    """A block as it stands in a manifest: the API's names, and only what was written or has a default."""
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)
