"""`driverctl runtime`, run in the toolkit's pod, means what `driverctl toolkit run` meant: both read one
environment.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from driverctl.cli import build_parser
from driverforge_core.errors import InputError, UsageError
from driverforge_host.ports import Host
from driverforge_toolkit.commands.runtime import add_arguments, request_from
from driverforge_toolkit.runtime.request import RuntimeRequest
from driverforge_toolkit.toolkit.release_plan import layout_of
from driverforge_toolkit.toolkit.runtime_request import request_of
from driverforge_toolkit.toolkit.settings import settings_of
from support.fakes.fakehost import fake_node

# what the operator sets on the pod on a GKE COS node, with CDI
OPERATOR = {
    "ROOT": "/home/kubernetes/bin/nvidia",
    "RUNTIME": "containerd",
    "CDI_ENABLED": "true",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
    "CONTAINERD_RUNTIME_CLASS": "nvidia",
    "RUNTIME_CONFIG": "/etc/containerd/config.toml",
    "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.toml",
    "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/containerd/conf.d/99-nvidia.toml",
    "RUNTIME_SOCKET": "/run/containerd/containerd.sock",
}
MORE = {
    "NVIDIA_RUNTIME_NAME": "gpu",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": "true",
    "RUNTIME_ENABLE_CDI": "true",
    "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_ANNOTATION_PREFIXES": "cdi.k8s.io/,example.com/",
    "CONTAINERD_RUNTIME_TYPE": "io.containerd.runc.v2",
    "RUNTIME_CONFIG_OVERRIDE": '{"SystemdCgroup": true}',
    "RUNTIME_EXECUTABLE_PATH": "/opt/containerd",
    "CONTAINERD_RESTART_MODE": "systemd",
    "TOOLKIT_RESTART_COMMAND": "rc-service containerd restart",
    "TOOLKIT_PATIENCE": "120",
}


def no_mounts(host: Host) -> None:
    """One file system, which is the node's and ours."""
    for process in ("self", "1"):
        host.files.make_dirs(f"/proc/{process}")
        host.files.write_atomic(f"/proc/{process}/mountinfo", b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")


def both(tmp_path: Path, environ: dict[str, str]) -> tuple[RuntimeRequest, RuntimeRequest]:
    host = replace(fake_node(tmp_path, gpu=False).host, environ=environ)
    no_mounts(host)
    settings = settings_of({}, environ)
    command = build_parser("runtime").parse_args(["runtime", "apply"])
    return request_from(command, host), request_of(host, settings, layout_of(settings))


@pytest.mark.parametrize(
    "environ", [OPERATOR, {**OPERATOR, **MORE}, {**OPERATOR, "TOOLKIT_INSTALL_DIR": "/opt/nvidia/"}]
)
def test_both_commands_read_the_same_of_one_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    alone, beside = both(tmp_path, environ)
    assert alone == beside


def test_patience_can_be_set_for_the_toolkit_too(tmp_path: Path) -> None:
    alone, beside = both(tmp_path, {**OPERATOR, **MORE})
    assert (alone.patience, beside.patience) == (120.0, 120.0)
    host = fake_node(tmp_path / "other", gpu=False).host
    settings = settings_of({"patience": "90"}, {"TOOLKIT_PATIENCE": "120"})
    assert request_of(host, settings, layout_of(settings)).patience == 90.0


def test_a_folder_that_dockers_own_client_names_is_no_configuration_to_either(tmp_path: Path) -> None:
    """DOCKER_CONFIG is both upstream's variable for daemon.json and the client's for its folder."""
    made = both(tmp_path, {"RUNTIME": "docker", "DOCKER_CONFIG": "/proc/self"})
    assert [request.config for request in made] == ["", ""]


def test_a_drop_in_of_a_flag_counts_before_one_of_a_variable(tmp_path: Path) -> None:
    environ = {"RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/containerd/conf.d/variable.toml"}
    host = replace(fake_node(tmp_path, gpu=False).host, environ=environ)
    settings = settings_of({"drop_in": "/etc/containerd/conf.d/flag.toml"}, environ)
    command = build_parser("runtime").parse_args(["runtime", "apply", "--drop-in", settings.drop_in])
    no_mounts(host)
    for request in (request_from(command, host), request_of(host, settings, layout_of(settings))):
        assert request.drop_in == "/etc/containerd/conf.d/flag.toml"


@pytest.mark.parametrize("wrong", ["0", "-1", "900", "nan", "soon"])
def test_a_patience_that_nobody_has_is_refused(wrong: str) -> None:
    with pytest.raises(InputError) as caught:
        settings_of({}, {"TOOLKIT_PATIENCE": wrong})
    assert f"TOOLKIT_PATIENCE={wrong!r}: write a number of seconds" in caught.value.details[0]


def test_patience_is_asked_for_in_seconds(tmp_path: Path) -> None:
    host = fake_node(tmp_path, gpu=False).host
    parser = build_parser("runtime")
    assert request_from(parser.parse_args(["runtime", "apply", "--patience", "90"]), host).patience == 90
    for wrong in ("0", "-1", "900", "nan", "soon"):
        with pytest.raises(UsageError, match=f"--patience: {wrong}: give seconds, above 0 and under 900"):
            parser.parse_args(["runtime", "apply", f"--patience={wrong}"])


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"RUNTIME": "docker", "CONTAINERD_RESTART_MODE": "none"}, "restart_mode", "none"),
        ({"RUNTIME": "crio", "CONTAINERD_SET_AS_DEFAULT": "true"}, "default", "nvidia"),
        ({"RUNTIME": "crio", "CONTAINERD_SET_AS_DEFAULT": "false"}, "release_default", True),
        ({"RUNTIME": "crio", "CONTAINERD_RUNTIME_CLASS": "gpu"}, "name", "gpu"),
        ({"DOCKER_RUNTIME_NAME": "gpu"}, "name", "gpu"),
        ({"RUNTIME": "docker", "CONTAINERD_RUNTIME_CONFIG_OVERRIDE": '{"a": 1}'}, "options", {"a": 1}),
        ({"RUNTIME": "docker", "CONTAINERD_RUNTIME_TYPE": "x"}, "runtime_type", "x"),
        ({"RUNTIME": "docker", "CONTAINERD_CONFIG": "/x", "CONTAINERD_SOCKET": "/y"}, "config", ""),
        ({"RUNTIME": "docker", "CONTAINERD_CONFIG": "/x", "CONTAINERD_SOCKET": "/y"}, "socket", ""),
    ],
)
def test_of_the_variables_of_another_runtime_only_paths_do_not_count(
    tmp_path: Path, environ: dict[str, str], field: str, value: object
) -> None:
    for request in both(tmp_path, environ):
        found = {
            "socket": request.socket,
            "config": request.config,
            "restart_mode": request.restart_mode,
            "name": request.wanted.handlers[0].name,
            "default": request.wanted.default,
            "release_default": request.wanted.release_default,
            "options": request.wanted.options,
            "runtime_type": request.wanted.runtime_type,
        }
        assert found[field] == value


