"""A folder (or tar) of dumps as a cluster that only reads: what `kubectl get -o yaml` (or json) wrote.

docs/operator-explain.md has the commands of kubectl that write it. Logs are logs/NAMESPACE_POD_CONTAINER.log,
and with `_previous` before `.log` what `kubectl logs --previous` printed. `driverforge-operator snapshot`
writes all of it.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml

from driverforge_core.errors import InputError
from driverforge_operator.ports import Kind, Loaded, Log, Page, Right

_SUFFIXES = (".yaml", ".yml", ".json")


class Dump:
    """Satisfies `ports.Inspector`."""

    def __init__(self, source: Path) -> None:
        """Read every file of a folder or tar. Raises InputError for one that is no dump, or if none is."""
        texts = _packed(source) if source.is_file() else _unpacked(source)
        self._logs = {name.rpartition("/")[2]: text for name, text in texts.items() if name.endswith(".log")}
        files = {name: text for name, text in sorted(texts.items()) if name.endswith(_SUFFIXES)}
        if not files:
            raise InputError(
                f"{source} has no dump",
                resolution=f"kubectl get nodes,clusterpolicies,nvidiadrivers -o yaml > {source}/cluster.yaml",
            )
        self._documents = [
            one for name, text in files.items() for document in _read(name, text) for one in _items(document)
        ]
        # an empty list of one kind says so ('EventList'); that of kubectl ('List') does not
        self._dumped = {
            (one.get("apiVersion"), str(one.get("kind")).removesuffix("List")) for one in self._documents
        }

    def pages(self, kind: Kind[Loaded], *, labels: str = "") -> Iterator[Page[Loaded]]:
        required = _required(labels)

        def fits(one: Mapping[str, Any]) -> bool:
            metadata = one.get("metadata", {})
            own = metadata.get("labels") or {}
            places = ((kind.only, metadata.get("name")), (kind.namespace, metadata.get("namespace")))
            here = all(wanted in ("", found) for wanted, found in places)
            return here and all((own.get(key) in values) is wanted for key, values, wanted in required)

        return self._page(kind, fits)

    def everywhere(self, kind: Kind[Loaded], *, fields: str = "") -> Iterator[Page[Loaded]]:
        required = _required(fields)
        return self._page(kind, lambda one: all(_at(one, path) in values for path, values, _ in required))

    def tail(self, log: Log, lines: int) -> tuple[str, ...]:
        text = self._logs.get(log.file, b"")
        return tuple(text.decode(errors="replace").splitlines()[-lines:])

    def may(self, right: Right) -> bool | None:
        return None

    def _page(self, kind: Kind[Loaded], fits: Callable[[Mapping[str, Any]], bool]) -> Iterator[Page[Loaded]]:
        found = [
            one
            for one in self._documents
            if (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.name) and fits(one)
        ]
        try:
            items = tuple(msgspec.convert(one, kind.model) for one in found)
            dumped = (kind.api_version, kind.name) in self._dumped
            # what is no part of Kubernetes the cluster need not have
            yield Page(items=items, version="", dumped=dumped, served=dumped or kind.built_in)
        except msgspec.ValidationError as error:
            raise InputError(
                f"an object of kind {kind.name} is no such object", details=[str(error)]
            ) from error


_REQUIREMENT = re.compile(r"(?P<key>[^,!= ]+)(?:(?P<not>!)?=(?P<one>[^,]*)| in \((?P<several>[^)]*)\))")


def _required(selector: str) -> list[tuple[str, frozenset[str], bool]]:
    """Keys with the values of which each has to have one, or must have none."""
    return [
        (part["key"], frozenset((part["several"] or part["one"] or "").split(",")), not part["not"])
        for part in _REQUIREMENT.finditer(selector)
    ]


def _at(document: Mapping[str, Any], path: str) -> str:
    """The value at a path of field names: 'spec.nodeName'; '' where there is none."""
    found: Any = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)


def _unpacked(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("*"), *folder.glob("logs/*.log")]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def _packed(archive: Path) -> dict[str, bytes]:
    """The files of a tar; nothing is written anywhere, whatever their names are."""
    try:
        with tarfile.open(archive) as packed:
            members = [(one.name, packed.extractfile(one)) for one in packed if one.isfile()]
            return {name: file.read() for name, file in members if file}
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{archive} is no dump", details=[str(error)]) from error


def _read(name: str, text: bytes) -> list[object]:
    # `kubectl get -o json` writes one document, which its own reader takes in a fraction of YAML's time
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return [msgspec.json.decode(text)]
    try:
        return list(yaml.load_all(text.decode(), Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is no dump", details=[str(error)]) from error


def _items(document: object) -> list[Mapping[str, Any]]:
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    return (
        [one for one in items if isinstance(one, dict)] or [document]
        if isinstance(items, list)
        else [document]
    )
