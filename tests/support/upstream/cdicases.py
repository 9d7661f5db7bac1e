"""Recorded cases of NVIDIA's toolkit about CDI specs and device files: Go's values as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from driverforge_toolkit.cdi.spec import ContainerEdits, DeviceNode, Spec, SpecDevice, SpecHook, SpecMount

FOLDER = Path(__file__).parents[2] / "cases" / "toolkit"
Case = dict[str, Any]


def load(folder: str, *operations: str) -> list[Case]:
    """The cases of a folder that are about one of these operations; all without any."""
    cases = [json.loads(path.read_text()) for path in sorted((FOLDER / folder).glob("*.json"))]
    return [case for case in cases if not operations or case["operation"] in operations]


def title(case: Case) -> str:
    return str(case["id"]).partition("/")[2]


def not_used(folder: str) -> dict[str, int]:
    """Recorded cases that are not here: operation to number."""
    found: dict[str, int] = {}
    for group in json.loads((FOLDER / "not-used.json").read_text())[folder]:
        assert group["because"]
        for operation, count in group["operations"].items():
            found[operation] = found.get(operation, 0) + count
    return found


def spec(value: Mapping[str, Any]) -> Spec:
    devices = tuple(device(item) for item in value["Devices"] or ())
    return Spec(
        version=value["Version"], kind=value["Kind"], devices=devices, edits=edits(value["ContainerEdits"])
    )


def device(value: Mapping[str, Any]) -> SpecDevice:
    return SpecDevice(name=value["Name"], edits=edits(value["ContainerEdits"]))


def edits(value: Mapping[str, Any]) -> ContainerEdits:
    return ContainerEdits(
        env=tuple(value["Env"] or ()),
        device_nodes=nodes(value["DeviceNodes"]),
        hooks=tuple(hook(item) for item in value["Hooks"] or ()),
        mounts=mounts(value["Mounts"]),
        additional_gids=tuple(value["AdditionalGIDs"] or ()),
    )


def nodes(values: Iterable[Mapping[str, Any]] | None) -> tuple[DeviceNode, ...]:
    return tuple(
        DeviceNode(
            path=item["Path"],
            host_path=item["HostPath"],
            type=item["Type"],
            major=item["Major"],
            minor=item["Minor"],
            file_mode=item["FileMode"],
            permissions=item["Permissions"],
            gid=item["GID"],
        )
        for item in values or ()
    )


def mounts(values: Iterable[Mapping[str, Any]] | None) -> tuple[SpecMount, ...]:
    return tuple(
        SpecMount(
            host_path=item["HostPath"],
            container_path=item["ContainerPath"],
            options=tuple(item["Options"] or ()),
            type=item["Type"],
        )
        for item in values or ()
    )


def hook(value: Mapping[str, Any]) -> SpecHook:
    """Of a spec (HookName) or of a discoverer (Lifecycle)."""
    name = value["HookName"] if "HookName" in value else value["Lifecycle"]
    return SpecHook(
        name=name, path=value["Path"], args=tuple(value["Args"] or ()), env=tuple(value["Env"] or ())
    )


def hooks(values: Iterable[Mapping[str, Any]] | None) -> tuple[SpecHook, ...]:
    return tuple(hook(item) for item in values or ())
