"""What is asked of a change of the runtime's configuration. All paths are the node's.

`driverctl runtime` and `driverctl toolkit` make a request of their options and of the environment in one
place: `toolkit/runtime_request.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from driverforge_core.errors import InputError, UsageError
from driverforge_host.gpu import environment
from driverforge_host.ports import Files, Host
from driverforge_host.ports.mounts import covering, parse_mountinfo, translated
from driverforge_toolkit.runtime.model import RUNC, DaemonPath, NodePath, PodPath, RuntimeKind, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers

RestartMode = Literal["", "signal", "systemd", "none"]
KINDS: tuple[RuntimeKind, ...] = ("containerd", "crio", "docker")
FOUND, FOUND_PROGRAM = NodePath(""), DaemonPath("")  # what is found on the node is taken
MODES: tuple[RestartMode, ...] = ("signal", "systemd", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRequest:
    """What the user asks for. '' leaves a choice to what is found on the node."""

    wanted: WantedHandlers
    runtime: RuntimeKind | Literal[""] = ""
    socket: NodePath = FOUND
    config: NodePath = FOUND
    drop_in: NodePath = FOUND
    binary: DaemonPath = FOUND_PROGRAM
    restart_mode: RestartMode = ""
    restart_command: str = ""  # for a daemon whose supervisor we do not know
    patience: float = 0.0  # seconds for a restarted daemon to answer; 0: what its supervisor needs
    given: Mapping[str, str] = field(default_factory=dict)  # field -> where its value came from


def wanted_handlers(
    *,
    folder: str = f"{environment.INSTALL_DIR}/toolkit",
    name: str = "nvidia",
    default: bool | None = None,
    cdi: bool = False,
    prefixes: Sequence[str] = (),
    runtime_type: str = RUNC,
    override: str = "",
) -> WantedHandlers:
    """The handlers of NVIDIA's toolkit, and what goes with them.

    `default` says whether `name` is to be the default handler; None leaves the default alone. Raises
    UsageError for a name that no handler can have, InputError for an `override` that cannot be applied.
    """
    if not name or "/" in name or not name.isprintable() or name.split() != [name]:
        raise UsageError(
            f"{name!a} is not a name for a runtime handler", resolution="give a name as 'nvidia'"
        )
    more = _override(override)
    patterns = (*(f"{prefix}*" for prefix in prefixes), *more.annotations)
    return WantedHandlers(
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
    """What RUNTIME_CONFIG_OVERRIDE says."""

    options: Mapping[str, object] = field(default_factory=dict)
    annotations: tuple[str, ...] = ()
    runtime_type: str = ""


def _override(text: str) -> Override:
    """Read RUNTIME_CONFIG_OVERRIDE. Raises InputError with everything that is wrong in it.

    An example:

        {"options": {"SystemdCgroup": true}, "container_annotations": ["x/*"], "runtime_type": "…"}

    Other keys are options too: NVIDIA's toolkit has '{"SystemdCgroup": true}'.
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
            "RUNTIME_CONFIG_OVERRIDE is not a JSON object", resolution="write a JSON object as '{}'"
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
    """Why no runtime's file can have this value; '' where it can."""
    if value is None:
        return "null, which TOML does not have; leave the key out"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r} is a number that no file can hold"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "a number of more than 64 bits"
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return f"{value!a} has half of a character"
    if depth > 20:
        return "nested too deep"
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((why for item in inner if (why := _unfit(item, depth=depth + 1))), "")


def node_path(host: Host, path: PodPath) -> NodePath:
    """What the node calls a path of our own mount namespace.

    The path itself, where we run on the node, or where it lies in our image and not on a mount. Raises
    UsageError where it lies on a mount that the node does not have.
    """
    if host.node.root == "/":
        return NodePath(path)
    inside = parse_mountinfo(host.files.read_text("/proc/self/mountinfo"))
    real = _resolved_here(host.files, path)
    mount = covering(real, inside)
    if mount is None or mount.target == "/":
        return NodePath(path)
    found = translated(real, inside, parse_mountinfo(host.files.read_text("/proc/1/mountinfo")))
    if found is None:
        raise UsageError(
            f"{path} is on a mount of this container that the node does not have",
            details=[f"it lies on {mount.target}, of {mount.source} ({mount.fs_type})"],
            resolution="mount the node's own folder there (a hostPath volume)",
        )
    return NodePath(found)


def _resolved_here(files: Files, path: str) -> str:
    """The path with the links of our own image followed (/var/run).

    Links among the node's files are the node's, and stay.
    """
    folder, _, name = path.rpartition("/")
    return f"{files.resolve(folder or '/').rstrip('/')}/{name}"
