"""Every option of `driverctl toolkit` and of the name `nvidia-toolkit`, in one table.

Its flags, variables, default and meaning. The names are NVIDIA's contract (nvidia-ctk-installer 1.20, and
older releases' aliases). `driverctl runtime` reads the variables from here too, and
`hack/environment-page` makes docs/toolkit-environment.md of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from driverforge_host.gpu import environment

OptionKind = Literal["text", "bool", "list", "seconds"]
Names = str | tuple[str, ...]  # separated by blanks, or a tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    `name` is its field in ToolkitSettings. Of `variables` the first that is set counts, and a flag counts
    before them. `empty` says whether an empty value means something of its own; False: it is the same as not
    set.
    """

    name: str
    flags: tuple[str, ...]
    variables: tuple[str, ...]
    meaning: str
    kind: OptionKind = "text"
    default: str = ""
    allowed: tuple[str, ...] = ()
    empty: bool = False


def _option(
    name: str,
    flags: str,
    variables: Names,
    meaning: str,
    *,
    kind: OptionKind = "text",
    default: str = "",
    allowed: str = "",
    empty: bool = False,
) -> Option:
    return Option(
        name=name,
        flags=tuple(flags.split()),
        variables=tuple(variables.split()) if isinstance(variables, str) else variables,
        meaning=meaning,
        kind=kind,
        default=default,
        allowed=tuple(allowed.split()),
        empty=empty,
    )


_flag = partial(_option, kind="bool", default="false")
_list = partial(_option, kind="list")

_KEY = "config.toml's key of that name, where it is set."

LIFE = (
    _flag("no_daemon", "--no-daemon -n", "NO_DAEMON", "Exit when all is set up; nothing is undone."),
    _option("revert_on", "--revert-on", "TOOLKIT_REVERT_ON",
        "When the change of the runtime's configuration is undone. `stop`: at the stop signal. `uninstall`: "
        "at the stop signal if the file `uninstall` is beside the PID file by then. `never`: only by "
        "`driverctl runtime revert`. The name `nvidia-toolkit` has `stop` where nothing is said, as "
        "upstream's.", default="uninstall", allowed="uninstall stop never"),
    _option("pid_file", "--pid-file", "TOOLKIT_PID_FILE PID_FILE",
        "Locked while the program runs. Its name must be `toolkit.pid`.",
        default="/run/nvidia/toolkit/toolkit.pid"),
    _flag("debug", "--debug", "TOOLKIT_DEBUG", "Accepted; everything is logged as it is."),
    _flag("ignore_errors", "--ignore-errors", "",
        "Accepted without effect: an error that can be ignored is a warning."),
)  # fmt: skip

INSTALL = (
    _option("install_dir", "--toolkit-install-dir --root", environment.INSTALL_DIRS,
        "Folder of the node for the toolkit: releases go to `releases/`, `toolkit` is the link to the one "
        "in force. It has the same path in the container and on the node.", default=environment.INSTALL_DIR),
    _option("source_root", "--toolkit-source-root", "TOOLKIT_SOURCE_ROOT",
        "Folder with NVIDIA's files as its packages hold them. Not set: `/artifacts/deb` or "
        "`/artifacts/rpm`."),
    _option("package_type", "--toolkit-package-type", "TOOLKIT_PACKAGE_TYPE",
        "Which of the two; `auto` goes by the node's package manager.", default="auto",
        allowed="auto deb rpm"),
    _option("driver_root", "--driver-root --nvidia-driver-root", "NVIDIA_DRIVER_ROOT DRIVER_ROOT",
        "Root of the driver as the node sees it.", default="/run/nvidia/driver"),
    _option("driver_root_ctr_path", "--driver-root-ctr-path", "DRIVER_ROOT_CTR_PATH",
        "The same root as this container sees it.", default="/run/nvidia/driver"),
    _option("dev_root", "--dev-root", "NVIDIA_DEV_ROOT DEV_ROOT",
        "Where the node has `/dev`. Not set: the driver's root."),
    _option("dev_root_ctr_path", "--dev-root-ctr-path", "DEV_ROOT_CTR_PATH",
        "The same as this container sees it."),
)  # fmt: skip

