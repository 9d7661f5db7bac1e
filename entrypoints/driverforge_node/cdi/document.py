"""Spec files as text: JSON, and YAML that people read.

YAML through PyYAML: specs of other tools (nvidia-ctk, device plugins) are YAML, and a reader of our own would be one more YAML dialect.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.cdi.rules import fitting_version
from driverforge_node.cdi.spec import Spec, document, parse

if TYPE_CHECKING:
    from types import ModuleType

FORMATS = ("yaml", "json")
# YAML 1.2 readers and Go's resolve more plain words to numbers than PyYAML does ('1e3', '08', '0o7'): whatever begins like one is quoted
_LIKE_A_NUMBER = re.compile(r"[-+.]*[0-9]")
MAX_BYTES = 8 << 20  # a spec of a node with 16 GPUs has 60 kB; PyYAML needs a second for each 100 kB
MAX_ALIASED = 100_000  # values that aliases may stand for in all: a few nested ones stand for billions


def format_of(path: str) -> str:
    """'json' or 'yaml', by the name: runtimes go by it too."""
    return "json" if path.endswith(".json") else "yaml"


def write(spec: Spec, format_: str = "yaml", *, comments: tuple[str, ...] = ()) -> str:
    """The file's text. `comments` are lines at the top of a YAML file; JSON has none. Raises InputError for a name that is no text."""
    content = document(replace(spec, version=fitting_version(spec)))
    plain = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        name = plain[max(0, error.start - 60) : error.end].rpartition("\n")[2]
        raise InputError(
            "the spec would have a name that is not UTF-8, which no runtime reads",
            details=[ascii(name)],
            resolution="rename that file",
        ) from error
    if format_ == "json":
        return plain
    yaml = _yaml()
    head = "".join(f"# {line}\n" for line in comments)
    body: str = yaml.dump(
        content,
        Dumper=_dumper(yaml),
        sort_keys=False,
        default_flow_style=False,
        explicit_start=True,
        allow_unicode=True,
        width=4096,
    )
    return head + body


def read(text: str, path: str) -> Spec:
    """The spec in `text`. Raises InputError with every problem, as runtimes that load this file would have them."""
    spec, problems = parse(_load(text, path))
    if problems:
        raise InputError(
            f"{path} is no CDI spec",
            details=[f"{path}: {problem}" for problem in problems],
            resolution="correct the file, or remove it and let the tool that wrote it write it again",
        )
    return spec


def _load(text: str, path: str) -> object:
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"it has {len(text)} characters, which no spec has")
        return json.loads(text) if format_of(path) == "json" else _safe_yaml(text)
    except (ValueError, RecursionError) as error:
        where, what = path, str(error)
    except (
        LookupError,
        AttributeError,
        TypeError,
    ) as error:  # PyYAML's own, for a tag that the value does not fit: `!!int ""`
        where, what = path, f"a value that is not what its tag says ({type(error).__name__}: {error})"
    except _yaml().YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or str(error)
    raise InputError(
        f"{path} cannot be read", details=[f"{where}: {what}"], resolution="correct the file, or remove it"
    ) from None


def _safe_yaml(text: str) -> object:
    """Raises YAMLError, ValueError (also where aliases of aliases stand for too much), and whatever PyYAML's constructors let through."""
    loader = _yaml().SafeLoader(text)
    try:
        tree = loader.get_single_node()
        if tree is None:
            return None
        if _aliased(tree) > MAX_ALIASED:
            raise ValueError(f"its aliases stand for more than {MAX_ALIASED} values")
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


def _yaml() -> ModuleType:
    try:
        import yaml
    except ImportError:
        raise Unsupported(
            "reading and writing CDI specs needs PyYAML, which is not part of this image",
            resolution="use the toolkit image (pip install 'driverforge[toolkit]' outside of images)",
        ) from None
    return yaml


def _dumper(yaml: Any) -> Any:
    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Lists indented below their key, no anchors, text that looks like a number in quotes."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> object:
        style = '"' if _LIKE_A_NUMBER.match(value) or "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper
