"""Facts for tests of plans: a healthy node by default, with what a test is about given by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_driver.state.loadtree import stamp
from driverforge_driver.state.module_sets import ModuleSource, SourcePlace
from driverforge_host.gpu.pci import PciDevice
from driverforge_host.ports import LoadedModule

RELEASE = "6.1.0-50-cloud-amd64"
DRIVER = "535.261.03"
DIGEST = "d" * 64
NAMES = ("nvidia", "nvidia_uvm", "nvidia_modeset")
GPU = PciDevice(address="0000:3b:00.0", vendor=0x10DE, device=0x20B0, class_code=0x030200, driver="")


def image(*, sources: Sequence[str] = (), driver: str = DRIVER) -> ImageFacts:
    return ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion(driver),
        payload="packages",
        module_types=("open",),
        variant="precompiled",
        kernels=(KernelRelease.parse(RELEASE),),
        sources={name: f"/usr/src/{name}" for name in sources},
        firmware="",
    )


def source(
    module_type: str = "open",
    *,
    place: SourcePlace = SourcePlace.IMAGE,
    signer: str = "",
    signer_key: str = "",
    parameters: Sequence[str] = (),
    names: Sequence[str] = ("nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko"),
    size: int = 20 << 20,
) -> ModuleSource:
    modules = ModuleSet(
        driver=DriverVersion(DRIVER),
        module_type=module_type,
        kernel=KernelRelease.parse(RELEASE),
        arch="amd64",
        compiler="gcc",
        modules=dict.fromkeys(names, "sha256:" + "0" * 64),
        signer=signer,
        signer_key=signer_key,
    )
    path = f"{paths.MODULE_SETS}/{RELEASE}/{module_type}"
    return ModuleSource(
        place=place, path=path, modules=modules, signer=signer, parameters=frozenset(parameters), size=size
    )


def module(
    name: str, *, refcount: int | None = None, holders: Sequence[str] = (), version: str = DRIVER
) -> LoadedModule:
    return LoadedModule(
        name=name,
        refcount=len(holders) if refcount is None else refcount,
        holders=tuple(holders),
        version=version,
        state="Live",
    )


def loaded(version: str = DRIVER, *, extra: int = 0) -> dict[str, LoadedModule]:
    """The usual three modules, with `extra` references on nvidia that no module explains."""
    nvidia = module("nvidia", refcount=2 + extra, holders=("nvidia_modeset", "nvidia_uvm"), version=version)
    return {
        "nvidia": nvidia,
        "nvidia_uvm": module("nvidia_uvm", version=version),
        "nvidia_modeset": module("nvidia_modeset", version=version),
    }


def facts(**changes: Any) -> DriverFacts:
    """A node with a GPU, nothing loaded, and a precompiled image for its kernel."""
    plain: dict[str, Any] = {
        "user": 0,
        "release": RELEASE,
        "image": image(),
        "image_kernels": (RELEASE,),
        "sources": (source(),),
        "node_modules": f"/proc/1/root/lib/modules/{RELEASE}",
        "gpus": (GPU,),
        "firmware_path": "",
        "free": 10 << 30,
    }
    return DriverFacts(**{**plain, **changes})


def ready(**changes: Any) -> DriverFacts:
    """A node on which `init` has done everything."""
    done: dict[str, Any] = {
        "loaded": loaded(),
        "loaded_type": "open",
        "majors": {"nvidia-frontend": 195, "nvidia-uvm": 511},
        "root": RootState.OURS,
        "daemons_status": "Ready",
        "digest": DIGEST,
        "stamp": stamp(source(), f"/proc/1/root/lib/modules/{RELEASE}"),
        "firmware_path": "/run/nvidia/driver/lib/firmware",
        "state_left": True,
    }
    return facts(**{**done, **changes})


def wanted(**changes: Any) -> WantedDriver:
    plain: dict[str, Any] = {"goal": Goal.SERVE, "driver": DRIVER, "names": NAMES, "digest": DIGEST}
    return WantedDriver(**{**plain, **changes})
