"""`driverctl runtime`, run in the toolkit's pod, means what `driverctl toolkit run` meant: both read one environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import UsageError
from driverforge_node.cli import build_parser
from driverforge_node.commands.runtime import request_of
from driverforge_node.runtime.request import Request
from driverforge_node.toolkit import parts
from driverforge_node.toolkit.settings import parse
from driverforge_node.toolkit.wanted import layout_of
from support.fakehost import fake_node

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
}


def both(tmp_path: Path, environ: dict[str, str]) -> tuple[Request, Request]:
    node = fake_node(tmp_path, gpu=False)
    for process in ("self", "1"):
        node.host.files.make_dirs(f"/proc/{process}")
        node.host.files.write_atomic(f"/proc/{process}/mountinfo", b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    host = replace(node.host, environ=environ)
    settings = parse({}, environ)
    command = build_parser("runtime").parse_args(["runtime", "apply"])
    return replace(request_of(command, host), given={}), parts.request_of(host, settings, layout_of(settings))


@pytest.mark.parametrize(
    "environ", [OPERATOR, {**OPERATOR, **MORE}, {**OPERATOR, "TOOLKIT_INSTALL_DIR": "/opt/nvidia/"}]
)
def test_both_commands_read_the_same_of_one_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    alone, beside = both(tmp_path, environ)
    assert alone == beside


def test_patience_is_asked_for_in_seconds(tmp_path: Path) -> None:
    host = fake_node(tmp_path, gpu=False).host
    parser = build_parser("runtime")
    assert request_of(parser.parse_args(["runtime", "apply", "--patience", "90"]), host).patience == 90
    for wrong in ("0", "-1", "900", "nan", "soon"):
        with pytest.raises(UsageError, match="--patience"):
            parser.parse_args(["runtime", "apply", f"--patience={wrong}"])
