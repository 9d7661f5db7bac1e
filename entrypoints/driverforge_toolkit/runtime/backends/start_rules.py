"""What keeps containerd from serving pods after its next start, by its files alone.

For where it cannot be rehearsed: in a copy of a node's files, with a block-device snapshotter, without
`unshare`. Pure, but for a look at the files that are named. Facts: LoadConfig in
cmd/containerd/server/config, ValidatePluginConfig and loadBaseOCISpecs of the CRI plugin (pkg/cri in 1.x,
internal/cri in 2.x).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from driverforge_host.ports import Files
from driverforge_toolkit.runtime.backends import imports
from driverforge_toolkit.runtime.backends.containerd_config import cri_sections, runtimes_of
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup
from driverforge_toolkit.runtime.model import RuntimeDaemon

SPEC = "base_runtime_spec"
IMAGES = ("plugins", "io.containerd.cri.v1.images")  # has the registries from version 3 on
MOST = 5  # lines that are named for one fault
_TOKEN = re.compile(r"`(\w+)`|(/[^\s:\"'`,]+)")


def start_faults(node: Files, view: Mapping[str, object], *, live: bool) -> tuple[str, ...]:
    """Why the CRI plugin would not load with the configuration `view`, a sentence each.

    `live` is False for a copy of a node's files.
    """
    return (*_spec_faults(node, view, live=live), *_registry_faults(view))


def missing_imports(node: Files, daemon: RuntimeDaemon, files: Contents) -> dict[str, str]:
    """The files that others import by their names and that are not there, with one that does.

    Raises as `imports.declared_imports`.
    """
    found: dict[str, str] = {}
    todo, seen = [str(daemon.config)], set[str]()
    while todo:
        path = todo.pop()
        if path in seen or data_of(files, path) is None:
            continue
        seen.add(path)
        names = imports.imported_files(node, daemon, path, files)
        found |= {
            name: path
            for name in names
            if data_of(files, name) is None and _is_gone(node, name, live=daemon.pid != 0)
        }
        todo += names
    return found


def _is_gone(node: Files, path: str, *, live: bool) -> bool:
    """Whether a file is not there; a copy of a node's files may lack it where it lacks the folder, too."""
    return not node.exists(path) and (live or node.is_dir(path.rpartition("/")[0] or "/"))


def stating_lines(files: Contents, faults: Sequence[str]) -> tuple[str, ...]:
    """The lines of the files that name what the faults name: a path, or a key in backquotes."""
    tokens = {token for fault in faults for token in _TOKEN.findall(fault)}
    words = [
        *(rf"(?<!\w){word}(?!\w)" for word, _ in sorted(tokens) if word),
        *(
            rf"(?<![\w./-]){re.escape(path)}(?![\w./-])"
            for _, path in sorted(tokens)
            if path and path not in files
        ),
    ]
    if not words:
        return ()
    stating = re.compile("|".join(words))
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, file in files.items()
        for number, line in enumerate(file.text.splitlines(), 1)
        if not line.lstrip().startswith("#") and stating.search(line)
    ]
    return tuple(found[:MOST])


def with_lines(files: Contents, faults: Sequence[str]) -> tuple[str, ...]:
    """The faults, and then the lines of the files that name what they name."""
    return (*faults, *stating_lines(files, faults))


def spec_files(view: Mapping[str, object]) -> tuple[str, ...]:
    """The OCI specs that handlers are based on, which containerd reads at its start."""
    tables = [table for table in runtimes_of(view).values() if isinstance(table, Mapping)]
    return tuple(dict.fromkeys(str(table[SPEC]) for table in tables if table.get(SPEC)))


def _spec_faults(node: Files, view: Mapping[str, object], *, live: bool) -> Iterator[str]:
    for path in spec_files(view):
        if not node.exists(path):
            if _is_gone(node, path, live=live):
                yield f"{SPEC}: {path} is not there"
            continue
        try:
            json.loads(node.read_bytes(path))
        except ValueError as error:
            yield f"{SPEC}: {path} is not JSON: {error}"


def _registry_faults(view: Mapping[str, object]) -> Iterator[str]:
    for section in dict.fromkeys((*cri_sections(view), IMAGES)):
        registry = lookup(view, (*section, "registry"))
        if not isinstance(registry, Mapping) or not registry.get("config_path"):
            continue
        if registry.get("mirrors"):
            yield "`mirrors` cannot be set when `config_path` is provided"
        configs = registry.get("configs")
        for name, config in configs.items() if isinstance(configs, Mapping) else ():
            if isinstance(config, Mapping) and lookup(config, ("tls",)) not in (REMOVED, None, {}):
                yield f"`configs.{name}.tls` cannot be set when `config_path` is provided"
