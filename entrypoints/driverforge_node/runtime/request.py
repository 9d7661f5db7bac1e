"""What the user asks for: options of the command line, else the environment variables of NVIDIA's toolkit container.

An option names paths of the node. A variable names paths of the pod, as the operator sets them
(RUNTIME_CONFIG=/runtime/config-dir/config.toml); they are translated by the mount tables. Source: the flags of nvidia-ctk-installer
(docs/compatibility.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from driverforge_core.errors import InputError, Unsupported, UsageError
from driverforge_node.host.mounts import parse_mountinfo
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime import environment
from driverforge_node.runtime.model import RUNC, Kind, Wanted
from driverforge_node.runtime.mountmap import covering, translated
from driverforge_node.runtime.nvidia import nvidia_handlers

RestartMode = Literal["", "signal", "systemd", "none"]
KINDS: tuple[Kind, ...] = ("containerd", "crio", "docker")
MODES: tuple[RestartMode, ...] = ("signal", "systemd", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Paths are the node's; '' leaves the choice to what is found there."""

    wanted: Wanted
    runtime: Kind | Literal[""] = ""
    socket: str = ""
    config: str = ""
    drop_in: str = ""
    binary: str = ""
    restart_mode: RestartMode = ""
    restart_command: str = ""  # for a daemon whose supervisor we do not know
    patience: float = 0.0  # seconds for a restarted daemon to answer; 0: what its supervisor needs
    given: Mapping[str, str] = field(default_factory=dict)  # field -> where its value came from


def wanted(
    *,
    folder: str = f"{environment.INSTALL_DIR}/toolkit",
    name: str = "nvidia",
    default: bool | None = None,
    cdi: bool = False,
    prefixes: Sequence[str] = (),
    runtime_type: str = RUNC,
    override: str = "",
) -> Wanted:
    """The handlers and what goes with them. `default`: whether `name` is the default handler, None to leave that alone.

    Raises UsageError for a wrong name, InputError for a wrong `override`.
    """
    if not name or "/" in name or not name.isprintable() or name.split() != [name]:
        raise UsageError(f"{name!a} is no name for a runtime handler", resolution="give a name as 'nvidia'")
    more = _override(override)
    patterns = (*(f"{prefix}*" for prefix in prefixes), *more.annotations)
    return Wanted(
        handlers=nvidia_handlers(folder, name),
        default=name if default else "",
        release_default=default is False,
        cdi=cdi,
        annotations=tuple(dict.fromkeys(patterns)),
        runtime_type=more.runtime_type or runtime_type,
        options=more.options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    options: Mapping[str, object] = field(default_factory=dict)
    annotations: tuple[str, ...] = ()
    runtime_type: str = ""


def _override(text: str) -> Override:
    """RUNTIME_CONFIG_OVERRIDE: '{"options": {"SystemdCgroup": true}, "container_annotations": ["x/*"], "runtime_type": "…"}'.

    Other keys are options too: '{"SystemdCgroup": true}' is how NVIDIA's toolkit has it.
    """
    try:
        data = json.loads(text or "{}")
        text.encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            "RUNTIME_CONFIG_OVERRIDE is not JSON",
            details=[str(error)],
            resolution="write a JSON object as '{}'",
        ) from error
    if not isinstance(data, dict):
        raise InputError(
            "RUNTIME_CONFIG_OVERRIDE is no JSON object", resolution="write a JSON object as '{}'"
        )
    options, annotations = data.pop("options", {}), data.pop("container_annotations", [])
    runtime_type = data.pop("runtime_type", "")
    wrong = [f"options: an object, not {options!r}"] if not isinstance(options, dict) else []
    if not isinstance(annotations, list) or not all(isinstance(pattern, str) for pattern in annotations):
        wrong.append(f"container_annotations: a list of texts, not {annotations!r}")
    if not isinstance(runtime_type, str) or _unfit(runtime_type, depth=0):
        wrong.append(f"runtime_type: a text, not {runtime_type!r}")
    if isinstance(options, dict):
        wrong += [
            f"{name}: {why}" for name, value in {**data, **options}.items() if (why := _unfit(value, depth=0))
        ]
    if wrong:
        raise InputError(
            "RUNTIME_CONFIG_OVERRIDE cannot be applied",
            details=wrong,
            resolution="correct the value; nothing was changed",
        )
    return Override(options={**data, **options}, annotations=tuple(annotations), runtime_type=runtime_type)


