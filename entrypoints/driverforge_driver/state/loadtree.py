"""The load tree: a folder lib/modules/<release> with our modules and the in-tree modules that they need.

modprobe loads from it: ours, and that of NVIDIA's sidecar, which runs `chroot /run/nvidia/driver modprobe
nvidia-peermem`. So it is filled on every start, also where nothing is reloaded. Upstream leaves it empty
then, and the sidecar crashes in a loop (D9 in docs/compatibility.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from driverforge_core.modinfo import read_modinfo
from driverforge_core.names import normalise
from driverforge_driver.state import paths
from driverforge_driver.state.module_sets import ModuleSource, check_digest
from driverforge_host.ports import Host, text_of

# depmod prefers modules in updates/ to those of the kernel's package, in every distribution's configuration
OURS = "updates/driverforge"
INDEXES = ("modules.builtin", "modules.builtin.modinfo", "modules.order")
# in-tree modules that the driver uses where they are; as upstream does, loaded where they can be
HELPERS = ("i2c_core", "ipmi_msghandler", "ipmi_devintf")


def tree_folder(base: str, release: str) -> str:
    """The load tree of a kernel release below `base`, the root that modprobe and depmod get."""
    return f"{base.rstrip('/')}{paths.MODULES}/{release}"


def stamp(source: ModuleSource, node_modules: str) -> str:
    """The text that says what a tree was filled with. It is written last: a tree without it is unfinished."""
    content = {
        "driver": source.modules.driver.text,
        "modules": dict(source.modules.modules),
        "in_tree": node_modules,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def fill(host: Host, *, base: str, release: str, source: ModuleSource, node_modules: str) -> None:
    """Fill the tree of `release` below `base`, and index it with depmod.

    `node_modules` is the folder of the node's own modules, '' where we see none. Raises InputError where a
    file of `source` is not what its module set says.
    """
    files = host.files
    target = tree_folder(base, release)
    files.remove(f"{target}/{paths.STAMP}")
    files.remove_tree(f"{target}/{OURS}")
    files.make_dirs(f"{target}/{OURS}")
    depends: set[str] = set()
    for name, digest in source.modules.modules.items():
        data = files.read_bytes(f"{source.path}/{name}")
        check_digest(f"{source.path}/{name}", data, digest)
        depends |= {d for text in read_modinfo(data).get("depends", ()) for d in text.split(",") if d}
        files.write_atomic(f"{target}/{OURS}/{name}", data, mode=0o644)
    ours = {normalise(name) for name in source.modules.modules}
    if node_modules:
        wanted = {normalise(name) for name in (*depends, *HELPERS)} - ours
        copy_in_tree(host, node_modules, target, wanted)
    host.modules.index(base, release)
    files.write_atomic(f"{target}/{paths.STAMP}", stamp(source, node_modules).encode())


def copy_in_tree(host: Host, node_modules: str, target: str, wanted: Iterable[str]) -> None:
    """Copy in-tree modules, with all that they depend on, to the same place below `target`.

    The indexes come along: depmod needs them to know what is built into the kernel, and in which order
    modules count.
    """
    files = host.files
    for path in closure(parse_dep(text_of(files, f"{node_modules}/modules.dep")), wanted):
        files.make_dirs(f"{target}/{path.rpartition('/')[0]}")
        files.copy(f"{node_modules}/{path}", f"{target}/{path}")
    for name in INDEXES:
        if files.exists(f"{node_modules}/{name}"):
            files.copy(f"{node_modules}/{name}", f"{target}/{name}")


def parse_dep(text: str) -> dict[str, tuple[str, ...]]:
    """modules.dep as {path: paths of all modules that it depends on, directly or not} (modules.dep(5))."""
    pairs = (line.partition(":") for line in text.splitlines() if line)
    return {path: tuple(rest.split()) for path, _, rest in pairs}


def closure(dep: Mapping[str, tuple[str, ...]], wanted: Iterable[str]) -> list[str]:
    """Paths of the wanted modules and of their dependencies, sorted.

    A name that is no module of the tree (it is built in, or absent) gives no path.
    """
    by_name = {normalise(path): path for path in dep}
    found: set[str] = set()
    for name in map(normalise, wanted):
        if name in by_name:
            found |= {by_name[name], *dep[by_name[name]]}
    return sorted(found)