CONFIG = (
    _option("runtime_debug", "--nvidia-container-runtime.debug --nvidia-container-runtime-debug",
        "NVIDIA_CONTAINER_RUNTIME_DEBUG", _KEY),
    _option("runtime_log_level", "--nvidia-container-runtime.log-level --nvidia-container-runtime-log-level",
        "NVIDIA_CONTAINER_RUNTIME_LOG_LEVEL", _KEY),
    _option("runtime_mode", "--nvidia-container-runtime.mode --nvidia-container-runtime-mode",
        "NVIDIA_CONTAINER_RUNTIME_MODE", _KEY, allowed="auto cdi jit-cdi legacy csv"),
    _option("cdi_default_kind", "--nvidia-container-runtime.modes.cdi.default-kind",
        "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND", _KEY),
    _list("cdi_annotation_prefixes",
        "--nvidia-container-runtime.modes.cdi.annotation-prefixes "
        "--nvidia-container-runtime-modes.cdi.annotation-prefixes",
        "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_ANNOTATION_PREFIXES",
        "config.toml's key of that name, where it is set; containerd is told to hand annotations with these "
        "prefixes to the handlers."),
    _list("low_level_runtimes", "--nvidia-container-runtime.runtimes", "NVIDIA_CONTAINER_RUNTIME_RUNTIMES",
        "Low-level runtimes. Not set: what the runtime's configuration has, then `runc`, `crun`. Our own "
        "wrappers are left out."),
    _flag("skip_mode_detection", "--nvidia-container-runtime-hook.skip-mode-detection",
        "NVIDIA_CONTAINER_RUNTIME_HOOK_SKIP_MODE_DETECTION", _KEY, default="true"),
    _option("cli_debug", "--nvidia-container-cli.debug --nvidia-container-cli-debug",
        "NVIDIA_CONTAINER_CLI_DEBUG", _KEY),
    _flag("accept_envvar", "--accept-nvidia-visible-devices-envvar-when-unprivileged",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", _KEY, default="true"),
    _flag("accept_mounts", "--accept-nvidia-visible-devices-as-volume-mounts",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", _KEY),
    _list("opt_in_features", "--opt-in-features", "NVIDIA_CONTAINER_TOOLKIT_OPT_IN_FEATURES",
        "Each is written as `features.NAME = true`."),
)  # fmt: skip

CDI = (
    _flag("cdi_enabled", "--cdi-enabled --enable-cdi", "CDI_ENABLED ENABLE_CDI",
        "Write the CDI specification for management containers."),
    _option("cdi_output_dir", "--cdi-output-dir", "CDI_OUTPUT_DIR",
        "Folder for it. An empty value is an error.", default="/var/run/cdi", empty=True),
    _option("cdi_kind", "--cdi-kind", "CDI_KIND", "Its vendor and class.",
        default="management.nvidia.com/gpu"),
    _option("create_device_nodes", "--create-device-nodes", "CREATE_DEVICE_NODES",
        "Which device nodes to make with it: `control`; `none` or an empty value: none.", default="control",
        allowed="control none", empty=True),
)  # fmt: skip

RUNTIME = (
    _option("runtime", "--runtime -r", "RUNTIME",
        "The container runtime. Not set: the one that the node's kubelet uses, else the one that runs.",
        allowed="containerd crio docker"),
    _flag("no_runtime_config", "--no-runtime-config", "NO_RUNTIME_CONFIG",
        "Leave the runtime alone: install only."),
    _option("config", "--config", "RUNTIME_CONFIG CONTAINERD_CONFIG DOCKER_CONFIG CRIO_CONFIG",
        "Its configuration file. Not set: the one that the running daemon uses."),
    _option("drop_in", "--drop-in-config", "RUNTIME_DROP_IN_CONFIG",
        "The file that is ours beside it; docker has none."),
    _option("drop_in_host_path", "--drop-in-config-host-path", "RUNTIME_DROP_IN_CONFIG_HOST_PATH",
        "The same file as the node calls it."),
    _option("executable_path", "--executable-path", "RUNTIME_EXECUTABLE_PATH",
        "The daemon's program on the node. Not set: the process's."),
    _option("socket", "--socket", "RUNTIME_SOCKET CONTAINERD_SOCKET DOCKER_SOCKET CRIO_SOCKET",
        "Its socket."),
    _option("restart_mode", "--restart-mode", "RUNTIME_RESTART_MODE CONTAINERD_RESTART_MODE",
        "How it comes to see a change. Not set: what its supervisor really supports.",
        allowed="signal systemd none"),
    _option("restart_command", "--restart-command", "TOOLKIT_RESTART_COMMAND",
        "What restarts it, as sh, where nothing that driverctl knows runs it; runs on the node."),
    _option("patience", "--patience", "TOOLKIT_PATIENCE",
        "How long the restarted daemon may take to answer before the old files are put back; less "
        "than 900. Not set: 60, longer for k3s, rke2 and k0s, and at least twice what its unit needed for "
        "its last start.", kind="seconds"),
    _flag("enable_cdi_in_runtime", "--enable-cdi-in-runtime", "RUNTIME_ENABLE_CDI",
        "Switch the runtime's own CDI support on. Not set: as `CDI_ENABLED`.", default=""),
    _option("host_root", "--host-root", "HOST_ROOT_MOUNT",
        "Accepted: the node's root is found at /host, or behind process 1.", default="/host", empty=True),
    _option("runtime_name", "--runtime-name --nvidia-runtime-name --runtime-class",
        "NVIDIA_RUNTIME_NAME CONTAINERD_RUNTIME_CLASS DOCKER_RUNTIME_NAME", "Name of the first handler.",
        default="nvidia"),
    _flag("set_as_default", "--set-as-default",
        "NVIDIA_RUNTIME_SET_AS_DEFAULT CONTAINERD_SET_AS_DEFAULT DOCKER_SET_AS_DEFAULT",
        "Make that handler the default one.", default="true"),
    _list("config_sources", "--config-source --config-sources",
        "RUNTIME_CONFIG_SOURCES RUNTIME_CONFIG_SOURCE",
        "Accepted: both the files and the daemon's own answer are always read.", default="command,file"),
    _flag("use_legacy_config", "--use-legacy-config", "CONTAINERD_USE_LEGACY_CONFIG",
        "Refused: containerd's configuration of version 1 is not written."),
    _option("runtime_type", "--runtime-type", "CONTAINERD_RUNTIME_TYPE",
        "containerd: type of a handler whose template has none.", default="io.containerd.runc.v2"),
    _option("config_override", "--runtime-config-override",
        "RUNTIME_CONFIG_OVERRIDE CONTAINERD_RUNTIME_CONFIG_OVERRIDE",
        'Further settings of the handlers, as JSON: `{"options": {"SystemdCgroup": true}}`.', default="{}"),
    _option("hooks_dir", "--hooks-dir", "CRIO_HOOKS_DIR", "CRI-O's folder for OCI hooks.",
        default="/usr/share/containers/oci/hooks.d"),
    _option("hook_filename", "--hook-filename", "CRIO_HOOK_FILENAME", "The hook's file in it.",
        default="oci-nvidia-hook.json"),
    _option("config_mode", "--config-mode", "CRIO_CONFIG_MODE",
        "CRI-O: `config`, handlers; `hook`, the OCI hook of long ago.", default="config",
        allowed="config hook"),
)  # fmt: skip

WATCH = (
    _flag("reapply", "--reapply", "TOOLKIT_REAPPLY",
        "Apply the runtime's configuration again when somebody took it out, announced before. That may "
        "restart the runtime. Not set: it is only reported."),
    _option("reapply_window", "--reapply-window", "TOOLKIT_REAPPLY_WINDOW",
        "When that may happen, in UTC: `Sat 02:00-04:00`, several separated by `;`. Not set: at any time."),
    _option("watch_interval", "--watch-interval", "TOOLKIT_WATCH_INTERVAL",
        "Seconds between two looks at the node.", default="10"),
)  # fmt: skip

_NRI = "Accepted; has no effect without NRI mode."

NRI = (
    _flag("enable_nri_plugin", "--enable-nri-plugin -p", "ENABLE_NRI_PLUGIN",
        "Refused: NRI mode is not part of this release."),
    _option("nri_plugin_index", "--nri-plugin-index", "NRI_PLUGIN_INDEX", _NRI, default="10"),
    _option("nri_socket", "--nri-socket", "NRI_SOCKET", _NRI, default="/var/run/nri/nri.sock"),
    _option("nri_namespace", "--nri-namespace", "NRI_NAMESPACE", _NRI),
    _list("nri_management_namespaces", "--nri-management-cdi-device-namespaces",
        "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES", _NRI),
)  # fmt: skip

SECTIONS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("The program's life", LIFE),
    ("Installation", INSTALL),
    ("config.toml", CONFIG),
    ("CDI", CDI),
    ("The container runtime", RUNTIME),
    ("The watch", WATCH),
    ("NRI", NRI),
)
OPTIONS: tuple[Option, ...] = tuple(option for _, options in SECTIONS for option in options)
