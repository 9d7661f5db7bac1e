"""What a driver's spec asks for and cannot have, where a schema does not see it or was not there yet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from driverforge_core import nodekeys
from driverforge_operator.crd.blocks import Image, SideCar
from driverforge_operator.operands.driver import DriverPool
from driverforge_operator.operands.manifest import image_name

_OPEN_ONLY = (2, 17, 5)
"""From this version on GDS' module uses symbols that the open kernel modules alone export."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def problems(driver: DriverPool) -> str:
    """All that is wrong, each with the field's path and what to write; '' for nothing."""
    return "; ".join(_problems(driver))


def _problems(driver: DriverPool) -> Iterator[str]:
    spec, path = driver.spec, "spec.driver" if driver.whole else "spec"
    if spec.default and spec.node_selector:
        yield "spec.default: it is for nodes that no other claims: leave out nodeSelector, or default"
    if nodekeys.DRIVER_OWNER in (spec.node_selector or {}):
        yield f"spec.nodeSelector: the operator writes {nodekeys.DRIVER_OWNER}; use another label"
    if driver.precompiled and (spec.version or "").startswith("sha256:"):
        yield f"{path}.version: a digest names one kernel's image: write the driver's branch, e.g. '580'"
    cars = {name: car for name, car in (("gds", spec.gds), ("gdrcopy", spec.gdrcopy)) if car and car.enabled}
    if driver.precompiled and cars:
        them = " and no ".join(cars)
        yield f"{path}.usePrecompiled: precompiled drivers have no {them}: leave out usePrecompiled or those"
    if "gds" in cars and spec.kernel_module_type != "open" and (version := _open_only(cars["gds"])):
        yield f"{path}.kernelModuleType: write open: GDS {version} works with the open kernel modules only"
    named = {path: driver.image, f"{path}.manager": image_name(spec.manager or Image())}
    named |= {f"spec.{field}": image_name(car) for field, car in cars.items()}
    if missing := [field for field, image in named.items() if not image]:
        yield f"{', '.join(missing)}: name the image: repository, image and version, or all of it in image"


def _open_only(gds: SideCar) -> str:
    """The version of a GDS that works with the open modules only; '' for others, and where none is told."""
    version = gds.version or ""
    if version.startswith("sha256:"):
        return version  # nobody can say, and releases of today do
    found = _VERSION.match(version)
    return version if found and tuple(int(part or 0) for part in found.groups()) >= _OPEN_ONLY else ""
