"""The toolkit's options, all of them, as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.reading import nri_is_refused, read_options

PID_NAME = "toolkit.pid"
# CDI spec: vendor/class
KIND = re.compile(r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
PATHS = (
    "pid_file",
    "install_dir",
    "source_root",
    "driver_root",
    "driver_root_ctr_path",
    "dev_root",
    "dev_root_ctr_path",
    "cdi_output_dir",
    "config",
    "drop_in",
    "drop_in_host_path",
    "socket",
    "hooks_dir",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitSettings:
    """One field for each row of OPTIONS; '', () and 0 where nothing is said and there is no default.

    `origins` maps a field to the flag or variable that its value is from, '' where the default stands.
    """

    no_daemon: bool
    revert_on: Literal["uninstall", "stop", "never"]
    pid_file: str
    debug: bool
    ignore_errors: bool
    install_dir: str
    source_root: str
    package_type: Literal["auto", "deb", "rpm"]
    driver_root: str
    driver_root_ctr_path: str
    dev_root: str
    dev_root_ctr_path: str
    runtime_debug: str
    runtime_log_level: str
    runtime_mode: str
    cdi_default_kind: str
    cdi_annotation_prefixes: tuple[str, ...]
    low_level_runtimes: tuple[str, ...]
    skip_mode_detection: bool
    cli_debug: str
    accept_envvar: bool
    accept_mounts: bool
    opt_in_features: tuple[str, ...]
    cdi_enabled: bool
    cdi_output_dir: str
    cdi_kind: str
    create_device_nodes: Literal["control", "none", ""]
    runtime: str
    no_runtime_config: bool
    config: str
    drop_in: str
    drop_in_host_path: str
    executable_path: str
    socket: str
    restart_mode: str
    restart_command: str
    patience: float
    enable_cdi_in_runtime: bool
    host_root: str
    runtime_name: str
    set_as_default: bool
    config_sources: tuple[str, ...]
    use_legacy_config: bool
    runtime_type: str
    config_override: str
    hooks_dir: str
    hook_filename: str
    config_mode: Literal["config", "hook"]
    reapply: bool
    reapply_window: str
    watch_interval: str
    enable_nri_plugin: bool
    nri_plugin_index: str
    nri_socket: str
    nri_namespace: str
    nri_management_namespaces: tuple[str, ...]
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)


def settings_of(flags: Mapping[str, str], environ: Mapping[str, str]) -> ToolkitSettings:
    """`flags` maps an option's name to what the command line says, lists joined by commas.

    Raises InputError with every bad value at once, Unsupported for what this release does not do.
    """
    read = read_options(OPTIONS, flags, environ)
    settings = ToolkitSettings(**read.values, origins=read.origins)
    problems = [*read.problems, *_problems(settings)]
    if problems:
        raise InputError(
            "an option has a value that is not allowed",
            details=problems,
            resolution="see docs/toolkit-environment.md; nothing was changed",
        )
    _refuse(settings)
    return settings


def _problems(settings: ToolkitSettings) -> list[str]:
    """What is wrong with values that are fine by themselves, a sentence each."""
    found = []
    if settings.pid_file.rpartition("/")[2] != PID_NAME:
        found.append(f"--pid-file={settings.pid_file!r}: the file's name must be {PID_NAME}")
    if not settings.cdi_output_dir:
        found.append(
            "CDI_OUTPUT_DIR is empty: name a folder, or set CDI_ENABLED=false to have no CDI specification"
        )
    if not KIND.fullmatch(settings.cdi_kind):
        found.append(f"--cdi-kind={settings.cdi_kind!r}: write VENDOR/CLASS, as management.nvidia.com/gpu")
    if (
        not settings.runtime_name
        or "/" in settings.runtime_name
        or settings.runtime_name.split() != [settings.runtime_name]
    ):
        found.append(f"--runtime-name={settings.runtime_name!r}: write a handler's name, as nvidia")
    if not re.fullmatch(r"0*[1-9][0-9]{0,4}", settings.watch_interval, re.ASCII):
        found.append(f"--watch-interval={settings.watch_interval!r}: write a number of seconds, 1 to 99999")
    for option in OPTIONS:
        path = getattr(settings, option.name)
        if option.name in PATHS and path and (not path.startswith("/") or "\n" in path or "\0" in path):
            found.append(f"{option.flags[0]}={path!r}: write an absolute path")
    if "/" in settings.hook_filename:
        found.append(
            f"--hook-filename={settings.hook_filename!r}: write the name of a file, without its folder"
        )
    return found


def _refuse(settings: ToolkitSettings) -> None:
    if settings.enable_nri_plugin:
        raise nri_is_refused()
    if settings.use_legacy_config:
        raise Unsupported(
            "containerd's configuration of version 1 is not written (--use-legacy-config, "
            "CONTAINERD_USE_LEGACY_CONFIG)",
            resolution="unset it; `containerd config migrate` makes a file of version 2 of an old one; "
            "nothing was changed",
        )
