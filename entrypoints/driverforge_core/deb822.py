"""Debian's control format, deb822(5).

The one reader for Packages, Release, Sources, status and .sources files.
"""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_core.errors import InputError


def parse(text: str) -> Iterator[dict[str, str]]:
    """Yield each stanza as field name (as written) to value.

    Lines of a value that goes on are joined by newlines, each without its first blank; a value whose first
    line is empty starts with a newline. Comment lines are skipped. InputError, with the line number, for a
    line that is neither field nor continuation, and for a field that a stanza has twice.
    """
    stanza: dict[str, str] = {}
    name = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.isspace():
            if stanza:
                yield stanza
            stanza, name = {}, ""
        elif line[0] == "#":
            continue
        elif line[0] in " \t":
            if not name:
                raise InputError(
                    f"line {number} continues a field, but there is none before it", details=[line]
                )
            stanza[name] += "\n" + line[1:].rstrip()
        else:
            name, colon, value = line.partition(":")
            if not colon or not name or name in stanza:
                problem = (
                    "has a field that is in its stanza already" if colon and name else "is no 'Field: value'"
                )
                raise InputError(f"line {number} {problem}", details=[line])
            stanza[name] = value.strip()
    if stanza:
        yield stanza
