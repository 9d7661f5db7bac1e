"""A CDI spec as frozen values, to and from the plain documents that JSON and YAML hold.

Field names follow the CDI specification. A field that has its default is left out of the document, as the
specification's own writer does.
"""

# ruff: noqa: RUF009 - `_key` makes a dataclass field
from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")
# (raw value, where it is, problems so far) to a value; a problem is added to the list, so that all are told
# at once
Reader = Callable[[object, str, list[str]], Any]


def _text(raw: object, where: str, problems: list[str]) -> str:
    if not isinstance(raw, str):
        problems.append(f"{where}: {reprlib.repr(raw)} is not text; put it in quotes")
        return ""
    if not raw.isascii() and any("\ud800" <= letter <= "\udfff" for letter in raw):
        problems.append(f"{where}: {raw!a} has half of a character, and no file can hold that")
    if "\0" in raw:
        problems.append(f"{where}: {raw!a} has a zero byte, and no name or path can hold that")
    return raw


def _number(raw: object, where: str, problems: list[str]) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        problems.append(f"{where}: {reprlib.repr(raw)} is not a whole number")
        return 0
    return raw


def _flag(raw: object, where: str, problems: list[str]) -> bool:
    if not isinstance(raw, bool):
        problems.append(f"{where}: {reprlib.repr(raw)} is neither true nor false")
    return raw is True


def _list_of(read: Reader) -> Reader:
    def many(raw: object, where: str, problems: list[str]) -> tuple[Any, ...]:
        # Go's writers put null for an empty list
        if raw is None:
            return ()
        if not isinstance(raw, list):
            problems.append(f"{where}: must be a list")
            return ()
        return tuple(read(item, f"{where}[{index}]", problems) for index, item in enumerate(raw))

    return many


def _pairs(raw: object, where: str, problems: list[str]) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, dict):
        problems.append(f"{where}: must be a mapping of text to text")
        return ()
    return tuple(
        (_text(key, where, problems), _text(value, f"{where}.{key}", problems)) for key, value in raw.items()
    )


def _value_of(cls: type[T]) -> Reader:
    def one(raw: object, where: str, problems: list[str]) -> T:
        return _read(cls, raw, where, problems)

    return one


_REQUIRED: Any = MISSING