def _unfit(value: object, *, depth: int) -> str:
    """Why no runtime's file can have a value, '' where it can."""
    if value is None:
        return "null, which TOML does not have; leave the key out"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r} is no number that a file can have"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "a number of more than 64 bits"
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return f"{value!a} has half of a character"
    if depth > 20:
        return "nested too deep"
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((why for item in inner if (why := _unfit(item, depth=depth + 1))), "")


def truth(text: str, name: str) -> bool:
    """A boolean of NVIDIA's environment, as Go's strconv.ParseBool reads it."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False", ""):
        return False
    raise UsageError(f"{name}={text}: neither true nor false", resolution=f"set {name} to true or false")


def from_environment(host: Host) -> dict[str, tuple[str, str]]:
    """Request field -> (value as a path of the node, variable) of what the environment says. Raises UsageError, Unsupported (NRI)."""
    environ = host.environ
    if truth(environ.get("ENABLE_NRI_PLUGIN", ""), "ENABLE_NRI_PLUGIN"):
        raise Unsupported(
            "NRI mode is not part of this release",
            details=["ENABLE_NRI_PLUGIN is set"],
            resolution="unset ENABLE_NRI_PLUGIN to have the runtime's configuration files changed, or use NVIDIA's image for this node",
        )
    runtime = environ.get("RUNTIME", "")
    found = {"runtime": (runtime, "RUNTIME")} if runtime else {}
    for name, variables in environment.PATHS.items():
        variable, value = environment.first(environ, [v for v in variables if _counts(v, runtime)])
        if value and not (variable == "DOCKER_CONFIG" and host.files.is_dir(value)):
            found[name] = (node_path(host, value), variable)
    for name, variables in (
        ("drop_in", environment.DROP_IN_OUTSIDE),
        ("binary", environment.BINARY),
        ("restart_mode", environment.RESTART_MODES),
        ("restart_command", environment.RESTART_COMMANDS),
    ):
        variable, value = environment.first(environ, variables)
        if value:
            found[name] = (value, variable)
    return found


def _counts(variable: str, runtime: str) -> bool:
    kind = {"CONTAINERD": "containerd", "DOCKER": "docker", "CRIO": "crio"}.get(
        variable.partition("_")[0], runtime
    )
    return kind == runtime or (not runtime and kind == "containerd")


def node_path(host: Host, path: str) -> str:
    """A path of our own mount namespace as the node calls it; as it is where we are on the node, or where it lies in our image."""
    if host.node.root == "/":
        return path
    inside = parse_mountinfo(host.files.read_text("/proc/self/mountinfo"))
    real = _resolved_here(host.files, path)
    mount = covering(real, inside)
    if mount is None or mount.target == "/":
        return path
    found = translated(real, inside, parse_mountinfo(host.files.read_text("/proc/1/mountinfo")))
    if found is None:
        raise UsageError(
            f"{path} is on a mount of this container that the node does not have",
            details=[f"it lies on {mount.target}, of {mount.source} ({mount.fs_type})"],
            resolution="mount the node's own folder there (a hostPath volume)",
        )
    return found


def _resolved_here(files: Files, path: str) -> str:
    """Links of our own image are followed (/var/run), those of the node's files are the node's."""
    folder, _, name = path.rpartition("/")
    return f"{files.resolve(folder or '/').rstrip('/')}/{name}"
