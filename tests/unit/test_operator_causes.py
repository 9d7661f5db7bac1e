"""Each row of the causes shows in words that kubelets, kernels, installers and our own programs use."""

from __future__ import annotations

import re

import click
import pytest

from driverforge_build.cli import cli as builder
from driverforge_operator.explain.causes import CAUSES, UNKNOWN, Cause, likely
from driverforge_operator.explain.redact import redact_text

DRIVER, MANAGER = "nvidia-driver-ctr", "k8s-driver-manager"
WORDS = {
    "pull-denied": (
        DRIVER,
        (
            'Failed to pull image "r.example/driver:1": failed to authorize: failed to fetch token: '
            "unexpected status from GET request to https://r.example/token: 403 Forbidden"
        ),
    ),
    "image-architecture": (DRIVER, "exec /usr/local/bin/nvidia-driver: exec format error"),
    "image-missing": (
        DRIVER,
        "manifest for nvcr.io/nvidia/driver:460.32.03-amzn2 not found",
    ),
    "operand-image-missing": (
        "nvidia-gdrcopy-ctr",
        "manifest for nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-rocky9 not found",
    ),
    "registry-certificate": (
        DRIVER,
        (
            'Failed to pull image "r.example/driver:1": failed to do request: Head: x509: '
            "certificate signed by unknown authority"
        ),
    ),
    "registry-unreachable": (
        DRIVER,
        'Failed to pull image "r.example/driver:1": Head: dial tcp 10.0.0.1:443: i/o timeout',
    ),
    "pull-failed": (DRIVER, 'ImagePullBackOff\nBack-off pulling image "r.example/driver:1"'),
    "secure-boot": (DRIVER, "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    "nouveau": (MANAGER, "level=error msg=Failed to unload nouveau driver"),
    "driver-held-by-module": (MANAGER, "rmmod: ERROR: Module nvidia is in use by: nvidia_fs"),
    "driver-held": (DRIVER, "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset"),
    "driver-stays": (
        MANAGER,
        (
            "another driver is wanted than the loaded one (580.95.05)\n  | in use by python3 (process 7): "
            "/dev/nvidia0"
        ),
    ),
    "mofed": (MANAGER, "level=info msg=Waiting for MOFED to be installed..."),
    "kernel-headers": (DRIVER, "E: Unable to locate package linux-headers-5.15.0-131-generic"),
    "other-kernel": (DRIVER, "nvidia: disagrees about version of symbol module_layout"),
    "compile-failed": (DRIVER, "make[2]: *** [scripts/Makefile.build:243: nvidia/nv-pci.o] Error 1"),
    "no-gpu-found": (DRIVER, "NVRM: No NVIDIA GPU found."),
    "unable-to-load": (DRIVER, "modprobe: ERROR: could not insert 'nvidia': Operation not permitted"),
    "host-driver": (
        MANAGER,
        "NVIDIA GPU driver is already pre-installed on the node, disabling",
    ),
    "runtime-without-nvidia": ("x", 'failed to get sandbox runtime: no runtime for "nvidia" is configured'),
    "runtime-socket": (
        "nvidia-container-toolkit-ctr",
        "unable to dial: dial unix /runtime/sock-dir/containerd.sock: connect: no such file or directory",
    ),
    "cdi-unresolvable": ("x", "unresolvable CDI devices management.nvidia.com/gpu=all"),
    "nvml-mismatch": ("x", "Failed to initialize NVML: Driver/library version mismatch"),
    "nvml-lost": ("x", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    "psa": ("", 'pods "a" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'),
    "quota-missing": (
        "",
        "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]",
    ),
    "quota": ("", 'pods "a" is forbidden: exceeded quota: gpu, requested: pods=1, used: pods=9'),
    "admission": ("", 'admission webhook "validate.kyverno.svc-fail" denied the request'),
    "account-missing": ("", "error looking up service account gpu-operator/nvidia-driver: not there"),
    "volume-missing": ("", 'FailedMount: MountVolume.SetUp failed for volume "a" : configmap "b" not found'),
    "mount-failed": ("", "FailedMount: hostPath type check failed: /run/nvidia is not a directory"),
    "other-driver-pod": ("", "0/9 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
    "no-room": ("", "0/3 nodes are available: 1 Insufficient cpu."),
    "out-of-memory": (DRIVER, "CrashLoopBackOff, exited 137 after 3 restarts"),
    "no-space": (DRIVER, "cp: error writing 'nvidia.ko': No space left on device"),
    "driver-manager-waits": (MANAGER, "runs, and has not ended"),
    "stuck-init": ("toolkit-validation", "waiting for nvidia container stack to be setup"),
    "starting": ("x", "ContainerCreating"),
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_a_cause_shows_in_what_people_saw(cause: Cause) -> None:
    name = cause.id
    container, text = WORDS[name]
    assert likely(["a line before", text], container).id == name


@pytest.mark.parametrize("cause", [*CAUSES, UNKNOWN], ids=lambda one: one.id)
def test_a_cause_can_be_told_of_any_container(cause: Cause) -> None:
    values = dict.fromkeys(("node", "namespace", "pod", "container", "image", "select", "cell"), "{odd}")
    assert cause.filled(**values).told


def test_a_cause_of_drivers_is_none_of_others() -> None:
    assert likely(["Module nvidia is in use"], "nvidia-device-plugin") is UNKNOWN


def test_lines_of_megabytes_neither_hang_nor_hide_the_next_one() -> None:
    noise = "image" * 200_000
    assert likely([f"{noise}\nCould not resolve Linux kernel version"], DRIVER).id == "kernel-headers"
    assert redact_text("a" * 200_000 + " token=b") == "a" * 200_000 + " token=REDACTED"


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_commands_of_ours_are_there_with_their_options(cause: Cause) -> None:
    values = dict.fromkeys(("node", "namespace", "pod", "container", "image"), "a")
    filled = cause.filled(**values, select="driverforge build --select 'a'", cell="a")
    for words in re.findall(r"driverforge ([^#;]+)", filled.command):
        command: click.Command = builder
        for word in words.split():
            if word.startswith("--") and word != "--help":
                assert word in {option for one in command.params for option in one.opts}, words
            elif isinstance(command, click.Group):
                found = command.get_command(click.Context(command), word)
                assert found, words
                command = found
