"""What is wanted of the driver: from the environment, the image, and the operator's parameter files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from driverforge_core.errors import Unsupported
from driverforge_core.names import NVIDIA_MODULES, PEERMEM
from driverforge_driver.state import paths, variables
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.module_sets import read_image
from driverforge_host.ports import Files, Host, text_of

BASE_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset")


def read_wanted(
    host: Host,
    goal: Goal,
    *,
    take_over: bool = False,
    kernel: str = "",
    may_build: bool = True,
    jobs: int = 0,
    headers: str = "",
    work: str = "",
) -> WantedDriver:
    """The wanted state for a command's `goal`. The other arguments are as in WantedDriver.

    Raises InputError for bad values in the environment, Unsupported where nothing says the driver's version.
    """
    settings = variables.parse(host.environ)
    image = read_image(host.files)
    driver = settings.driver_version or (image.driver.text if image else "")
    if not driver and goal.loads:
        raise Unsupported(
            "the driver version is not known",
            details=["DRIVER_VERSION is not set", f"{paths.IMAGE} is missing"],
            resolution="run driverctl from an image that `driverforge build` made",
        )
    names = (*BASE_MODULES, *((PEERMEM,) if settings.gpu_direct_rdma else ()))
    parameters = read_parameters(host.files)
    digest = settings.config_digest or own_digest(driver, settings.module_type.value, names, parameters)
    return WantedDriver(
        goal=goal,
        driver=driver,
        module_type=settings.module_type,
        names=BASE_MODULES,
        peermem=settings.gpu_direct_rdma,
        mofed_on_host=settings.mofed_on_host,
        parameters=parameters,
        digest=digest,
        take_over=take_over or settings.take_over,
        kernel=kernel,
        may_build=may_build,
        jobs=jobs,
        headers=headers,
        work=work,
    )


def read_parameters(files: Files) -> dict[str, tuple[str, ...]]:
    """The operator's kernelModuleConfig as {module: parameters}. A module without parameters is left out.

    Its files are /drivers/nvidia.conf, /drivers/nvidia-uvm.conf and so on, with one parameter a line. Empty
    lines, and lines that start with #, do not count.
    """
    found = {}
    for name in NVIDIA_MODULES:
        lines = text_of(files, f"{paths.PARAMETER_FILES}/{name.replace('_', '-')}.conf").splitlines()
        found[name] = tuple(
            line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
        )
    return {name: words for name, words in found.items() if words}


def own_digest(
    driver: str, module_type: str, names: tuple[str, ...], parameters: Mapping[str, tuple[str, ...]]
) -> str:
    """A configuration digest for a start without an operator: of all that decides what is loaded, and how."""
    content = json.dumps(
        [driver, module_type, names, {name: list(words) for name, words in sorted(parameters.items())}]
    )
    return hashlib.sha256(content.encode()).hexdigest()
