"""The templates of which k3s, rke2 and microk8s make containerd's configuration at each start.

A template is no TOML (`{{ … }}`), so that it is edited as text: our tables are in a marked section at its
end. A handler of one of our names that the template has itself keeps its table, gets our program, and is what
our others take after. Facts: k3s' advanced documentation, microk8s' own template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.backends import containerd
from driverforge_toolkit.runtime.backends.containerd_config import (
    CGROUP,
    CRI_V2,
    CRI_V3,
    RUNTIMES,
)
from driverforge_toolkit.runtime.backends.template_tables import (
    Values,
    has_table,
    programs,
    tables_of,
    with_programs,
)
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents
from driverforge_toolkit.runtime.formats.spelling import PROGRAM
from driverforge_toolkit.runtime.formats.values import KeyPath, text_of
from driverforge_toolkit.runtime.model import (
    Activation,
    Backend,
    Handler,
    RuntimeDaemon,
    Undone,
    WantedHandlers,
)

BEGIN = "# >>> driverctl: NVIDIA's runtime handlers; `driverctl runtime revert` takes this section out"
END = "# <<< driverctl"
BASE = '{{ template "base" . }}'  # k3s' and rke2's own configuration
EXTRA = ".ExtraRuntimes"  # in a copy of their template: the runtimes that they find by themselves
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
    there = [handler for handler in wanted.handlers if has_table(rest, handler.name)]
    model = _taken_over(rest, name, there, wanted, present)
    rest = with_programs(rest, {handler.name: _value(handler.binary, "") for handler in there})
    missing = [handler for handler in wanted.handlers if handler not in there and handler.name not in present]
    if not missing:
        return data if data is not None and rest == text else rest.encode()
    table, options = model or _new_tables(rest, wanted)
    lines = [BEGIN]
    for handler in missing:
        lines += _tables(handler.name, table, version)
        program = {PROGRAM: _value(handler.binary, "")}
        lines += _tables(handler.name, {**program, **options}, version, ".options")
    newline = "\r\n" if "\r\n" in rest else "\n"
    joint = "" if not rest or rest.endswith("\n") else newline
    return f"{rest}{joint}{newline.join([*lines, END])}{newline}".encode()


def _taken_over(
    rest: str, name: str, there: Sequence[Handler], wanted: WantedHandlers, present: Collection[str]
) -> tuple[Values, Values] | None:
    """The tables of the first handler that the template has itself, less its program; None where it has none.

    Raises Unsupported for one that cannot be changed where it is, or that does not say what is asked for.
    """
    found = {handler.name: tables_of(rest, handler.name) for handler in there}
    wrong = [
        f"{each}: {why}"
        for each, tables in found.items()
        for why in _unfit(tables, programs(rest).get(each, ""), wanted, added=each in present)
    ]
    if wrong:
        raise Unsupported(
            f"{name} has runtimes of these names already: {', '.join(found)}",
            details=wrong,
            resolution="take them out of the template, or keep them and leave the template alone; nothing "
            "was changed",
        )
    table, options = next((tables for tables in found.values() if tables), (None, {}))
    if table is None:
        return None
    said = {key: value for key, value in options.items() if key.lower() != PROGRAM.lower()}
    silent = not any(key.lower() == CGROUP.lower() for key in said)
    return table, {**(_cgroup_of_runc(rest) if silent else {}), **said}


def _unfit(
    tables: tuple[Values, Values] | None, program: str, wanted: WantedHandlers, *, added: bool
) -> list[str]:
    """Why a handler of the template cannot be used; `added`: the distribution brings it too."""
    if added:
        return ["the distribution adds a runtime of this name by itself, and TOML allows it once"]
    if tables is None or not program:
        return [f'not one plain table, and one of its options with one line {PROGRAM} = "…"']
    table, options = tables
    return [
        f"{key} = {value} is asked for, and is not what it says"
        for says, asked in ((table, _annotations(wanted)), (options, _options(wanted)))
        for key, value in asked.items()
        if says.get(key) != value
    ]


def _new_tables(rest: str, wanted: WantedHandlers) -> tuple[Values, Values]:
    """The tables of a handler of ours, less its program, where the template has none to take after."""
    table = {"runtime_type": _value(wanted.runtime_type, ""), **_annotations(wanted)}
    return table, {**_cgroup_of_runc(rest), **_options(wanted)}


def _annotations(wanted: WantedHandlers) -> Values:
    return {"container_annotations": _value(list(wanted.annotations), "")} if wanted.annotations else {}


def _options(wanted: WantedHandlers) -> Values:
    return {key: _value(value, key) for key, value in wanted.options.items()}


def _cgroup_of_runc(text: str) -> Values:
    """The cgroup driver that a template gives to runc, as it is written there; {} without one.

    In the distribution's own it is the distribution's expression.
    """
    if BASE in text:
        return K3S_CGROUP
    found = _RUNC_CGROUP.search(text)
    return {CGROUP: found.group(1).strip()} if found else {}


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


def undone(current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
    """`current` without our section, and with the programs that it named before.

    The exact original where nobody changed the file since; a file that was ours alone goes away.
    """
    if current.data == written:
        return Undone(file=current.with_data(original))
    if current.data is None:
        return Undone(file=current)
    rest = _SECTION.sub("", text_of(current.data, current.path))
    before, ours, now = (
        programs(_SECTION.sub("", text_of(data or b"", current.path)))
        for data in (original, written, current.data)
    )
    changed = [each for each, program in before.items() if ours.get(each, program) != program and each in now]
    back = {each: before[each] for each in changed if now[each] == ours[each]}
    rest = with_programs(rest, back)
    kept = tuple((*RUNTIMES, each, "options", PROGRAM) for each in changed if each not in back)
    if original is None and rest.strip() in ("", BASE):
        return Undone(file=current.with_data(None))
    return Undone(file=current.with_data(rest.encode()), kept=kept)


def root_without_ours(root: bytes, source: bytes | None, name: str) -> bytes:
    """The root file as the distribution makes it of a template that has nothing of ours.

    `root` was made of one that had. `source` is the template without ours.
    """
    text = _SECTION.sub("", text_of(root, name))
    return with_programs(text, programs(text_of(source or b"", name))).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBackend:
    """A `Backend` whose only file is the template of the daemon's root file."""

    template: str
    version: int  # of the root file that comes of it
    own: tuple[str, ...] = ()  # handlers that the distribution adds by itself at its next start

    def paths(self, daemon: RuntimeDaemon) -> tuple[str, ...]:
        return (self.template,)

    def placed(self, daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
        return daemon

    def patched(
        self,
        daemon: RuntimeDaemon,
        files: Contents,
        effective: Mapping[str, object],
        wanted: WantedHandlers,
    ) -> Contents:
        source = files[self.template]
        text = text_of(source.data or BASE.encode(), self.template)
        here = {each for each in wanted.names if has_table(_SECTION.sub("", text), each)}
        present = {*(containerd.handlers(effective).keys() - here), *self._found(text)}
        data = patched(source.data, self.template, wanted, version=self.version, present=present)
        return {self.template: source.with_data(data)}

    def _found(self, text: str) -> tuple[str, ...]:
        """The handlers that the distribution adds to what it makes of this template."""
        return self.own if BASE in text or EXTRA in text else ()

    def undone(self, current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
        return undone(current, original=original, written=written)

    def stripped(self, daemon: RuntimeDaemon, files: Contents, names: tuple[str, ...]) -> Contents:
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
        text = _SECTION.sub("", text_of(source, self.template))
        here = {each for each in wanted.names if has_table(text, each)}
        present = containerd.handlers(effective).keys() - here
        return patched(root, daemon.config, wanted, version=self.version, present=present)


def is_template(edit: Backend) -> TypeGuard[TemplateBackend]:
    return isinstance(edit, TemplateBackend)