def _key(name: str, read: Reader, default: Any = _REQUIRED) -> Any:
    """A field that is called `name` in the document."""
    return field(default=default, metadata={"key": name, "read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node in the container. Without numbers the runtime takes those of the host's node."""

    path: str = _key("path", _text)
    host_path: str = _key("hostPath", _text, "")
    type: str = _key("type", _text, "")
    major: int = _key("major", _number, 0)
    minor: int = _key("minor", _number, 0)
    file_mode: int | None = _key("fileMode", _number, None)
    permissions: str = _key("permissions", _text, "")
    uid: int | None = _key("uid", _number, None)
    gid: int | None = _key("gid", _number, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecMount:
    """A file or folder of the host, in the container."""

    host_path: str = _key("hostPath", _text)
    container_path: str = _key("containerPath", _text)
    options: tuple[str, ...] = _key("options", _list_of(_text), ())
    type: str = _key("type", _text, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecHook:
    """A program that the OCI runtime starts; `name` says when, as the OCI runtime specification has it."""

    name: str = _key("hookName", _text)
    path: str = _key("path", _text)
    args: tuple[str, ...] = _key("args", _list_of(_text), ())
    env: tuple[str, ...] = _key("env", _list_of(_text), ())
    timeout: int | None = _key("timeout", _number, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface of the host that moves into the container."""

    host_interface: str = _key("hostInterfaceName", _text)
    name: str = _key("name", _text)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt:
    """Limits of cache and memory bandwidth (Intel RDT)."""

    clos_id: str = _key("closID", _text, "")
    l3_cache: str = _key("l3CacheSchema", _text, "")
    memory_bandwidth: str = _key("memBwSchema", _text, "")
    schemata: tuple[str, ...] = _key("schemata", _list_of(_text), ())
    enable_cmt: bool = _key("enableCMT", _flag, False)
    enable_mbm: bool = _key("enableMBM", _flag, False)
    enable_monitoring: bool = _key("enableMonitoring", _flag, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What is added to a container (`containerEdits`)."""

    env: tuple[str, ...] = _key("env", _list_of(_text), ())
    device_nodes: tuple[DeviceNode, ...] = _key("deviceNodes", _list_of(_value_of(DeviceNode)), ())
    net_devices: tuple[NetDevice, ...] = _key("netDevices", _list_of(_value_of(NetDevice)), ())
    hooks: tuple[SpecHook, ...] = _key("hooks", _list_of(_value_of(SpecHook)), ())
    mounts: tuple[SpecMount, ...] = _key("mounts", _list_of(_value_of(SpecMount)), ())
    intel_rdt: IntelRdt | None = _key("intelRdt", _value_of(IntelRdt), None)
    additional_gids: tuple[int, ...] = _key("additionalGids", _list_of(_number), ())

    def __bool__(self) -> bool:
        return self != ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDevice:
    """What a container gets that asks for the device KIND=NAME."""

    name: str = _key("name", _text)
    annotations: tuple[tuple[str, str], ...] = _key("annotations", _pairs, ())
    edits: ContainerEdits = _key("containerEdits", _value_of(ContainerEdits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec file. An empty `version` becomes the smallest that the content needs when it is written."""

    version: str = _key("cdiVersion", _text)
    kind: str = _key("kind", _text)
    annotations: tuple[tuple[str, str], ...] = _key("annotations", _pairs, ())
    devices: tuple[SpecDevice, ...] = _key("devices", _list_of(_value_of(SpecDevice)))
    edits: ContainerEdits = _key("containerEdits", _value_of(ContainerEdits), ContainerEdits())

    @property
    def all_edits(self) -> tuple[ContainerEdits, ...]:
        return (self.edits, *(device.edits for device in self.devices))


def document(value: Any) -> dict[str, object]:
    """The plain document of any of these values."""
    found = {}
    for item in fields(value):
        current = getattr(value, item.name)
        if item.default is MISSING or current != item.default:
            found[item.metadata["key"]] = (
                dict(current) if item.metadata["read"] is _pairs else _plain(current)
            )
    return found


def _plain(value: object) -> object:
    if is_dataclass(value):
        return document(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def parse(raw: object) -> tuple[Spec, tuple[str, ...]]:
    """A spec from its document, with every problem of its shape; the spec is whole only where there is none.

    An unknown key is a problem: runtimes refuse the whole file for it.
    """
    problems: list[str] = []
    return _read(Spec, raw, "", problems), tuple(problems)


def _read(cls: type[T], raw: object, where: str, problems: list[str]) -> T:
    known = fields(cast(Any, cls))
    if not isinstance(raw, Mapping):
        problems.append(f"{where or 'the file'}: must be a mapping")
        raw = {}
    keys = {item.metadata["key"] for item in known}
    at = f"{where}." if where else ""
    problems += [f"{at}{key}: unknown key" for key in raw if key not in keys]
    values = {}
    for item in known:
        key = item.metadata["key"]
        # null is what a missing key is: Go's writers print it for an empty value
        if raw.get(key) is not None:
            values[item.name] = item.metadata["read"](raw[key], f"{at}{key}", problems)
        elif item.default is MISSING:
            problems.append(f"{at}{key}: missing")
            values[item.name] = _blank(item.metadata["read"])
    return cls(**values)


def _blank(read: Reader) -> Any:
    """What stands for a required value that is missing, so that the rest is still looked at."""
    return read({}, "", []) if read is not _text else ""


def joined_edits(edits: Sequence[ContainerEdits]) -> ContainerEdits:
    """Several edits as one, each list in this order."""
    return ContainerEdits(
        env=tuple(item for one in edits for item in one.env),
        device_nodes=tuple(item for one in edits for item in one.device_nodes),
        net_devices=tuple(item for one in edits for item in one.net_devices),
        hooks=tuple(item for one in edits for item in one.hooks),
        mounts=tuple(item for one in edits for item in one.mounts),
        intel_rdt=next((one.intel_rdt for one in edits if one.intel_rdt), None),
        additional_gids=tuple(item for one in edits for item in one.additional_gids),
    )
