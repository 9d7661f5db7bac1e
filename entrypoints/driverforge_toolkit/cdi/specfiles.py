"""Spec files: as text (JSON, and YAML that people read), and those of a node as container runtimes load them.

YAML goes through PyYAML. Specs of other tools (nvidia-ctk, device plugins) are YAML, and a reader of our own
would understand one more dialect of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import yaml

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_host.ports import Files
from driverforge_toolkit.cdi.conformance import fitting_version
from driverforge_toolkit.cdi.spec import Spec, document, parse

FOLDERS = ("/etc/cdi", "/var/run/cdi")  # a later folder beats an earlier one
EVERY_FOLDER = (*FOLDERS, "/run/cdi")  # /var/run is a link, which a dump or a pod may lack
# YAML 1.2 readers and Go's resolve more plain words to numbers than PyYAML does ('1e3', '08', '0o7'):
# whatever begins like one is quoted
_LIKE_A_NUMBER = re.compile(r"[-+.]*[0-9]")
MAX_BYTES = 8 << 20  # a spec of a node with 16 GPUs has 60 kB; PyYAML needs a second for each 100 kB
MAX_ALIASED = 100_000  # values that aliases may stand for in all: a few nested ones stand for billions


class SpecFormat(str, Enum):
    """How a spec is written down."""

    YAML = "yaml"
    JSON = "json"


def format_of(path: str) -> SpecFormat:
    """The format that a file has by its name: runtimes go by it too."""
    return SpecFormat.JSON if path.endswith(".json") else SpecFormat.YAML


def write(spec: Spec, format_: SpecFormat = SpecFormat.YAML, *, comments: tuple[str, ...] = ()) -> str:
    """The text of a spec file. `comments` are lines at the top of a YAML file; JSON has none.

    Raises InputError for a name that cannot be written as UTF-8.
    """
    content = document(replace(spec, version=fitting_version(spec)))
    plain = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        name = plain[max(0, error.start - 60) : error.end].rpartition("\n")[2]
        raise InputError(
            "the spec would have a name that is not UTF-8, and no runtime could read it",
            details=[ascii(name)],
            resolution="rename that file",
        ) from error
    if format_ is SpecFormat.JSON:
        return plain
    head = "".join(f"# {line}\n" for line in comments)
    body: str = yaml.dump(
        content,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        explicit_start=True,
        allow_unicode=True,
        width=4096,
    )
    return head + body


def read(text: str, path: str) -> Spec:
    """The spec in `text`; `path` is for messages.

    Raises InputError with every problem that a runtime would have.
    """
    spec, problems = parse(_load(text, path))
    if problems:
        raise InputError(
            f"{path} is not a CDI spec",
            details=[f"{path}: {problem}" for problem in problems],
            resolution="correct the file, or remove it and let the tool that wrote it write it again",
        )
    return spec


def _load(text: str, path: str) -> object:
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"it has {len(text)} characters; no spec is that large")
        return json.loads(text) if format_of(path) is SpecFormat.JSON else _safe_yaml(text)
    except (ValueError, RecursionError) as error:
        where, what = path, str(error)
    # PyYAML's own, for a tag that the value does not fit: `!!int ""`
    except (LookupError, AttributeError, TypeError) as error:
        where, what = path, f"a value that does not fit its tag ({type(error).__name__}: {error})"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or str(error)
    raise InputError(
        f"{path} cannot be read", details=[f"{where}: {what}"], resolution="correct the file, or remove it"
    ) from None


def _safe_yaml(text: str) -> object:
    """The document of a YAML text. Raises YAMLError, and ValueError where its aliases stand for too much.

    PyYAML's constructors let other exceptions through; `_load` knows them.
    """
    loader = yaml.SafeLoader(text)
    try:
        tree = loader.get_single_node()
        if tree is None:
            return None
        if _aliased(tree) > MAX_ALIASED:
            raise ValueError(f"its aliases expand to more than {MAX_ALIASED} values")
        return loader.construct_document(tree)
    finally:
        loader.dispose()


def _aliased(tree: Any) -> int:
    """How many values a tree of nodes stands for beyond those that are written down."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = 1  # one that holds itself counts once here; the constructor deals with it
        inner = node.value if isinstance(node.value, list) else []
        pairs = (item if isinstance(item, tuple) else (item,) for item in inner)
        sizes[id(node)] = 1 + sum(size(child) for pair in pairs for child in pair)
        return sizes[id(node)]

    whole = size(tree)
    return whole - len(sizes)


class _Dumper(yaml.SafeDumper):
    """Lists indented below their key, no anchors, text that looks like a number in quotes."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = '"' if _LIKE_A_NUMBER.match(value) or "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A file in a spec folder.

    `spec` is None where it cannot be read; `problems` says why, as 'PATH[:LINE]: what'.
    """

    path: str
    folder: str
    spec: Spec | None
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Qualified device names: 'nvidia.com/gpu=0'."""
        return tuple(f"{self.spec.kind}={device.name}" for device in self.spec.devices) if self.spec else ()


def load(files: Files, folders: Iterable[str] = FOLDERS) -> tuple[SpecFile, ...]:
    """Every spec file in these folders, in the folders' order.

    As runtimes do, it takes .json and .yaml files only, and does not look into folders below.
    """
    found = []
    for folder in dict.fromkeys(files.resolve(folder) for folder in folders):
        names = [name for name in files.list_dir(folder) if name.endswith((".json", ".yaml"))]
        found += [
            load_file(files, f"{folder}/{name}", folder)
            for name in names
            if not files.is_dir(f"{folder}/{name}")
        ]
    return tuple(found)


def load_file(files: Files, path: str, folder: str = "") -> SpecFile:
    try:
        return SpecFile(path=path, folder=folder, spec=read(files.read_text(path), path))
    except FileNotFoundError:
        return SpecFile(path=path, folder=folder, spec=None, problems=(f"{path}: there is no such file",))
    except InputError as error:
        return SpecFile(path=path, folder=folder, spec=None, problems=error.details)
    except DriverforgeError as error:
        return SpecFile(
            path=path,
            folder=folder,
            spec=None,
            problems=(f"{path}: {', '.join((error.brief, *error.details))}",),
        )
