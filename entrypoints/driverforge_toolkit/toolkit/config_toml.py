"""NVIDIA's config.toml: its keys as typed values, its text, and a new one laid over a person's.

Source: the reference of github.com/NVIDIA/nvidia-container-toolkit, api/config/v1, version 1.20.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from driverforge_core.errors import InputError
from driverforge_host.ports import Files
from driverforge_toolkit.runtime.formats.configfile import toml_file
from driverforge_toolkit.runtime.formats.values import REMOVED, Change, KeyPath, dotted, leaves, lookup

IF_SET = {"if_set": True}  # a key that upstream leaves out while it has its zero value
LDCONFIG = "/sbin/ldconfig"
BARE = re.compile(r"[A-Za-z0-9_-]+")  # a TOML key without quotes
ALL_CAPABILITIES = "compat32,compute,display,graphics,ngx,utility,video"


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSection:
    """nvidia-container-cli. A leading '@' of `ldconfig` says that the path is the host's."""

    debug: str = ""
    environment: tuple[str, ...] = ()
    ldcache: str = ""
    ldconfig: str = f"@{LDCONFIG}"
    load_kmods: bool = True
    no_cgroups: bool = False
    no_pivot: bool = field(default=False, metadata=IF_SET)
    path: str = ""
    root: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiMode:
    annotation_prefixes: tuple[str, ...] = ("cdi.k8s.io/",)
    default_kind: str = "nvidia.com/gpu"
    spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvMode:
    compat_container_root: str = field(default="", metadata=IF_SET)
    mount_spec_path: str = "/etc/nvidia-container-runtime/host-files-for-container.d"


@dataclass(frozen=True, slots=True, kw_only=True)
class JitCdiMode:
    nvcdi_disable_hooks: tuple[str, ...] = field(default=(), metadata=IF_SET)
    nvcdi_feature_flags: tuple[str, ...] = field(default=(), metadata=IF_SET)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyMode:
    cuda_compat_mode: str = "ldconfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesSection:
    cdi: CdiMode = CdiMode()
    csv: CsvMode = CsvMode()
    jit_cdi: JitCdiMode = field(default=JitCdiMode(), metadata=IF_SET)
    legacy: LegacyMode = LegacyMode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSection:
    """nvidia-container-runtime. `mode` is auto, cdi, jit-cdi, legacy or csv."""

    debug: str = "/dev/null"
    log_level: str = "info"
    mode: str = "auto"
    modes: ModesSection = ModesSection()
    runtimes: tuple[str, ...] = ("runc", "crun")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSection:
    path: str = "nvidia-container-runtime-hook"
    skip_mode_detection: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CtkSection:
    path: str = "nvidia-ctk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitConfig:
    """The whole file. A key is its field's name with '-' for '_'."""

    accept_nvidia_visible_devices_as_volume_mounts: bool = False
    accept_nvidia_visible_devices_envvar_when_unprivileged: bool = True
    disable_require: bool = False
    features: Mapping[str, bool] = field(default_factory=dict, metadata=IF_SET)
    nvidia_container_cli: CliSection = CliSection()
    nvidia_container_runtime: RuntimeSection = RuntimeSection()
    nvidia_container_runtime_hook: HookSection = HookSection()
    nvidia_ctk: CtkSection = CtkSection()
    supported_driver_capabilities: str = ALL_CAPABILITIES
    swarm_resource: str = ""


def default_config(os_like: Iterable[str] = ()) -> ToolkitConfig:
    """Upstream's defaults. `os_like` is ID_LIKE of os-release: on SUSE, devices belong to the group video."""
    user = "root:video" if {"suse", "opensuse"} & set(os_like) else ""
    return ToolkitConfig(nvidia_container_cli=CliSection(user=user))


