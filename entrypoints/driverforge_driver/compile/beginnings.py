"""What sources begin with, by their texts alone: which of them can share a precompiled header.

A source begins with directives that include the driver's own headers, and these begin with others. So the
same lines are reached in many ways: `uvm_hal.h` and `uvm_api.h` both read `uvm_types.h` and `uvm_common.h`
first. A compiler that is given these names alone reads the same tokens in the same order as the source has
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

# Measured with gcc 12: 1.7 s to precompile what UVM begins with; an object costs 0.35 s less.
PAYS_FROM = 5
# Names of the kernel's headers in a header of the driver and in what that includes: nv-linux.h has 110 and
# uvm_linux.h 125, which is nearly all that is read for an object; no lighter one has more than 20.
HEAVY = 50
# directly below the driver's folder; what is not beside the one that includes it is looked for there
_COMMON = "common/inc"
INCLUDE = re.compile(r'#\s*include\s+"([^"]+)"$')
DEFINITION = re.compile(r"#define\s+(\w+)(?:\s+[\w.]+)?$")
_ANY_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_GUARD = re.compile(r"#\s*(?:ifndef\s+|if\s+!\s*defined\s*\(?\s*)(\w+)\s*\)?\n#\s*define\s+(\w+)")


# directives, and the header that each includes: '' for a definition
Beginning = tuple[tuple[str, str], ...]


class Texts:
    """The driver's sources and headers, each read once. `read` returns None for a file that is not there."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._texts: dict[str, str | None] = {}
        self._included: dict[str, tuple[str, ...]] = {}
        self._reached: dict[tuple[str, str], tuple[frozenset[str], frozenset[str]]] = {}
        self._guards: dict[str, str] = {}
        self._led_by: dict[tuple[str, str], Beginning] = {}

    def beginning(self, source: str) -> Beginning:
        """The directives that a source begins with, up to a header that reads many of the kernel's.

        They include the driver's own headers, or define a macro, and mean nothing when they are read again.
        Instead of a header there is what it begins with itself, where that comes as far. Empty where the
        source has no such header.
        """
        return tuple(dict.fromkeys(self._until_heavy(source, source.rpartition("/")[0])))

    def _until_heavy(self, path: str, folder: str) -> Beginning:
        leading = self._leading(path, folder)
        for number, (_, header) in enumerate(leading):
            if header and len(self._closure(header, folder)[1]) >= HEAVY:
                return leading[:number] + (self._until_heavy(header, folder) or leading[number : number + 1])
        return ()

    def _leading(self, path: str, folder: str) -> Beginning:
        if (path, folder) not in self._led_by:
            self._led_by[path, folder] = tuple(self._read_leading(path, folder))
        return self._led_by[path, folder]

    def _read_leading(self, path: str, folder: str) -> Iterator[tuple[str, str]]:
        own = self._guard(path) if path.endswith(".h") else ""
        lines = (line.strip() for line in (self._text(path) or "").splitlines())
        directives = (line for line in lines if line)
        for line in islice(directives, 2 if own else 0, None):
            include = INCLUDE.match(line)
            header = self._beside(path, folder, include[1]) if include else None
            if header and not (own and self._mentions(header, folder, own)):
                yield line, header
            elif own or not DEFINITION.match(line):
                return
            else:
                yield line, ""

    def _beside(self, path: str, folder: str, name: str) -> str | None:
        """The header that `path` includes, where a source in `folder` would read the same, and only once."""
        header = self._find(path.rpartition("/")[0], name)
        return header if header and header == self._find(folder, name) and self._guard(header) else None

    def _mentions(self, header: str, folder: str, guard: str) -> bool:
        """Whether what a header reads depends on another one's guard, or includes that one."""
        return any(guard in (self._text(path) or "") for path in self._closure(header, folder)[0])

    def _closure(self, header: str, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        """All that a header may include, under whatever condition: the driver's files, and other names."""
        if (header, folder) not in self._reached:
            ours, others, open_paths = {header}, set(), [header]
            while open_paths:
                path = open_paths.pop()
                for name in self._names(path):
                    found = self._find(path.rpartition("/")[0], name) or self._find(folder, name)
                    if found is None:
                        others.add(name)
                    elif found not in ours:
                        ours.add(found)
                        open_paths.append(found)
            self._reached[header, folder] = frozenset(ours), frozenset(others)
        return self._reached[header, folder]

    def _names(self, path: str) -> tuple[str, ...]:
        if path not in self._included:
            self._included[path] = tuple(_ANY_INCLUDE.findall(self._text(path) or ""))
        return self._included[path]

    def _find(self, folder: str, name: str) -> str | None:
        return next((path for path in (f"{folder}/{name}", f"{_COMMON}/{name}") if self._text(path)), None)

    def _text(self, path: str) -> str | None:
        """A file without its comments; None where it is not there, or is not named in the plain way."""
        if path not in self._texts:
            text = None if "/../" in f"/{path}" or "/./" in f"/{path}" else self._read(path)
            self._texts[path] = None if text is None else _COMMENT.sub("", text)
        return self._texts[path]

    def _guard(self, header: str) -> str:
        if header not in self._guards:
            self._guards[header] = guard(self._text(header) or "")
        return self._guards[header]


def guard(header: str) -> str:
    """The macro by which a header is empty when it is read again; '' for a header that is not."""
    text = re.sub(r"\\\n", " ", _COMMENT.sub("", header))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = _GUARD.match("\n".join(lines[:2]))
    if found is None or found[1] != found[2]:
        return ""
    depth = 0
    for number, line in enumerate(lines):
        depth += bool(re.match(r"#\s*if", line)) - bool(re.match(r"#\s*endif", line))
        if (depth == 0 and number < len(lines) - 1) or (depth == 1 and re.match(r"#\s*el", line)):
            return ""
    return "" if depth or re.search(rf"#\s*undef\s+{found[1]}\b", text) else found[1]


def shared(beginnings: Mapping[str, Beginning]) -> tuple[tuple[Beginning, tuple[str, ...]], ...]:
    """Beginnings, and the sources of a folder, which have the same flags, that all have this one."""
    groups: dict[tuple[str, Beginning], list[str]] = {}
    for source, beginning in beginnings.items():
        if beginning:
            groups.setdefault((source.rpartition("/")[0], beginning), []).append(source)
    return tuple(
        (beginning, tuple(sources)) for (_, beginning), sources in groups.items() if len(sources) >= PAYS_FROM
    )
