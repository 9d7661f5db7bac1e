"""Module sets as an image has them, made of any module files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import MODULE_SET_NAME, ModuleSet
from driverforge_core.kernel import KernelRelease


def module_set(
    modules: Mapping[str, bytes],
    *,
    release: str,
    driver: str = "535.261.03",
    module_type: str = "open",
    signer: str = "",
    digests: tuple[str, ...] = (),
) -> dict[str, bytes]:
    """The files of a set below /opt/lib/modules/RELEASE: 'open/nvidia.ko' and the description beside it."""
    described = ModuleSet(
        driver=DriverVersion(driver),
        module_type=module_type,
        kernel=KernelRelease.parse(release),
        arch="amd64",
        compiler="gcc (Debian) 12.2.0",
        modules={name: f"sha256:{hashlib.sha256(ko).hexdigest()}" for name, ko in modules.items()},
        signer=signer,
        signature_digests=digests,
    )
    files = {MODULE_SET_NAME: described.to_json().encode(), **modules}
    return {f"{module_type}/{name}": content for name, content in files.items()}
