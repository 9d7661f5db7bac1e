"""Options of the toolkit from flags and variables, upstream's and ours."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.commands import toolkit
from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.settings import ToolkitSettings, settings_of

# what the operator sets on the pod (gpu-operator v26.7, containerd with CDI)
OPERATOR = {
    "ROOT": "/usr/local/nvidia",
    "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
    "NVIDIA_VISIBLE_DEVICES": "void",
    "TOOLKIT_PID_FILE": "/run/nvidia/toolkit/toolkit.pid",
    "NRI_NAMESPACE": "gpu-operator",
    "RUNTIME": "containerd",
    "CDI_ENABLED": "true",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
    "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
    "CRIO_CONFIG_MODE": "config",
    "RUNTIME_CONFIG": "/runtime/config-dir/config.toml",
    "CONTAINERD_CONFIG": "/runtime/config-dir/config.toml",
    "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.toml",
    "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/containerd/conf.d/99-nvidia.toml",
    "RUNTIME_SOCKET": "/runtime/sock-dir/containerd.sock",
    "CONTAINERD_SOCKET": "/runtime/sock-dir/containerd.sock",
}


def test_upstreams_defaults() -> None:
    found = settings_of({}, {})
    assert (found.install_dir, found.driver_root, found.package_type) == (
        "/usr/local/nvidia",
        "/run/nvidia/driver",
        "auto",
    )
    assert (found.cdi_enabled, found.enable_cdi_in_runtime, found.set_as_default) == (False, False, True)
    assert (found.skip_mode_detection, found.accept_envvar, found.accept_mounts) == (True, True, False)
    assert (found.runtime, found.runtime_name, found.revert_on) == ("", "nvidia", "uninstall")


def test_what_the_operator_sets() -> None:
    found = settings_of({}, OPERATOR)
    assert (found.runtime, found.runtime_mode, found.cdi_default_kind) == (
        "containerd",
        "cdi",
        "management.nvidia.com/gpu",
    )
    assert (found.cdi_enabled, found.enable_cdi_in_runtime, found.set_as_default) == (True, True, False)
    assert (found.config, found.socket) == (
        "/runtime/config-dir/config.toml",
        "/runtime/sock-dir/containerd.sock",
    )
    assert found.drop_in_host_path == "/etc/containerd/conf.d/99-nvidia.toml"


@pytest.mark.parametrize(
    ("flags", "environ", "field", "value"),
    [
        ({}, {"TOOLKIT_INSTALL_DIR": "/a", "ROOT": "/b"}, "install_dir", "/a"),  # the first one counts
        ({}, {"TOOLKIT_INSTALL_DIR": "", "ROOT": "/b"}, "install_dir", "/b"),  # an empty one is none
        ({"install_dir": "/c"}, {"TOOLKIT_INSTALL_DIR": "/a"}, "install_dir", "/c"),  # a flag counts before
        ({}, {"PID_FILE": "/x/toolkit.pid"}, "pid_file", "/x/toolkit.pid"),
        ({}, {"CONTAINERD_RESTART_MODE": "systemd"}, "restart_mode", "systemd"),
        ({}, {"RUNTIME": "crio", "CRIO_CONFIG": "/c", "CONTAINERD_CONFIG": "/d"}, "config", "/c"),
        # docker's own client sets it, too
        (
            {},
            {"RUNTIME": "containerd", "DOCKER_CONFIG": "/root/.docker"},
            "config",
            "",
        ),
        (
            {"runtime": "docker"},
            {"DOCKER_CONFIG": "/etc/docker/daemon.json"},
            "config",
            "/etc/docker/daemon.json",
        ),
        ({}, {"CONTAINERD_CONFIG": "/d"}, "config", "/d"),
        ({}, {"ENABLE_CDI": "1"}, "cdi_enabled", True),
        ({}, {"CDI_ENABLED": "T", "RUNTIME_ENABLE_CDI": "false"}, "enable_cdi_in_runtime", False),
        ({}, {"RUNTIME_ENABLE_CDI": "true"}, "enable_cdi_in_runtime", True),
        ({}, {"CREATE_DEVICE_NODES": ""}, "create_device_nodes", ""),
        ({}, {"HOST_ROOT_MOUNT": ""}, "host_root", ""),
        (
            {},
            {"NVIDIA_CONTAINER_RUNTIME_RUNTIMES": "/x/runc, crun,"},
            "low_level_runtimes",
            ("/x/runc", "crun"),
        ),
        ({}, {"RUNTIME_DROP_IN_CONFIG": ""}, "drop_in", ""),
        ({}, {"TOOLKIT_REVERT_ON": "stop"}, "revert_on", "stop"),
    ],
)
def test_where_a_value_comes_from(
    flags: dict[str, str], environ: dict[str, str], field: str, value: object
) -> None:
    assert getattr(settings_of(flags, environ), field) == value


def test_every_bad_value_is_told_at_once() -> None:
    environ = {
        "RUNTIME": "podman",
        "CDI_ENABLED": "yes",
        "CDI_KIND": "gpu",
        "CDI_OUTPUT_DIR": "",
        "NVIDIA_CONTAINER_RUNTIME_MODE": "fast",
        "NVIDIA_RUNTIME_NAME": "a b",
        "DRIVER_ROOT": "run/nvidia",
    }
    with pytest.raises(InputError) as caught:
        settings_of({"pid_file": "/run/x.pid"}, environ)
    told = "\n".join(caught.value.details)
    assert "RUNTIME='podman': write one of containerd, crio, docker" in told
    assert "CDI_ENABLED='yes': write true or false" in told
    assert "CDI_OUTPUT_DIR is empty: name a folder, or set CDI_ENABLED=false" in told
    assert "the file's name must be toolkit.pid" in told
    assert len(caught.value.details) == 8


@pytest.mark.parametrize(
    ("environ", "says"),
    [({"ENABLE_NRI_PLUGIN": "true"}, "NRI mode"), ({"CONTAINERD_USE_LEGACY_CONFIG": "true"}, "version 1")],
)
def test_what_is_not_part_of_this_release_is_refused(environ: dict[str, str], says: str) -> None:
    with pytest.raises(Unsupported, match=says) as caught:
        settings_of({}, environ)
    assert caught.value.resolution


def test_a_field_for_every_option_and_no_name_twice() -> None:
    assert [option.name for option in OPTIONS if option.name] == list(
        dict.fromkeys(option.name for option in OPTIONS)
    )
    fields = {item.name for item in dataclasses.fields(ToolkitSettings)}
    assert {option.name for option in OPTIONS} == fields - {"origins"}
    flags = [flag for option in OPTIONS for flag in option.flags]
    assert len(flags) == len(set(flags))


def test_the_command_line_has_every_flag() -> None:
    parser = argparse.ArgumentParser()
    toolkit.add_arguments(parser)
    words = [
        "install",
        "-r",
        "crio",
        "--cdi-enabled",
        "--enable-cdi-in-runtime=false",
        "--root",
        "/x",
        "--nvidia-container-runtime.mode=cdi",
    ]
    args = parser.parse_args([*words, "--config-source", "file", "--config-source", "command"])
    given = {
        option.name: getattr(args, option.name)
        for option in OPTIONS
        if getattr(args, option.name) is not None
    }
    assert given == {
        "runtime": "crio",
        "cdi_enabled": "true",
        "enable_cdi_in_runtime": "false",
        "install_dir": "/x",
        "runtime_mode": "cdi",
        "config_sources": ["file", "command"],
    }
    for option in OPTIONS:
        for flag in option.flags:
            assert getattr(
                parser.parse_args(["status", f"{flag}=x" if flag.startswith("--") else f"{flag}x"]),
                option.name,
            ) in ("x", ["x"])