def test_what_only_another_runtime_has_does_not_count(tmp_path: Path) -> None:
    """CONTAINERD_USE_LEGACY_CONFIG is refused, and CRIO_CONFIG_MODE has two words, where these count."""
    both(tmp_path / "a", {"RUNTIME": "crio", "CONTAINERD_USE_LEGACY_CONFIG": "true"})
    crio = {"CRIO_CONFIG_MODE": "neither", "CRIO_HOOKS_DIR": "not/absolute"}
    both(tmp_path / "b", {"RUNTIME": "docker", **crio})


@pytest.mark.parametrize(
    ("path", "config"),
    [("/root/.docker", ""), ("/own/daemon", "/own/daemon"), ("/gone/daemon.json", "/gone/daemon.json")],
)
def test_dockers_own_config_counts_where_it_is_a_file_or_named_as_one(
    tmp_path: Path, path: str, config: str
) -> None:
    host = replace(fake_node(tmp_path, gpu=False).host, environ={"DOCKER_CONFIG": path})
    no_mounts(host)
    host.files.make_dirs("/own")
    host.files.write_atomic("/own/daemon", b"{}")
    command = build_parser("runtime").parse_args(["runtime", "apply", "--runtime", "docker"])
    settings = settings_of({"runtime": "docker"}, host.environ)
    for request in (request_from(command, host), request_of(host, settings, layout_of(settings))):
        assert (request.config, "config" in request.given) == (config, bool(config))


@pytest.mark.parametrize("pods", ["/own/99-nvidia.toml", "/etc/containerd/conf.d/99-nvidia.toml"])
def test_the_pods_name_of_the_drop_in_does_not_matter_where_the_nodes_is_given(
    tmp_path: Path, pods: str
) -> None:
    """/own is a mount that the node does not have."""
    nodes = "/etc/containerd/conf.d/x.toml"
    environ = {"RUNTIME_DROP_IN_CONFIG": pods, "RUNTIME_DROP_IN_CONFIG_HOST_PATH": nodes}
    host = replace(fake_node(tmp_path, gpu=False).host, environ=environ)
    no_mounts(host)
    mounts = b"1 0 0:60 / / rw - overlay overlay rw\n2 1 0:9 / /own rw - tmpfs tmpfs rw\n"
    host.files.write_atomic("/proc/self/mountinfo", mounts)
    command = build_parser("runtime").parse_args(["runtime", "apply"])
    settings = settings_of({}, environ)
    for request in (request_from(command, host), request_of(host, settings, layout_of(settings))):
        assert request.drop_in == nodes
        assert request.given["drop_in"] == "RUNTIME_DROP_IN_CONFIG_HOST_PATH"


def test_the_pods_name_of_the_drop_in_is_translated_where_it_counts(tmp_path: Path) -> None:
    environ = {"RUNTIME_DROP_IN_CONFIG": "/own/99-nvidia.toml"}
    host = replace(fake_node(tmp_path, gpu=False).host, environ=environ)
    no_mounts(host)
    mounts = b"1 0 0:60 / / rw - overlay overlay rw\n2 1 8:1 /etc /own rw - ext4 /dev/sda1 rw\n"
    host.files.write_atomic("/proc/self/mountinfo", mounts)
    settings = settings_of({}, environ)
    assert request_of(host, settings, layout_of(settings)).drop_in == "/etc/99-nvidia.toml"
    flags = ["runtime", "apply", "--drop-in", "/own/99-nvidia.toml"]
    assert request_from(build_parser("runtime").parse_args(flags), host).drop_in == "/own/99-nvidia.toml"


def test_the_help_names_the_variable_of_the_patience() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert "longer for k3s ($TOOLKIT_PATIENCE)" in " ".join(parser.format_help().split())
