"""YAML of others as plain values: mappings, lists, and every scalar as text ('' for none).

Text, for a version `550.90` is no number. A file is hostile input: it is read as flat events first, so that
its depth, its size and what its aliases stand for are counted before anything is built of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from driverforge_core.errors import InputError

MAX_DEPTH = 60
MAX_VALUES = 2_000_000
# a dump of some thousand nodes
MAX_BYTES = 256 << 20

_NONE = re.compile(r"^(?:~|null|Null|NULL|)$")
_MERGE = re.compile(r"^<<$")


class _Texts(yaml.CSafeLoader):
    """Scalars are texts, but for merge keys, and for nothing, which YAML writes in four ways."""


_Texts.yaml_implicit_resolvers = {
    "<": [("tag:yaml.org,2002:merge", _MERGE)],
    **{first: [("tag:yaml.org,2002:null", _NONE)] for first in ("~", "n", "N", "")},
}
_Texts.add_constructor("tag:yaml.org,2002:null", lambda _loader, _node: "")


def _text(loader: Any, node: yaml.Node) -> Any:
    return loader.construct_scalar(node)


for _kind in ("bool", "int", "float", "timestamp"):
    # PyYAML's own raise KeyError and others for `!!bool x`
    _Texts.add_constructor(f"tag:yaml.org,2002:{_kind}", _text)


Read = Callable[[Path], bytes]
"""Reads a file, once: it may be a pipe. Raises OSError."""


def read_bytes(path: Path) -> bytes:
    """A Read of no more than what is too much."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


class Digests(dict[str, str]):
    """The sha256 of each file that was read, by its name as given."""

    def __init__(self, read: Read = read_bytes) -> None:
        super().__init__()
        self._read = read

    def read(self, path: Path) -> bytes:
        data = self._read(path)
        self[str(path)] = hashlib.sha256(data).hexdigest()
        return data


def read_documents(path: Path, read: Read = read_bytes) -> list[Any]:
    """The documents of a YAML or JSON file. InputError names what is wrong, and where."""
    try:
        data = read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return parse_documents(data, str(path))


def parse_documents(data: bytes, name: str) -> list[Any]:
    """As `read_documents`; `name` is for messages."""
    check_size(data, name)
    try:
        text = data.decode("utf-8-sig")
        if text.lstrip()[:1] == "{":
            # far faster than YAML, in which a mapping may begin like this too
            with suppress(json.JSONDecodeError):
                return [json.loads(text, parse_int=str, parse_float=str)]
        _check_extent(text, name)
        return list(yaml.load_all(text, Loader=_Texts))
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or "nested too deep"
        raise InputError(
            f"{name} cannot be read as YAML or JSON", details=[why], resolution="mend the file"
        ) from None


def check_size(data: bytes, name: str) -> None:
    """InputError for what `read_bytes` did not read whole."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} has more than {MAX_BYTES >> 20} MiB, the most that is read")


def mapping(document: object, name: str) -> dict[str, Any]:
    """A document that is to be a mapping; nothing at all is an empty one."""
    if document in ("", None):
        return {}
    if not isinstance(document, dict):
        raise InputError(f"{name} holds no mapping", resolution="write KEY: VALUE lines")
    return document


def read_mapping(path: Path, read: Read = read_bytes) -> dict[str, Any]:
    """The one document of a file, as a mapping."""
    documents = read_documents(path, read)
    if len(documents) > 1:
        raise InputError(f"{path} holds {len(documents)} documents, one is expected")
    return mapping(documents[0] if documents else None, str(path))


def _check_extent(text: str, name: str) -> None:
    """InputError where a text has too many values, an alias counted with all that it stands for."""
    sizes: dict[str, int] = {}
    # name of the anchor and values so far, of each collection that is open
    opened: list[tuple[str, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        size = 0
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            opened.append((event.anchor or "", total))
            size = 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            anchor, before = opened.pop()
            sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            size = sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in opened}:
                raise InputError(f"{name} cannot be read: *{event.anchor} stands inside itself")
            size = sizes.get(event.anchor or "", 1)
        total += size
        if total > MAX_VALUES or len(opened) > MAX_DEPTH:
            raise InputError(
                f"{name} is too much YAML: more than {MAX_VALUES} values, or {MAX_DEPTH} levels",
                resolution="give a dump of many nodes as JSON: kubectl get nodes -o json",
            )
