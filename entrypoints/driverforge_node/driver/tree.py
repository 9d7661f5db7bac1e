"""The load tree: /lib/modules/<release> of the container, with our modules and the in-tree ones that they need.

It is what `modprobe` loads from, here and in `chroot /run/nvidia/driver modprobe nvidia-peermem` of NVIDIA's sidecar: it is
filled on every start, also when nothing is reloaded (upstream's fast path leaves it empty, and the sidecar crash-loops).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from driverforge_core.errors import InputError
from driverforge_core.modinfo import read_modinfo
from driverforge_core.names import normalise
from driverforge_node.driver import paths
from driverforge_node.driver.facts import Source
from driverforge_node.driver.observe import read
from driverforge_node.driver.observe import tree_folder as folder
from driverforge_node.host.ports import Host

__all__ = ["HELPERS", "check_digest", "closure", "fill", "folder", "parse_dep", "stamp"]

OURS = "updates/driverforge"
INDEXES = ("modules.builtin", "modules.builtin.modinfo", "modules.order")
HELPERS = (
    "i2c_core",
    "ipmi_msghandler",
    "ipmi_devintf",
)  # as upstream: best effort, the driver uses them where they are


def stamp(source: Source, node_modules: str) -> str:
    """What identifies a filled tree; written last, so a tree without it is unfinished."""
    content = {
        "driver": source.modules.driver.text,
        "modules": dict(source.modules.modules),
        "in_tree": node_modules,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def fill(host: Host, *, base: str, release: str, source: Source, node_modules: str) -> None:
    """Fill and index the tree. Raises InputError when a file is not what its module set says."""
    files = host.files
    target = folder(base, release)
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


def check_digest(path: str, data: bytes, digest: str) -> None:
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != digest:
        raise InputError(
            f"{path} is damaged",
            details=[f"{found} is there, {digest} is written in {paths.MODULE_SET}"],
            resolution="in the image: pull it again; in the node's cache: remove that folder, it is made again",
        )


def copy_in_tree(host: Host, node_modules: str, target: str, wanted: Iterable[str]) -> None:
    """In-tree modules with all that they depend on, at the same place in the tree, and the indexes that depmod reads."""
    files = host.files
    for path in closure(parse_dep(read(files, f"{node_modules}/modules.dep")), wanted):
        files.make_dirs(f"{target}/{path.rpartition('/')[0]}")
        files.copy(f"{node_modules}/{path}", f"{target}/{path}")
    for name in INDEXES:
        if files.exists(f"{node_modules}/{name}"):
            files.copy(f"{node_modules}/{name}", f"{target}/{name}")


def parse_dep(text: str) -> dict[str, tuple[str, ...]]:
    """modules.dep: path → paths of all that it depends on, directly or not (depmod(8))."""
    pairs = (line.partition(":") for line in text.splitlines() if line)
    return {path: tuple(rest.split()) for path, _, rest in pairs}


def closure(dep: Mapping[str, tuple[str, ...]], wanted: Iterable[str]) -> list[str]:
    """Paths of the wanted modules and their dependencies, sorted. A name that is no in-tree module (built in, or absent) gives none."""
    by_name = {normalise(path): path for path in dep}
    found: set[str] = set()
    for name in map(normalise, wanted):
        if name in by_name:
            found |= {by_name[name], *dep[by_name[name]]}
    return sorted(found)
