"""The options of the toolkit as values, from a command line and an environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.toolkit.options import OPTIONS, Option

TRUE = ("1", "t", "T", "TRUE", "true", "True")  # as Go's strconv.ParseBool
FALSE = ("0", "f", "F", "FALSE", "false", "False")
PID_NAME = "toolkit.pid"
LONGEST = 900  # seconds; the node takes a change that needs longer for one that hangs
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
# Options of which a variable of one runtime counts for that runtime only: a path of containerd's is none of
# docker's, and the last four are refused or mean something for one runtime alone. Upstream lets all variables
# of the other options count (CONTAINERD_RESTART_MODE with docker), and so does this.
OWNED = ("config", "socket", "use_legacy_config", "hooks_dir", "hook_filename", "config_mode")
# beginnings of variables that belong to one runtime
OWNERS = {
    "CONTAINERD": "containerd",
    "DOCKER": "docker",
    "CRIO": "crio",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionReading:
    """What flags and an environment say: the values of options by their names, and what is wrong with them.

    `origins` are as those of ToolkitSettings; `problems` has a sentence for each bad value.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    problems: list[str]


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


def read_options(
    options: Iterable[Option],
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    flag_names: Mapping[str, str] | None = None,
) -> OptionReading:
    """The values of `options`.

    `flag_names` are the flags' names of a command that calls them otherwise than the table.
    """
    runtime = flags.get("runtime") or environ.get("RUNTIME", "")
    read = OptionReading(values={}, origins={}, problems=[])
    for option in options:
        text, origin = _text(option, flags, environ, runtime)
        if origin and option.name in flags:
            origin = (flag_names or {}).get(option.name, origin)
        read.origins[option.name] = origin
        read.values[option.name] = _value(option, text, origin, read.problems)
    if not read.origins["enable_cdi_in_runtime"]:
        read.values["enable_cdi_in_runtime"] = read.values["cdi_enabled"]
    return read


def _text(
    option: Option, flags: Mapping[str, str], environ: Mapping[str, str], runtime: str
) -> tuple[str, str]:
    """What is said of an option, and where; '' where the default stands."""
    said = [(option.flags[0], flags[option.name])] if option.name in flags else []
    said += [
        (name, environ[name].strip())
        for name in option.variables
        if name in environ and (option.name not in OWNED or _counts(name, runtime))
    ]
    for origin, text in said:
        if text or option.empty:
            return text, origin
    return option.default, ""


def _counts(variable: str, runtime: str) -> bool:
    """Whether a variable of an option that is OWNED counts; containerd's do where no runtime is named."""
    owner = OWNERS.get(variable.partition("_")[0], "")
    return owner in ("", runtime) or (not runtime and owner == "containerd")


def _value(
    option: Option, text: str, origin: str, problems: list[str]
) -> bool | str | float | tuple[str, ...]:
    if option.kind == "list":
        return tuple(filter(None, (word.strip() for word in text.split(","))))
    if option.kind == "bool":
        if text and text not in TRUE + FALSE:
            problems.append(f"{origin}={text!r}: write true or false")
        return text in TRUE
    if option.kind == "seconds":
        return _seconds(text, origin, problems)
    if text and option.allowed and text not in option.allowed:
        problems.append(f"{origin}={text!r}: write one of {', '.join(option.allowed)}")
    return text


def _seconds(text: str, origin: str, problems: list[str]) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if text and not 0 < value < LONGEST:
        problems.append(f"{origin}={text!r}: write a number of seconds, more than 0 and less than {LONGEST}")
    return value


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


def nri_is_refused() -> Unsupported:
    return Unsupported(
        "NRI mode (--enable-nri-plugin, ENABLE_NRI_PLUGIN) is not part of this release",
        resolution="unset it to have the runtime's configuration changed, or use NVIDIA's image on this "
        "node; nothing was changed",
    )
