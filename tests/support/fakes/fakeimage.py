"""What an image holds, written into a fake container: its description, module sets, firmware.

The modules are real ELF files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import MODULE_SET_NAME, ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.names import normalise
from driverforge_core.osid import OsId
from driverforge_driver.state import paths
from support.fakes.fakefiles import FakeFiles
from support.samples.tinyko import tiny_ko

RELEASE = "6.1.0-50-cloud-amd64"
DRIVER = "535.261.03"
KO_DEPENDS = {
    "nvidia": "i2c_core",
    "nvidia-uvm": "nvidia",
    "nvidia-modeset": "nvidia",
    "nvidia-peermem": "nvidia",
}


def write_modules(
    files: FakeFiles,
    folder: str,
    *,
    driver: str = DRIVER,
    release: str = RELEASE,
    module_type: str = "open",
    parm: Sequence[str] = (),
    trailer: bytes = b"",
    signer_key: str = "",
    names: Sequence[str] = tuple(KO_DEPENDS),
) -> None:
    """A module set as a build leaves it."""
    files.make_dirs(folder)
    digests = {}
    for name in names:
        entries = [
            f"version={driver}",
            f"depends={KO_DEPENDS[name]}",
            f"name={normalise(name)}",
            f"vermagic={release} SMP mod_unload",
        ]
        data = tiny_ko([*entries, *(f"parm={p}:" for p in parm)]) + trailer
        files.write_atomic(f"{folder}/{name}.ko", data)
        digests[f"{name}.ko"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
    described = ModuleSet(
        driver=DriverVersion(driver),
        module_type=module_type,
        kernel=KernelRelease.parse(release),
        arch="amd64",
        compiler="gcc 12",
        modules=digests,
        signer="",
        signer_key=signer_key,
    )
    files.write_atomic(f"{folder}/{MODULE_SET_NAME}", described.to_json().encode())


def write_image(
    files: FakeFiles,
    *,
    driver: str = DRIVER,
    release: str = RELEASE,
    module_types: Sequence[str] = ("open",),
    sources: Mapping[str, str] | None = None,
    source_digests: Mapping[str, str] | None = None,
    modules: bool = True,
    firmware: bool = True,
) -> None:
    """An image's description with its module sets and its firmware, in the container's root."""
    facts = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion(driver),
        payload="packages",
        module_types=tuple(module_types),
        variant="jit" if sources else "precompiled",
        kernels=(KernelRelease.parse(release),) if modules else (),
        sources=dict(sources or {}),
        source_digests=dict(source_digests or {}),
        firmware="/opt/driverforge/firmware" if firmware else "",
    )
    files.make_dirs("/opt/driverforge")
    files.write_atomic(paths.IMAGE, facts.to_json().encode())
    files.make_dirs("/dev")
    for module_type in module_types if modules else ():
        write_modules(
            files,
            f"{paths.MODULE_SETS}/{release}/{module_type}",
            driver=driver,
            release=release,
            module_type=module_type,
        )
    if firmware:
        files.make_dirs(f"/opt/driverforge/firmware/nvidia/{driver}")
        files.write_atomic(f"/opt/driverforge/firmware/nvidia/{driver}/gsp_tu10x.bin", b"firmware")
