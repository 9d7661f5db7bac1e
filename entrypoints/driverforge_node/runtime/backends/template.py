"""The templates of which k3s, rke2 and microk8s make containerd's configuration at each start.

A template is no TOML (`{{ … }}`), so that it is edited as text: our tables are in a marked section at its
end. Facts: k3s' advanced documentation, microk8s' own template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.runtime.backends import containerd
from driverforge_node.runtime.backends.containerd_config import (
    CGROUP,
    CRI_V2,
    CRI_V3,
    RUNTIMES,
    cri_section,
)
from driverforge_node.runtime.formats.values import KeyPath, lookup, text_of
from driverforge_node.runtime.model import Activation, Backend, RuntimeDaemon, Undone, WantedHandlers

BEGIN = "# >>> driverctl: NVIDIA's runtime handlers; `driverctl runtime revert` takes this section out"
END = "# <<< driverctl"
BASE = '{{ template "base" . }}'  # k3s' and rke2's own configuration
K3S_CGROUP = {CGROUP: "{{ .SystemdCgroup }}"}  # as the runtimes of the base have it
_RUNC_CGROUP = re.compile(
    r"""^[ \t]*\[.*runtimes\.["']?runc["']?\.options[ \t]*\].*\n(?:(?![ \t]*\[).*\n)*?"""
    rf"[ \t]*{CGROUP}[ \t]*=([^#\n]*)",
    re.MULTILINE,
)
_SECTION = re.compile(rf"{re.escape(BEGIN)}\r?\n.*?{re.escape(END)}\r?\n?", re.DOTALL)


def patched(
    data: bytes | None, name: str, wanted: WantedHandlers, *, version: int, present: Collection[str] = ()
) -> bytes:
    """The template with the handlers of `wanted`. CDI stays as the base has it.

    `version` is that of the configuration that is made of it. `present` are runtimes that the base brings
    without us: k3s finds NVIDIA's programs itself, and a table that is there twice keeps containerd from
    starting. Raises Unsupported where there is no correct result, InputError for a file that is not a text.
    """
    if wanted.default:
        raise Unsupported(
            f"{name} is a template, which cannot set the default runtime",
            details=["the table that has it is the distribution's own, and TOML allows it once"],
            resolution=f"start the distribution with --default-runtime={wanted.default}; nothing was changed",
        )
    text = text_of(data, name) if data is not None else f"{BASE}\n"
    rest = _SECTION.sub("", text)
    missing = [handler for handler in wanted.handlers if handler.name not in present]
    twice = [handler.name for handler in missing if _has(rest, handler.name)]
    if twice:
        raise Unsupported(
            f"{name} has runtimes of these names already: {', '.join(twice)}",
            resolution="take them out of the template, or keep them and leave the template alone; nothing "
            "was changed",
        )
    if not missing:
        return data if data is not None and rest == text else rest.encode()
    cgroup = K3S_CGROUP if BASE in rest else _cgroup_of_runc(rest)
    options = {**cgroup, **{key: _value(value, key) for key, value in wanted.options.items()}}
    lines = [BEGIN]
    for handler in missing:
        annotations = (
            {"container_annotations": _value(list(wanted.annotations), "")} if wanted.annotations else {}
        )
        lines += _tables(
            handler.name, {"runtime_type": _value(wanted.runtime_type, ""), **annotations}, version
        )
        lines += _tables(
            handler.name, {"BinaryName": _value(handler.binary, ""), **options}, version, ".options"
        )
    newline = "\r\n" if "\r\n" in rest else "\n"
    joint = "" if not rest or rest.endswith("\n") else newline
    return f"{rest}{joint}{newline.join([*lines, END])}{newline}".encode()


def _cgroup_of_runc(text: str) -> dict[str, str]:
    """The cgroup driver that a template of its own gives to runc, as it is written there; {} without one."""
    found = _RUNC_CGROUP.search(text)
    return {CGROUP: found.group(1).strip()} if found else {}


def _has(text: str, runtime: str) -> bool:
    return (
        re.search(rf"^\s*\[.*runtimes\.[\"']?{re.escape(runtime)}[\"']?\s*\]", text, re.MULTILINE) is not None
    )


def _tables(name: str, values: Mapping[str, str], version: int, inner: str = "") -> list[str]:
    section = CRI_V3 if version >= 3 else CRI_V2
    header = f'[plugins."{section[1]}".containerd.runtimes.{json.dumps(name)}{inner}]'
    return [header, *(f"{key} = {value}" for key, value in values.items())]


def _value(value: object, name: str) -> str:
    """A value as TOML. For texts, numbers, booleans and lists of them, JSON's text is the same."""
    if isinstance(value, Mapping) or value is None:
        raise InputError(
            f"the option {name} cannot be written to a template: {value!r}",
            resolution="give a text, a number or a boolean",
        )
    return json.dumps(value)


def undone(path: str, *, original: bytes | None, written: bytes | None, current: bytes | None) -> Undone:
    """`current` without our section.

    The exact original where nobody changed the file since, None for a file that was ours alone.
    """
    if current == written:
        return Undone(data=original)
    if current is None:
        return Undone(data=None)
    rest = _SECTION.sub("", text_of(current, path))
    return Undone(data=None if original is None and rest.strip() in ("", BASE) else rest.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBackend:
    """A `Backend` whose only file is the template of the daemon's root file."""

    template: str
    version: int  # of the root file that comes of it
    own: tuple[str, ...] = ()  # handlers that the distribution adds by itself at its next start

    def paths(self, daemon: RuntimeDaemon) -> tuple[str, ...]:
        return (self.template,)

    def placed(self, daemon: RuntimeDaemon, files: Mapping[str, bytes | None]) -> RuntimeDaemon:
        return daemon

    def patched(
        self,
        daemon: RuntimeDaemon,
        files: Mapping[str, bytes | None],
        effective: Mapping[str, object],
        wanted: WantedHandlers,
    ) -> dict[str, bytes | None]:
        present = {*containerd.handlers(effective), *self.own}
        return {
            self.template: patched(
                files[self.template], self.template, wanted, version=self.version, present=present
            )
        }

    def undone(
        self, path: str, *, original: bytes | None, written: bytes | None, current: bytes | None
    ) -> Undone:
        return undone(path, original=original, written=written, current=current)

    def stripped(
        self, daemon: RuntimeDaemon, files: Mapping[str, bytes | None], names: tuple[str, ...]
    ) -> dict[str, bytes | None]:
        raise Unsupported(
            f"{daemon.config} is made of {self.template} and of programs that {daemon.supervisor.kind} finds",
            details=[f"handlers: {', '.join(names)}"],
            resolution="take them out of the template by hand, and remove NVIDIA's programs; nothing was "
            "changed",
        )

    def unservable(self, effective: Mapping[str, object]) -> str:
        return containerd.unservable(effective)

    def handlers(self, effective: Mapping[str, object]) -> dict[str, str]:
        return containerd.handlers(effective)

    def foreign(
        self, before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
    ) -> dict[KeyPath, tuple[object, object]]:
        return containerd.foreign(before, after, wanted)

    def activation(self, before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
        return containerd.activation(before, after)

    def low_level_runtimes(self, config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
        return containerd.low_level_runtimes(config, own)

    def rendered(
        self,
        daemon: RuntimeDaemon,
        root: bytes,
        source: bytes,
        effective: Mapping[str, object],
        wanted: WantedHandlers,
    ) -> bytes:
        """The root file as the distribution will write it.

        `root` is today's without our section, `source` is the template as it will be.
        """
        present = containerd.handlers(effective)
        whole = BASE.encode() in source
        start = f"{BASE}\n".encode() if whole else root
        text = patched(start, daemon.config, wanted, version=self.version, present=present)
        runc = lookup(effective, (*cri_section(effective), *RUNTIMES, "runc", "options", CGROUP))
        cgroup = b"true" if runc is True else b"false"
        text = text.replace(BASE.encode(), root) if whole else text
        return text.replace(K3S_CGROUP[CGROUP].encode(), cgroup)


def is_template(edit: Backend) -> TypeGuard[TemplateBackend]:
    return isinstance(edit, TemplateBackend)
