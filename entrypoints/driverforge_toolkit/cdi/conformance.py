"""What the CDI specification asks of a spec beyond its shape: names, versions, edits that mean something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from driverforge_core.errors import InputError
from driverforge_toolkit.cdi.spec import ContainerEdits, Spec

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
EARLIEST = "0.3.0"


def split_kind(kind: str) -> tuple[str, str]:
    """(vendor, class) of 'nvidia.com/gpu'. Raises InputError with what is wrong."""
    vendor, slash, name = kind.partition("/")
    if slash and _VENDOR.fullmatch(vendor) and _CLASS.fullmatch(name):
        return vendor, name
    raise InputError(
        f"{kind!r} is not a CDI kind",
        details=[
            (
                "a kind is VENDOR/CLASS; both begin with a letter, end with a letter or digit, "
                "and hold letters, digits, '_', '-', '.'"
            )
        ],
        resolution="write it like nvidia.com/gpu",
    )


def file_name(kind: str, suffix: str = ".yaml") -> str:
    """The file name of a kind's spec, where other CDI tools expect it.

    Such as 'management.nvidia.com-gpu.yaml'.
    """
    return f"{'-'.join(split_kind(kind))}{suffix}"


def valid_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name))


def _needs_1_1(spec: Spec) -> bool:
    """1.1 added network devices, and Intel RDT's schemata and monitoring."""
    monitored = [edits.intel_rdt for edits in spec.all_edits if edits.intel_rdt]
    return any(edits.net_devices for edits in spec.all_edits) or any(
        rdt.schemata or rdt.enable_monitoring for rdt in monitored
    )


def _needs_0_7(spec: Spec) -> bool:
    """0.7 added Intel RDT and additional groups."""
    return any(edits.intel_rdt or edits.additional_gids for edits in spec.all_edits)


def _needs_0_6(spec: Spec) -> bool:
    """0.6 added annotations, and dots in the class of a kind."""
    return (
        bool(spec.annotations)
        or any(device.annotations for device in spec.devices)
        or "." in spec.kind.partition("/")[2]
    )


def _needs_0_5(spec: Spec) -> bool:
    """0.5 added host paths of device nodes, and device names that begin with a digit."""
    named = any(device.name and not device.name[0].isalpha() for device in spec.devices)
    return named or any(node.host_path for edits in spec.all_edits for node in edits.device_nodes)


def _needs_0_4(spec: Spec) -> bool:
    """0.4 added the type of a mount."""
    return any(mount.type for edits in spec.all_edits for mount in edits.mounts)


def _nothing_new(_: Spec) -> bool:
    return False


# newest first; a version without a rule of its own changed no field of the format
_VERSIONS: tuple[tuple[str, Callable[[Spec], bool]], ...] = (
    ("1.1.0", _needs_1_1),
    ("1.0.0", _nothing_new),
    ("0.8.0", _nothing_new),
    ("0.7.0", _needs_0_7),
    ("0.6.0", _needs_0_6),
    ("0.5.0", _needs_0_5),
    ("0.4.0", _needs_0_4),
    (EARLIEST, _nothing_new),
)


def minimum_version(spec: Spec) -> str:
    """The smallest version whose readers understand all of `spec`.

    An older runtime refuses a file that states a version newer than it knows.
    """
    return next((version for version, needed in _VERSIONS if needed(spec)), EARLIEST)


def fitting_version(spec: Spec) -> str:
    """The spec's own version, or the smallest that its content needs where that is larger."""
    least, known = minimum_version(spec), [version for version, _ in reversed(_VERSIONS)]
    stays = spec.version and (spec.version not in known or known.index(spec.version) >= known.index(least))
    return spec.version if stays else least


def broken_rules(spec: Spec) -> tuple[str, ...]:
    """Why a runtime would refuse this spec, a line each."""
    return tuple(_broken(spec))


def _broken(spec: Spec) -> Iterator[str]:
    try:
        split_kind(spec.kind)
    except InputError as error:
        yield f"kind: {error.brief}"
    known = [version for version, _ in reversed(_VERSIONS)]
    if spec.version not in known:
        yield f"cdiVersion: {spec.version!r} is not one of {', '.join(known)}"
    elif known.index(spec.version) < known.index(minimum_version(spec)):
        yield f"cdiVersion: {spec.version} is too small, the content needs {minimum_version(spec)}"
    if not spec.devices:
        yield "devices: there is none"
    names = [device.name for device in spec.devices]
    for name in dict.fromkeys(names):
        if not valid_name(name):
            yield f"devices: {name!r} is not a device name"
        if names.count(name) > 1:
            yield f"devices: {name!r} occurs {names.count(name)} times"
    yield from _broken_edits("containerEdits", spec.edits)
    for device in spec.devices:
        if not device.edits:
            yield f"device {device.name}: it adds nothing to a container"
        yield from _broken_edits(f"device {device.name}", device.edits)


def _broken_edits(where: str, edits: ContainerEdits) -> Iterator[str]:
    for text in edits.env:
        if "=" not in text:
            yield f"{where}: {text!r} is not NAME=VALUE"
    for node in edits.device_nodes:
        if not node.path:
            yield f"{where}: a device node without a path"
        if node.type not in ("", "b", "c", "u", "p"):
            yield f"{where}: {node.path} has the type {node.type!r}; there are b, c, u and p"
        if set(node.permissions) - set("rwm"):
            yield f"{where}: {node.path} has the permissions {node.permissions!r}; there are r, w and m"
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            yield f"{where}: a mount without hostPath or containerPath"
    for hook in edits.hooks:
        if hook.name not in _HOOKS or not hook.path:
            yield f"{where}: a hook {hook.name!r} with the program {hook.path!r}"
