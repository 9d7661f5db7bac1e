"""The container toolkit: what the container runtime of its nodes needs."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    daemonset,
    drop_env,
    given_env,
    mount,
    pod,
    set_env,
    volume,
)
from driverforge_operator.operands.setting import CONTAINERD, CRIO, DOCKER, Setting

_NRI_SOCKET = "/var/run/nri/nri.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFiles:
    """Where a runtime has its files. A user's variable names another place: the first one that is set counts.

    `drop_in` and `socket` are '' for a runtime that the toolkit reaches without.
    """

    config: str
    config_variable: str
    drop_in: str = ""
    socket: str = ""
    socket_variable: str = ""


_RUNTIMES = {
    CONTAINERD: RuntimeFiles(
        config="/etc/containerd/config.toml",
        config_variable="CONTAINERD_CONFIG",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
        socket_variable="CONTAINERD_SOCKET",
    ),
    CRIO: RuntimeFiles(
        config="/etc/crio/config.toml",
        config_variable="CRIO_CONFIG",
        drop_in="/etc/crio/crio.conf.d/99-nvidia.conf",
    ),
    DOCKER: RuntimeFiles(
        config="/etc/docker/daemon.json",
        config_variable="DOCKER_CONFIG",
        socket="/var/run/docker.sock",
        socket_variable="DOCKER_SOCKET",
    ),
}


def container_toolkit(objects: list[Manifest], setting: Setting) -> None:
    workload = daemonset(objects)
    main = container(workload, "nvidia-container-toolkit-ctr")
    place = setting.spec.toolkit.install_dir
    volume(workload, "toolkit-install-dir")["hostPath"]["path"] = place
    mount(main, "toolkit-install-dir")["mountPath"] = place
    set_env(main, {"ROOT": place, "RUNTIME": setting.runtime})
    if setting.runtime == CRIO:
        volume(workload, "crio-hooks")["hostPath"]["path"] = "/usr/share/containers/oci/hooks.d"
    if not setting.cdi:
        drop_env(main, "CRIO_CONFIG_MODE")
        if setting.runtime == CRIO:
            set_env(main, {"CRIO_CONFIG_MODE": "hook"})
    if setting.nri:
        socket = _share(workload, main, "nri-socket", _NRI_SOCKET, "/runtime/nri-sock-dir/")
        volume(workload, "nri-socket")["hostPath"]["type"] = "DirectoryOrCreate"
        set_env(main, {"ENABLE_NRI_PLUGIN": "true", "NRI_SOCKET": socket})
        return
    if setting.runtime == CONTAINERD:
        set_env(main, {"CONTAINERD_RUNTIME_CLASS": setting.spec.operator.runtime_class})
    _runtime_files(workload, main, setting.runtime, given_env(setting.spec.toolkit.env))


def _runtime_files(workload: Manifest, main: Manifest, runtime: str, given: Mapping[str, str]) -> None:
    """Mount what belongs to the runtime, and say to the toolkit where it is in the container."""
    files = _RUNTIMES[runtime]
    config = given.get("RUNTIME_CONFIG") or given.get(files.config_variable) or files.config
    inside = _share(workload, main, f"{runtime}-config", config, "/runtime/config-dir/")
    volume(workload, f"{runtime}-config")["hostPath"]["type"] = "DirectoryOrCreate"
    set_env(main, {"RUNTIME_CONFIG": inside, files.config_variable: inside})
    if files.drop_in:
        drop_in = given.get("RUNTIME_DROP_IN_CONFIG") or files.drop_in
        inside = _share(workload, main, f"{runtime}-drop-in-config", drop_in, "/runtime/config-dir.d/")
        volume(workload, f"{runtime}-drop-in-config")["hostPath"]["type"] = "DirectoryOrCreate"
        set_env(main, {"RUNTIME_DROP_IN_CONFIG": inside, "RUNTIME_DROP_IN_CONFIG_HOST_PATH": drop_in})
    if files.socket:
        socket = given.get("RUNTIME_SOCKET") or given.get(files.socket_variable) or files.socket
        inside = _share(workload, main, f"{runtime}-socket", socket, "/runtime/sock-dir/")
        set_env(main, {"RUNTIME_SOCKET": inside, files.socket_variable: inside})


def _share(workload: Manifest, main: Manifest, name: str, path: str, inside: str) -> str:
    """Mount the folder of a host's file; returns where the file is in the container."""
    pod(workload)["volumes"].append({"name": name, "hostPath": {"path": posixpath.dirname(path)}})
    main["volumeMounts"].append({"name": name, "mountPath": inside})
    return inside + posixpath.basename(path)
