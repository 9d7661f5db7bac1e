"""Strict reading of our own JSON documents.

Every key is known, every value has its type, and all problems are told at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from driverforge_core.errors import InputError

T = TypeVar("T")


class JsonReader:
    """Reads one JSON object key by key and collects problems; `finish` raises InputError with all of them.

    A getter that finds a problem returns an empty value of its type, so that reading goes on: call `finish`
    before using any value.
    """

    def __init__(self, text: str, *, what: str, schema: int) -> None:
        self._what = what
        self._problems: list[str] = []
        self._values: dict[str, object] = {}
        self._seen = {"schema"}
        try:
            document = json.loads(text, object_pairs_hook=self._object)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{what} is not JSON", details=[str(error)], resolution="it is damaged: make its image anew"
            ) from error
        if not isinstance(document, dict):
            raise InputError(f"{what} is no JSON object")
        self._values = document
        if document.get("schema") != schema or isinstance(document.get("schema"), bool):
            raise InputError(
                f"{what} has schema {document.get('schema')!r}, this program reads {schema}",
                resolution="use a driverforge of the version that wrote it",
            )

    def text(self, name: str, *, choices: Collection[str] = (), default: str | None = None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            return self._wrong(name, "a text", "")
        if choices and value not in choices:
            return self._wrong(name, f"one of {', '.join(choices)}, not {value!r}", "")
        return value

    def texts(
        self, name: str, *, choices: Collection[str] = (), default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        value = self._take(name, default if default is None else [*default])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return self._wrong(name, "a list of texts", ())
        if choices and (unknown := [item for item in value if item not in choices]):
            return self._wrong(name, f"a list out of {', '.join(choices)}, not {unknown[0]!r}", ())
        return tuple(value)

    def mapping(
        self, name: str, *, keys: Collection[str] = (), default: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        value = self._take(name, default)
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            return self._wrong(name, "an object of texts", {})
        if keys and (unknown := [key for key in value if key not in keys]):
            return self._wrong(name, f"an object with the keys {', '.join(keys)}, not {unknown[0]!r}", {})
        return value

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """A text that `parse` understands; its InputError becomes a problem of this document."""
        before = len(self._problems)
        value = self.text(name)
        return self.attempt(name, parse, value) if len(self._problems) == before else None

    def attempt(self, name: str, parse: Callable[[str], T], value: str) -> T | None:
        try:
            return parse(value)
        except InputError as error:
            self.problem(f"{name}: {error.brief}")
            return None

    def problem(self, text: str) -> None:
        self._problems.append(text)

    def finish(self) -> None:
        self._problems += [f"{name}: unknown key" for name in self._values if name not in self._seen]
        if self._problems:
            raise InputError(
                f"{self._what} is not as expected",
                details=self._problems,
                resolution="use a driverforge of the version that wrote it",
            )

    def _take(self, name: str, default: object = None) -> object:
        self._seen.add(name)
        return self._values.get(name, default)

    def _wrong(self, name: str, expected: str, empty: T) -> T:
        state = "is missing, expected" if name not in self._values else "must be"
        self.problem(f"{name}: {state} {expected}")
        return empty

    def _object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        self._problems += [
            f"{name}: stands there twice" for name in dict.fromkeys(names) if names.count(name) > 1
        ]
        return dict(pairs)


def canonical(document: Mapping[str, object]) -> str:
    """One line, keys sorted, no blanks, UTF-8 as it is, a newline at its end: equal values, equal bytes."""
    return (
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        + "\n"
    )
