"""NVIDIA's real open kernel modules on a PCI function that exists in software only.

They are loaded, used, refused and unloaded.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import TemporaryFailure, Unavailable
from support.machines import kernels, kmods
from support.machines.engine import find_or_start
from support.machines.guest import GuestResult, Machine, once
from support.machines.kernels import Kernel
from support.skipping import provided
from support.upstream import nvidia_modules, realimage
from support.upstream.realimage import Target

CYCLE = f"""
    cd /m
    insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS} || exit
    insmod nvidia.ko NVreg_RegistryDwords=RMTest=1 && insmod nvidia-uvm.ko && insmod nvidia-modeset.ko || exit
    echo "version $(cat /sys/module/nvidia/version)"
    echo "parameter $(grep RegistryDwords: /proc/driver/nvidia/params)"
    cat /proc/driver/nvidia/gpus/*/information
    grep nvidia /proc/devices
    rmmod nvidia; echo "rmmod while used by modules: $?"
    mknod /dev/nvidiactl c 195 255
    exec 5</dev/nvidiactl
    rmmod nvidia-modeset nvidia-uvm; echo "rmmod of what nobody uses: $?"
    rmmod nvidia; echo "rmmod while open: $?"
    exec 5<&-
    rmmod nvidia; echo "rmmod: $?"
    lsmod
"""


def _check(result: GuestResult, version: str) -> None:
    output = result.ok()
    assert f"version {version}\n" in output
    assert 'RegistryDwords: "RMTest=1"' in output
    assert "NVIDIA A100" in output
    assert "195 nvidia" in output
    assert (
        "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset\n"
        "rmmod while used by modules: 1\n" in output
    )
    assert "rmmod of what nobody uses: 0\n" in output
    assert "rmmod: ERROR: Module nvidia is in use\nrmmod while open: 1\n" in output
    assert output.rpartition("rmmod: 0\n")[2].count("nvidia") == 0, output
    assert "loading NVIDIA UNIX Open Kernel Module" in result.console


@dataclass(frozen=True, slots=True)
class Built:
    """Modules of one driver for one kernel."""

    kernel: Kernel
    driver: str
    modules: Path
    fakegpu: Path


@functools.cache
def _built(target: Target) -> Built:
    """NVIDIA's modules out of the image that `driverforge` builds in a container.

    Where there is no engine, NVIDIA's own Makefile builds them.
    """
    try:
        engine = find_or_start()
    except TemporaryFailure:
        raise
    except Unavailable:
        kernel = kernels.newest(target.series)
        return Built(
            kernel,
            nvidia_modules.version(target.branch),
            nvidia_modules.build(target.branch, kernel),
            kmods.fakegpu(kernel),
        )
    try:
        image = realimage.build(engine, target)
        kernel = kernels.of(image.kernel)
        return Built(kernel, image.driver, image.modules, kmods.fakegpu(kernel, engine))
    finally:
        engine.stop()


# compiles for minutes when neither the cache nor the engine tier has done it
pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module", params=realimage.TARGETS, ids=str)
def built(request: pytest.FixtureRequest) -> Built:
    """What the engine tier of the same run has compiled."""
    return provided(lambda: _built(request.param))


@pytest.fixture
def booted(machine: Machine, built: Built) -> Machine:
    """A guest with the very kernel of the modules."""
    return replace(machine, image=kernels.image(built.kernel.release))


def test_load_in_use_and_unload(booted: Machine, built: Built) -> None:
    _check(once(booted, CYCLE, files={"/m": built.modules, "/gpu": built.fakegpu}), built.driver)


def test_without_a_gpu_the_driver_says_so_and_stays_out(booted: Machine, built: Built) -> None:
    script = "insmod /m/nvidia.ko; echo $?; ls /proc/driver/nvidia; lsmod | grep -c nvidia"
    result = once(booted, script, files={"/m": built.modules})
    assert "insmod: ERROR: could not insert module /m/nvidia.ko: No such device\n1\n" in result.output
    assert result.output.endswith("\n0\n")
    assert "NVRM: No NVIDIA GPU found." in result.console


def test_modules_of_another_kernel_are_refused(machine: Machine, built: Built) -> None:
    series = "6.1" if built.kernel.release.startswith("6.12.") else "6.12"
    other = replace(machine, image=kernels.image(kernels.newest(series).release))
    result = once(other, "insmod /m/nvidia.ko", files={"/m": built.modules})
    assert result.rc != 0
    assert "could not insert module /m/nvidia.ko: Invalid module format" in result.output
    # which of its two checks comes first is the kernel's choice
    assert re.search(
        r"nvidia: (disagrees about version of symbol|.* must match the kernel's built struct module)",
        result.console,
    )


@pytest.mark.full(reason="compiles two more drivers")
@pytest.mark.parametrize(("branch", "series"), [("535", "6.12"), ("550", "6.1")])
def test_the_other_combinations(machine: Machine, branch: str, series: str) -> None:
    """By NVIDIA's own Makefile: Debian has no image row for them."""
    kernel = kernels.newest(series)
    modules = nvidia_modules.build(branch, kernel)
    other = replace(machine, image=kernels.image(kernel.release))
    _check(
        once(other, CYCLE, files={"/m": modules, "/gpu": kmods.fakegpu(kernel)}),
        nvidia_modules.version(branch),
    )