def table_of(config: Any) -> dict[str, Any]:
    """The values as a TOML document has them."""
    out: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        plain = table_of(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
        if plain or not item.metadata.get("if_set"):
            out[item.name.replace("_", "-")] = dict(plain) if isinstance(plain, Mapping) else plain
    return out


def config_of_table(
    table: Mapping[str, object], name: str, *, base: ToolkitConfig | None = None
) -> ToolkitConfig:
    """The values of a parsed file over `base` (upstream's defaults).

    Keys that are not upstream's are nobody's business here. Raises InputError with every key of a wrong type,
    and for an `ldconfig` of a container that `features` do not allow; `name` is the file's, for messages.
    """
    problems: list[str] = []
    config: ToolkitConfig = _over(base or ToolkitConfig(), table, (), problems)
    problems += refused_values(config)
    if problems:
        raise InputError(
            f"{name} has values that NVIDIA's programs refuse",
            details=[f"{name}: {problem}" for problem in problems],
            resolution="repair the file, or remove it; the next start writes it anew",
        )
    return config


def refused_values(config: ToolkitConfig) -> list[str]:
    """What upstream's programs refuse of values with the right types, a sentence each."""
    ldconfig = config.nvidia_container_cli.ldconfig
    if ldconfig.startswith("@") or config.features.get("allow-ldconfig-from-container"):
        return []
    said = f"nvidia-container-cli.ldconfig is {ldconfig!r}, a program of the container"
    return [f"{said}: write '@' before a path of the host"]


def _over(base: Any, table: Mapping[str, object], above: KeyPath, problems: list[str]) -> Any:
    changes: dict[str, object] = {}
    for item in fields(base):
        key = item.name.replace("_", "-")
        if key not in table:
            continue
        default, value, path = getattr(base, item.name), table[key], (*above, key)
        if is_dataclass(default) and isinstance(value, Mapping):
            changes[item.name] = _over(default, value, path, problems)
        elif isinstance(default, Mapping) and isinstance(value, Mapping):
            problems += [
                f"{dotted((*path, name))} is not true or false"
                for name, flag in value.items()
                if not isinstance(flag, bool)
            ]
            changes[item.name] = {**default, **value}
        elif (
            isinstance(default, tuple)
            and isinstance(value, list)
            and all(isinstance(word, str) for word in value)
        ):
            changes[item.name] = tuple(value)
        elif isinstance(default, bool | str) and type(value) is type(default):
            changes[item.name] = value
        else:
            problems.append(f"{dotted(path)} is not {_kind(default)}")
    return replace(base, **changes)


def _kind(default: object) -> str:
    if isinstance(default, bool):
        return "true or false"
    return (
        "a text"
        if isinstance(default, str)
        else "a list of texts"
        if isinstance(default, tuple)
        else "a table"
    )


def host_ldconfig(files: Files, ldconfig: str) -> str:
    """`ldconfig` with '.real' where that file exists, without it where it does not.

    Ubuntu's plain ldconfig is a script.
    """
    path = ldconfig.removeprefix("@").removesuffix(".real")
    if not ldconfig.startswith("@"):
        return ldconfig
    return f"@{path}.real" if files.exists(f"{path}.real") else f"@{path}"


def render_config(config: ToolkitConfig) -> bytes:
    """The file, byte for byte as upstream writes these values.

    Keys are sorted, plain ones come before tables, and a level is two blanks.
    """
    return "\n".join(_lines(table_of(config), ())).encode() + b"\n"


def _lines(table: Mapping[str, Any], above: KeyPath) -> list[str]:
    indent = "  " * len(above)
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{indent}{_key(key)} = {_value(value)}" for key, value in sorted(plain.items())]
    for key in sorted(table.keys() - plain.keys()):
        path = (*above, key)
        lines += ["", f"{indent}[{'.'.join(map(_key, path))}]", *_lines(table[key], path)]
    return lines


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOver:
    """The file to write, and keys that a person changed and that stay as they are."""

    data: bytes
    kept: tuple[KeyPath, ...] = ()


def laid_over(
    current: bytes | None,
    last: bytes | None,
    wanted: ToolkitConfig,
    owned: Collection[KeyPath],
    name: str,
) -> LaidOver:
    """The new config.toml over the one that is there: what a person wrote stays, with its comments.

    `last` is what we wrote last time (None: we did not), `owned` are the keys that the settings decide.
    Upstream's other keys follow us only where we changed our mind; keys that are not upstream's, and
    comments, always stay. Raises InputError for a broken file, Unsupported for one that cannot be edited.
    """
    fresh = render_config(wanted)
    if current is None or current == last:
        return LaidOver(data=fresh)
    file = toml_file(name, current)
    now, before, then = file.values, file.with_data(last).values, file.with_data(fresh).values
    changes, kept = [], []
    for path, value in leaves(then):
        if lookup(now, path) == value:
            continue
        if path in owned or lookup(before, path) != value:
            changes.append(Change(path=path, value=value))
        else:
            kept.append(path)
    for path, value in leaves(before):
        if lookup(then, path) is REMOVED and lookup(now, path) == value:
            changes.append(Change(path=path, value=REMOVED))
    file = file.edited(changes)
    config_of_table(file.values, name)
    return LaidOver(data=file.data or b"", kept=tuple(kept))
