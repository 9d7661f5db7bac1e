"""An operand's row and manifest, made into its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_operator.crd.blocks import ContainerSettings
from driverforge_operator.crd.kubernetes import as_written
from driverforge_operator.crd.read import Problem
from driverforge_operator.operands import common
from driverforge_operator.operands.manifest import (
    Manifest,
    given_env,
    manifest,
    own,
    pod,
    set_env,
    stand_ready_taint,
)
from driverforge_operator.operands.openshiftfit import constraints
from driverforge_operator.operands.setting import Setting
from driverforge_operator.operands.table import Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`problems` say why the objects cannot be used."""

    objects: tuple[Manifest, ...]
    problems: tuple[Problem, ...] = ()


def render(operand: Operand, setting: Setting, owner: Manifest, variables: Mapping[str, str]) -> Rendered:
    """The objects of an operand.

    `variables` are the operator's variables with images, by the parts of the spec.
    """
    objects = manifest(operand.manifest, operand.folder)
    workloads = [one for one in objects if one["kind"] == "DaemonSet"]
    for workload in workloads:
        _settings(workload, operand, setting)
    if operand.rules:
        operand.rules(objects, setting)
    problems: list[Problem] = []
    for workload in workloads:
        objects += common.account(objects, pod(workload)["serviceAccountName"], setting.namespace)
        if setting.openshift and operand.constrained:
            objects.append(constraints(workload, setting.namespace))
        common.daemonsets(workload, setting.spec.daemonsets)
        if setting.ready_taint:
            stand_ready_taint(workload)
        common.host_paths(workload, setting.host)
        common.device_access(workload, operand.gpu, setting)
        common.checks(workload, setting.spec.validator)
        problems += common.images(workload, setting, variables)
        common.user_metadata(workload, setting.spec.daemonsets)
        common.restart_with(workload, setting.contents)
    own(objects, setting.namespace, owner)
    # pods cannot be made before there is the account that they name
    objects.sort(key=lambda one: one["kind"] == "DaemonSet")
    return Rendered(objects=tuple(objects), problems=tuple(problems))


def _settings(workload: Manifest, operand: Operand, setting: Setting) -> None:
    """What the spec says of the operand's own container."""
    wish = setting.image(operand.field) if operand.field else None
    if not isinstance(wish, ContainerSettings):
        return
    main = pod(workload)["containers"][0]
    if wish.resources:
        main["resources"] = as_written(wish.resources)
    if wish.args:
        main["args"] = list(wish.args)
    if wish.env:
        set_env(main, given_env(wish.env))
    if wish.host_network:
        pod(workload).update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
