"""The runtime classes by which pods ask for GPUs."""

from __future__ import annotations

from driverforge_operator.operands.manifest import Manifest
from driverforge_operator.operands.setting import Setting


def runtime_classes(objects: list[Manifest], setting: Setting) -> None:
    first, *of_cdi = objects
    first["metadata"]["name"] = first["handler"] = setting.spec.operator.runtime_class
    if not setting.cdi:
        for one in of_cdi:
            objects.remove(one)
