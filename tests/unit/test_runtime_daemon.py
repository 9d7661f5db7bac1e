"""What a process's own files tell about the runtime behind a socket."""

from __future__ import annotations

import pytest

from driverforge_toolkit.runtime.find.daemon import CONFIG_OPTIONS, version_of
from driverforge_toolkit.runtime.find.procfs import option_value
from driverforge_toolkit.runtime.find.supervisor import distribution, unit_of


@pytest.mark.parametrize(
    ("command", "config"),
    [
        (["/usr/bin/containerd"], ""),
        (["/usr/bin/containerd", "--config", "/etc/c.toml", "--log-level", "info"], "/etc/c.toml"),
        (["containerd", "-c", "/x/c.toml"], "/x/c.toml"),
        (
            ["containerd", "--config=/var/run/docker/containerd/containerd.toml"],
            "/var/run/docker/containerd/containerd.toml",
        ),
        (["containerd", "--config"], ""),
        (["containerd", "--config=/first", "--config", "/last"], "/last"),
    ],
)
def test_the_configuration_file_of_a_command_line(command: list[str], config: str) -> None:
    assert option_value(command, CONFIG_OPTIONS["containerd"]) == config


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/containerd.service\n", "containerd.service"),
        (
            "12:cpu,cpuacct:/system.slice\n1:name=systemd:/system.slice/containerd.service\n0::/x\n",
            "containerd.service",
        ),
        ("0::/system.slice/k3s.service\n", "k3s.service"),
        ("0::/../../system.slice/containerd.service\n", "containerd.service"),  # seen from a pod
        ("0::/system.slice/k3s.service/init\n", "k3s.service"),  # it divides its own group
        # rootless: no unit of the system's
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/containerd.service\n",
            "",
        ),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_control_group(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


@pytest.mark.parametrize(
    ("unit", "path", "name"),
    [
        ("containerd.service", "/usr/bin/containerd", ""),
        ("k3s-agent.service", "/x", "k3s"),
        ("rke2-server.service", "/x", "rke2"),
        ("k0sworker.service", "/x", "k0s"),
        ("snap.microk8s.daemon-containerd.service", "/x", "microk8s"),
        ("snap.docker.dockerd.service", "/x", "snap"),
        ("", "/var/lib/rancher/k3s/data/current/bin/containerd", "k3s"),  # started without systemd
        ("k3sbutnot.service", "/usr/bin/containerd", ""),
    ],
)
def test_the_distribution_of_a_runtime(unit: str, path: str, name: str) -> None:
    assert distribution(unit, path, "/etc/x") == name


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", (1, 6, 20)),
        ("containerd containerd.io 1.6.33 d2d58213f83a351ca8f528a95fbd145f5654e957", (1, 6, 33)),
        ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", (2, 1, 9)),
        ("containerd github.com/containerd/containerd v1.7.2-k3s1 abc", (1, 7, 2)),
        ("crio version 1.37.0", (1, 37, 0)),
        ("Docker version 28.5.2+dfsg4, build 89c5e8f", (28, 5, 2)),
        ("", ()),
    ],
)
def test_the_version_that_a_program_prints(said: str, version: tuple[int, ...]) -> None:
    assert version_of(said) == version
