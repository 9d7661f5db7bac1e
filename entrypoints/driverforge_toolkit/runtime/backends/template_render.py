"""What k3s and rke2 make of a template at their next start, found out before it.

A template is one of Go's text/template, executed beside the distribution's own, which is called `base`
(k3s-io/k3s pkg/agent/templates). What is foreseen: text, comments, the call of the base and `.SystemdCgroup`.
Of a template with any other expression nothing is said. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import tomllib

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.backends.containerd_config import (
    CGROUP,
    CRI_V2,
    CRI_V3,
    RUNTIMES,
    cri_section,
)
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, lookup

# text/template: `{{- ` takes the white space before it away, ` -}}` that behind it
_ACTION = re.compile(r"(?:\s*\{\{-(?=\s)|\{\{)(.*?)(?:(?<=\s)-\}\}\s*|\}\})", re.DOTALL)
_BASE = re.compile(r'template\s+"base"\s+\.')
_COMMENT = re.compile(r"/\*.*\*/", re.DOTALL)
_HEADER = re.compile(r"^[ \t]*\[{1,2}[^\[\]\n]+\]{1,2}[ \t\r]*(?:#[^\n]*)?$", re.MULTILINE)
_LINE = re.compile(r"\bline (\d+)")
IMAGES_V3 = ("plugins", "io.containerd.cri.v1.images")
_RUNC = (*RUNTIMES, "runc")
# below a section of CRI: the tables that every base has
_OWN = ((), ("containerd",), RUNTIMES, _RUNC, (*_RUNC, "options"), ("cni",), ("registry",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A part of what comes out; `line` is where it stands in the template."""

    line: int
    text: str
    base: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableText:
    """A table of a file, as text: its header, and all up to the next one. `path` is () above the first."""

    path: KeyPath
    start: int  # first line, from 1
    end: int  # the line behind the last
    text: str


def calls_base(template: str) -> bool:
    return any(_BASE.fullmatch(found[1].strip()) for found in _ACTION.finditer(template))


def is_foreseen(template: str) -> bool:
    """Whether all that the template does is known here."""
    return _pieces(template, "", "") is not None


def rendered(template: str, name: str, *, base: str) -> str | None:
    """The file that comes of a template; None where that is not foreseen. `base` is the distribution's own.

    Raises InputError, with the template's line, where that file is not TOML.
    """
    pieces = _pieces(template, base, _cgroup(base))
    if pieces is None:
        return None
    text = "".join(piece.text for piece in pieces)
    try:
        parse(text.encode(), name)
    except InputError as error:
        raise InputError(
            f"what is made of {name} at the next start is not valid TOML: containerd does not start with it",
            details=[_place(error, pieces, template, name), *error.details],
        ) from error
    return text


def base_of(root: str, template: str | None) -> str | None:
    """The distribution's own part of `root`, which it made of `template` or of an earlier one.

    None where there is none in it: all of it is the template's.
    """
    if template is None:
        return root
    if not calls_base(template):
        return None if _pieces(template, "", "") in (None, [_Piece(line=1, text=root)]) else root
    for cgroup in ("true", "false"):
        pieces = _pieces(template, "", cgroup) or []
        place = next((number for number, piece in enumerate(pieces) if piece.base), len(pieces))
        before, after = ("".join(piece.text for piece in some) for some in (pieces[:place], pieces[place:]))
        if root.startswith(before) and root.endswith(after) and len(root) >= len(before) + len(after):
            return root[len(before) : len(root) - len(after)]
    # made of another template: what this one has too was in that one, but for what every base has
    theirs = {table.path for table in tables_in(template)}
    tables = tables_in(root)
    return "".join(table.text for table in tables if table.path not in theirs or is_own(table.path))


def is_own(path: KeyPath) -> bool:
    """Whether every configuration of the distribution has this table, or makes it by one below it."""
    return path in ((), ("plugins",)) or any(
        path == (*section, *below) for section in (CRI_V2, CRI_V3, IMAGES_V3) for below in _OWN
    )


def tables_in(text: str) -> list[TableText]:
    """The tables of a text in their order. A header that cannot be read belongs to the table above it."""
    headers = ((found.start(), _path_of(found[0])) for found in _HEADER.finditer(text))
    starts: list[tuple[int, KeyPath]] = [(0, ()), *((start, path) for start, path in headers if path)]
    ends = [*(start for start, _ in starts[1:]), len(text)]
    found = []
    for (start, path), end in zip(starts, ends, strict=True):
        own = text[start:end]
        first = text[:start].count("\n") + 1
        lines = own.count("\n") + (own[-1:] not in ("", "\n"))
        found.append(TableText(path=path, start=first, end=first + lines, text=own))
    return found


def lacking(document: Mapping[str, object]) -> tuple[KeyPath, ...]:
    """The keys that every configuration of the distribution has, and this one has not."""
    section = cri_section(document)
    images = (*IMAGES_V3, "pinned_images", "sandbox") if section == CRI_V3 else (*CRI_V2, "sandbox_image")
    return tuple(path for path in ((*section, *_RUNC), images) if lookup(document, path) is REMOVED)


def _path_of(header: str) -> KeyPath:
    try:
        here: object = tomllib.loads(header)
    except ValueError:
        return ()
    path = []
    while isinstance(here, dict | list) and here:
        if isinstance(here, list):
            here = here[0]
            continue
        [(key, here)] = here.items()
        path.append(key)
    return tuple(path)


def _pieces(template: str, base: str, cgroup: str) -> list[_Piece] | None:
    pieces, end = [], 0
    for found in _ACTION.finditer(template):
        pieces.append(_piece(template, end, found.start()))
        action, line = found[1].strip(), template[: found.start(1)].count("\n") + 1
        if _BASE.fullmatch(action):
            pieces.append(_Piece(line=line, text=base, base=True))
        elif action == f".{CGROUP}":
            pieces.append(_Piece(line=line, text=cgroup))
        elif not _COMMENT.fullmatch(action):
            return None
        end = found.end()
    return [*pieces, _piece(template, end, len(template))]


def _piece(template: str, start: int, end: int) -> _Piece:
    return _Piece(line=template[:start].count("\n") + 1, text=template[start:end])


def _cgroup(base: str) -> str:
    """`.SystemdCgroup`, as the base gives it to runc."""
    try:
        document = parse(base.encode(), "base")
    except InputError:
        return "false"
    value = lookup(document, (*cri_section(document), *_RUNC, "options", CGROUP))
    return "true" if value is True else "false"


def _place(error: InputError, pieces: list[_Piece], template: str, name: str) -> str:
    """Where the mistake stands in the template, with that line. Without a line it is at the end."""
    told = _LINE.search(" ".join(error.details))
    wanted = int(told[1]) if told else sum(piece.text.count("\n") for piece in pieces) + 1
    found, start, here = pieces[0], 1, 1
    for piece in pieces:
        if piece.text and here <= wanted:
            found, start = piece, here
        here += piece.text.count("\n")
    line = found.line if found.base else found.line + wanted - start
    return f"{name}:{line}: {''.join(template.split(chr(10))[line - 1 : line]).strip()}"
