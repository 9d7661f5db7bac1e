"""The request of a change of the runtime, made of options and of the environment.

One way for both commands, so that `driverctl runtime`, run in the toolkit's pod, means what `driverctl
toolkit run` meant. The variables are those of `options.OPTIONS`. They name paths of the pod, as NVIDIA's
operator sets them (RUNTIME_CONFIG=/runtime/config-dir/config.toml); the mount tables say how the node calls
these. So do the toolkit's flags, as upstream's; those of `driverctl runtime` name paths of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from driverforge_core.errors import UsageError
from driverforge_host.ports import Host
from driverforge_toolkit.runtime.model import PodPath
from driverforge_toolkit.runtime.request import RuntimeRequest, node_path, wanted_handlers
from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.reading import OptionReading, nri_is_refused, read_options

if TYPE_CHECKING:  # `driverctl runtime` goes without all of the toolkit's settings and releases
    from driverforge_toolkit.toolkit.releases import Layout
    from driverforge_toolkit.toolkit.settings import ToolkitSettings

# the options that `driverctl runtime` has too; its own names of them where they are others
COMMAND = {
    "runtime": "--runtime",
    "socket": "--socket",
    "config": "--config",
    "drop_in": "--drop-in",
    "drop_in_host_path": "",
    "executable_path": "--executable-path",
    "restart_mode": "--restart-mode",
    "restart_command": "--restart-command",
    "patience": "--patience",
    "install_dir": "",
    "runtime_name": "--runtime-name",
    "set_as_default": "--default",
    "cdi_enabled": "",
    "enable_cdi_in_runtime": "--cdi",
    "cdi_annotation_prefixes": "",
    "runtime_type": "",
    "config_override": "--runtime-config-override",
    "enable_nri_plugin": "",
}
# an option -> the field of RuntimeRequest whose value it is
FIELDS = {
    "runtime": "runtime",
    "socket": "socket",
    "config": "config",
    "drop_in": "drop_in",
    "executable_path": "binary",
    "restart_mode": "restart_mode",
    "restart_command": "restart_command",
}


def request_of(host: Host, settings: ToolkitSettings, layout: Layout) -> RuntimeRequest:
    """The request that the toolkit's settings make. Raises UsageError, InputError."""
    values = {name: getattr(settings, name) for name in COMMAND}
    read = OptionReading(values=values, origins=dict(settings.origins), problems=[])
    return _request(host, read, folder=layout.toolkit, default=settings.set_as_default)


def request_of_command(host: Host, flags: Mapping[str, str], *, folder: str = "") -> RuntimeRequest:
    """The request of `driverctl runtime`.

    `flags` are as `settings_of` has them; `folder` is the node's folder with NVIDIA's programs. Without a
    word on the default handler, that one stays as it is, while the toolkit makes its own the default. Raises
    UsageError with every bad value at once, InputError, Unsupported (NRI).
    """
    options = [option for option in OPTIONS if option.name in COMMAND]
    read = read_options(options, flags, host.environ, flag_names=COMMAND)
    if read.problems:
        raise UsageError(
            "an option has a value that is not allowed",
            details=read.problems,
            resolution="correct it; nothing was changed",
        )
    if read.values["enable_nri_plugin"]:
        raise nri_is_refused()
    default = read.values["set_as_default"] if read.origins["set_as_default"] else None
    folder = folder or f"{read.values['install_dir'].rstrip('/')}/toolkit"
    return _request(host, read, folder=folder, default=default, of_node=flags)


def _request(
    host: Host, read: OptionReading, *, folder: str, default: bool | None, of_node: Collection[str] = ()
) -> RuntimeRequest:
    """`of_node` are the options whose values name paths of the node already."""
    values, origins = dict(read.values), dict(read.origins)
    if origins.get("config") == "DOCKER_CONFIG" and not _is_daemon_json(host, values["config"]):
        values["config"] = origins["config"] = ""
    # only what counts is translated: the node need not have the mount of another path
    drop_in = _drop_in_option(values, origins)
    values["drop_in"], origins["drop_in"] = values[drop_in], origins.get(drop_in, "")
    for name, option in (("socket", "socket"), ("config", "config"), ("drop_in", drop_in)):
        if values[name] and option not in (*of_node, "drop_in_host_path"):
            values[name] = node_path(host, PodPath(values[name]))
    given = {field: origins[name] for name, field in FIELDS.items() if values[name] and origins.get(name)}
    paths = {name: (values[name], origins.get(name, "")) for name in ("socket", "config", "drop_in")}
    _require_absolute({**paths, "folder": (folder, "--toolkit-dir")})
    return RuntimeRequest(
        wanted=wanted_handlers(
            folder=folder,
            name=values["runtime_name"],
            default=default,
            cdi=values["enable_cdi_in_runtime"],
            prefixes=values["cdi_annotation_prefixes"],
            runtime_type=values["runtime_type"],
            override=values["config_override"],
        ),
        patience=values["patience"],
        given=given,
        **{field: values[name] for name, field in FIELDS.items()},
    )


def _is_daemon_json(host: Host, path: str) -> bool:
    """Whether DOCKER_CONFIG names the daemon's file: docker's own client calls its folder so."""
    return not host.files.is_dir(path) and (path.endswith(".json") or host.files.exists(path))


def _drop_in_option(values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """The option that names the drop-in.

    One that a flag gives counts before one of a variable; then the node's own name before the pod's.
    """
    given = [name for name in ("drop_in_host_path", "drop_in") if values[name]]
    by_flag = [name for name in given if origins.get(name, "").startswith("-")]
    return next(iter(by_flag + given), "drop_in")


def _require_absolute(paths: Mapping[str, tuple[str, str]]) -> None:
    """Raises UsageError with every path that is not absolute.

    They are the node's, which has no working folder, and stay in the journal and in the runtime's files.
    """
    wrong = [
        f"{origin}: {path!a}"
        for path, origin in paths.values()
        if path and (not path.startswith("/") or not path.isprintable())
    ]
    if wrong:
        raise UsageError(
            "a path on the node is absolute",
            details=wrong,
            resolution="write the whole path, starting with /; nothing was changed",
        )
