"""What a process's own files tell about the runtime behind a socket."""

from __future__ import annotations

import pytest

from driverforge_node.runtime.daemon import SUPPORTED, config_argument, unit_of


@pytest.mark.parametrize(
    ("command", "config"),
    [
        (["/usr/bin/containerd"], "/etc/containerd/config.toml"),
        (["/usr/bin/containerd", "--config", "/etc/c.toml", "--log-level", "info"], "/etc/c.toml"),
        (["containerd", "-c", "/x/c.toml"], "/x/c.toml"),
        (["containerd", "--config=/var/run/docker/containerd/containerd.toml"], "/var/run/docker/containerd/containerd.toml"),
    ],
)
def test_the_configuration_file_of_a_command_line(command: list[str], config: str) -> None:
    assert config_argument(command) == config


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/containerd.service\n", "containerd.service"),
        ("12:cpu,cpuacct:/system.slice\n1:name=systemd:/system.slice/containerd.service\n0::/x\n", "containerd.service"),
        ("0::/system.slice/k3s.service\n", "k3s.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_control_group(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


@pytest.mark.parametrize(
    ("said", "supported"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n", True),
        ("containerd containerd.io 1.6.33 d2d58213f83a351ca8f528a95fbd145f5654e957\n", True),
        ("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6\n", False),
        ("containerd github.com/containerd/containerd/v2 2.1.6 \n", False),
    ],
)
def test_releases_that_this_program_configures(said: str, supported: bool) -> None:
    assert bool(SUPPORTED.search(said)) is supported
