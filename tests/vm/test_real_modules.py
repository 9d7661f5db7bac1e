"""NVIDIA's real open kernel modules on a PCI function that exists in software only: load, in use, refuse, unload."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from support import kernels, kmods, nvidia_modules
from support.guest import GuestResult, Machine, once
from support.kernels import Kernel
from support.skipping import provided

BRANCH = "535"
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


def _files(kernel: Kernel, modules: Path) -> dict[str, Path | bytes | str]:
    return {"/m": modules, "/gpu": kmods.fakegpu(kernel)}


def _check(result: GuestResult, version: str) -> None:
    output = result.ok()
    assert f"version {version}\n" in output
    assert 'RegistryDwords: "RMTest=1"' in output
    assert "NVIDIA A100" in output
    assert "195 nvidia" in output
    assert "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset\nrmmod while used by modules: 1\n" in output
    assert "rmmod of what nobody uses: 0\n" in output
    assert "rmmod: ERROR: Module nvidia is in use\nrmmod while open: 1\n" in output
    assert output.rpartition("rmmod: 0\n")[2].count("nvidia") == 0, output
    assert "loading NVIDIA UNIX Open Kernel Module" in result.console


@pytest.fixture(scope="module")
def modules(kernel: Kernel) -> Path:
    return provided(lambda: nvidia_modules.build(BRANCH, kernel))


@pytest.mark.timeout(2400)  # compiles for minutes when the cache is empty
def test_load_in_use_and_unload(machine: Machine, kernel: Kernel, modules: Path) -> None:
    _check(once(machine, CYCLE, files=_files(kernel, modules)), nvidia_modules.version(BRANCH))


@pytest.mark.timeout(2400)
def test_without_a_gpu_the_driver_says_so_and_stays_out(machine: Machine, modules: Path) -> None:
    result = once(machine, "insmod /m/nvidia.ko; echo $?; ls /proc/driver/nvidia; lsmod | grep -c nvidia", files={"/m": modules})
    assert "insmod: ERROR: could not insert module /m/nvidia.ko: No such device\n1\n" in result.output
    assert result.output.endswith("\n0\n")
    assert "NVRM: No NVIDIA GPU found." in result.console


@pytest.mark.timeout(2400)
def test_modules_of_another_kernel_are_refused(machine: Machine, kernel_612: Kernel, modules: Path) -> None:
    other = replace(machine, image=kernels.image(kernel_612.release))
    result = once(other, "insmod /m/nvidia.ko", files={"/m": modules})
    assert result.rc != 0
    assert "could not insert module /m/nvidia.ko: Invalid module format" in result.output
    # which of its two checks comes first is the kernel's choice
    assert re.search(r"nvidia: (disagrees about version of symbol|.* must match the kernel's built struct module)", result.console)


@pytest.mark.full(reason="compiles a second driver")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("branch", "series"), [("535", "6.12"), ("550", "6.1"), ("550", "6.12")])
def test_the_other_combinations(machine: Machine, branch: str, series: str) -> None:
    kernel = kernels.newest(series)
    modules = nvidia_modules.build(branch, kernel)
    booted = replace(machine, image=kernels.image(kernel.release))
    _check(once(booted, CYCLE, files=_files(kernel, modules)), nvidia_modules.version(branch))
