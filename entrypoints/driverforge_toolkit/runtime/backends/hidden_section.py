"""What a containerd 1.x does not see, since a file that it reads later has a CRI section too.

It takes that section as a whole, with all that the earlier files say of CRI left out: their runc, its
SystemdCgroup, the folders of CNI (containerd#9968). What is missing can be appended to that file. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from driverforge_core.errors import DriverforgeError
from driverforge_toolkit.runtime.backends.containerd_config import (
    CGROUP,
    RUNTIMES,
    cri_section,
    options_of,
    runtimes_of,
)
from driverforge_toolkit.runtime.backends.template_render import tables_in
from driverforge_toolkit.runtime.formats.configfile import toml_file
from driverforge_toolkit.runtime.formats.spelling import settled
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, lookup, merged, put
from driverforge_toolkit.runtime.model import RUNC

Documents = Mapping[str, Mapping[str, object]]  # by path, in the order in which they are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the file at `path` lacks of the section. `text` can be appended to it, `hidden` cannot."""

    path: str
    text: str
    hidden: tuple[KeyPath, ...] = ()

    def command(self, target: str = "") -> str:
        """What appends it, to the file itself or to `target`, of which that is made."""
        return _printed(("", *self.text.splitlines()), f">> {quote(target or self.path)}")

    def command_for_new(self, target: str) -> str:
        """What writes it into a file of its own, as it stands in one of version 2."""
        return _printed(("version = 2", *self.text.splitlines()), f"> {quote(target)}")


def _printed(lines: Iterable[str], to: str) -> str:
    return f"printf '%s\\n' {' '.join(map(quote, lines))} {to}"


def deciding_file(documents: Documents) -> str:
    """The file whose CRI section counts, the last that has one; '' where none has."""
    having = [
        path for path, document in documents.items() if lookup(document, cri_section(document)) is not REMOVED
    ]
    return having[-1] if having else ""


def missing_in(documents: Documents, texts: Mapping[str, str], runtime: str = "runc") -> Missing | None:
    """What the file that decides lacks of what the earlier ones say; at least `runtime`.

    None where that has no form that is certain to be TOML when it is appended.
    """
    path = deciding_file(documents)
    own = documents.get(path, {})
    section = cri_section(own)
    before: dict[str, object] = {}
    for name, document in documents.items():
        found = lookup(document, cri_section(document))
        if name != path and isinstance(found, Mapping):
            before = merged(before, found)
    here = lookup(own, section)
    if lookup(before, (*RUNTIMES, runtime)) is REMOVED:
        put(before, (*RUNTIMES, runtime), {"runtime_type": RUNC, **_cgroup(own)})
    text = texts.get(path, "")
    size = len(section)
    stated = {table.path[size:] for table in tables_in(text) if table.path[:size] == section}
    new: dict[str, object] = {}
    hidden = []
    for key, value in _lacking(before, here if isinstance(here, Mapping) else {}):
        if key[:-1] in stated and not isinstance(value, Mapping):
            hidden.append((*section, *key))
        else:
            put(new, (*section, *key), value)
    try:
        added = (toml_file(path).rewritten(new).data or b"").decode()
        parse(f"{text}\n{added}".encode(), path)
    except DriverforgeError:
        return None
    return Missing(path=path, text=added, hidden=tuple(hidden))


def _lacking(
    below: Mapping[str, object], own: Mapping[str, object], above: KeyPath = ()
) -> Iterator[tuple[KeyPath, object]]:
    """The keys and whole tables that are in `below` and not in `own`."""
    for key, value in below.items():
        here = own.get(key, REMOVED)
        if here is REMOVED:
            yield (*above, key), value
        elif isinstance(here, Mapping) and isinstance(value, Mapping) and above != RUNTIMES:
            yield from _lacking(value, here, (*above, key))


def _cgroup(document: Mapping[str, object]) -> dict[str, object]:
    """The options of a runtime that nobody states, after those of the others: all of one node agree."""
    stated = {
        settled(options_of(table), any_case=False).get(CGROUP) for table in runtimes_of(document).values()
    }
    stated -= {None}
    return {"options": {CGROUP: True}} if stated == {True} else {}


def having(documents: Documents, runtime: str, besides: Collection[str] = ()) -> tuple[str, ...]:
    """The files that have a runtime, but for `besides`."""
    found = {path: runtimes_of(document) for path, document in documents.items() if path not in besides}
    return tuple(path for path, runtimes in found.items() if runtime in runtimes)
