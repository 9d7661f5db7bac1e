"""The node's cache of module sets: a pod's restart compiles nothing again.

There is one entry for each driver, kernel release and module type, in `<driver>/<release>/<type>/`. Its
description is written last: a folder without one is no entry. What the modules were compiled from and with
lies beside it, and has to agree before an entry is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, InputError
from driverforge_core.image import ANSWERS_NAME, MODULE_SET_NAME, ModuleSet
from driverforge_driver.state import paths
from driverforge_host.ports import Files, Host

# A node boots into its newest kernels, and a set has at most 100 MB a type: what was kept longest ago goes.
MAX_KERNELS = 3
MAX_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What a set of compiled modules depends on."""

    driver: str
    module_type: str
    kernel: str
    # digest of what the image's sources were made of, '' where that is not known
    sources: str
    # names and versions of all header packages
    headers: str
    # its own first line of --version
    compiler: str
    # identity of the network driver's build files, '' without them
    network: str

    @property
    def folder(self) -> str:
        return f"{paths.CACHE}/{self.driver}/{self.kernel}/{self.module_type}"


def reachable(host: Host, folder: str = paths.CACHE) -> bool:
    """Whether there is a node to keep things for.

    In an image build our own root is the only one, and a cache in it would end up in a layer; unless the
    folder is there, because it is a mount.
    """
    return host.node.root != "/" or host.node.is_dir(folder)


def restore(host: Host, key: CacheKey, stage: str) -> bool:
    """Copy the entry for `key` into the folder `stage`.

    Returns False where there is no entry, where it is damaged, or where it was made with other headers,
    another compiler or another network driver.
    """
    node = host.node
    if (
        not reachable(host)
        or not node.exists(f"{key.folder}/{MODULE_SET_NAME}")
        or not node.exists(f"{key.folder}/{paths.BUILT_WITH}")
    ):
        return False
    if node.read_text(f"{key.folder}/{paths.BUILT_WITH}") != _text(key):
        return False
    description = node.read_text(f"{key.folder}/{MODULE_SET_NAME}")
    try:
        digests = ModuleSet.from_json(description).modules
        # an entry that a former version made has no answers
        answers = [ANSWERS_NAME] if node.exists(f"{key.folder}/{ANSWERS_NAME}") else []
        contents = {name: node.read_bytes(f"{key.folder}/{name}") for name in (*digests, *answers)}
        whole = all(
            f"sha256:{hashlib.sha256(contents[name]).hexdigest()}" == digest
            for name, digest in digests.items()
        )
    except (FileNotFoundError, InputError):
        whole, contents = False, {}
    if not whole:
        log.warning("the node's cache entry is damaged and will be made anew", entry=key.folder)
        return False
    host.files.make_dirs(stage)
    for name, data in contents.items():
        host.files.write_atomic(f"{stage}/{name}", data)
    host.files.write_atomic(f"{stage}/{MODULE_SET_NAME}", description.encode())
    return True


def store(host: Host, key: CacheKey, place: str) -> None:
    """Keep the published set in the folder `place`.

    A cache that cannot be written (it is full or read-only) is a warning: the modules themselves are there.
    """
    if not reachable(host):
        return
    try:
        host.node.remove_tree(key.folder)
        host.node.make_dirs(key.folder)
        host.node.write_atomic(f"{key.folder}/{paths.BUILT_WITH}", _text(key).encode())
        names = [name for name in host.files.list_dir(place) if name != MODULE_SET_NAME]
        for name in (*names, MODULE_SET_NAME):
            host.node.write_atomic(f"{key.folder}/{name}", host.files.read_bytes(f"{place}/{name}"))
        trim(host.node, keep=key.folder)
    except DriverforgeError as error:
        log.warning("modules are not kept in the node's cache", entry=key.folder, reason=error.brief)
        return
    log.info("kept modules in the node's cache", entry=key.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    folder: str
    kernel: str
    size: int
    # when it was kept, in ns; 0 where it never was finished
    time: int


def trim(node: Files, *, keep: str) -> None:
    """Remove entries, the oldest first and never the folder `keep`, until the cache is within its bounds."""
    entries = sorted(_entries(node), key=lambda entry: entry.time)
    for entry in list(entries):
        kernels = {each.kernel for each in entries}
        if len(kernels) <= MAX_KERNELS and sum(each.size for each in entries) <= MAX_BYTES:
            return
        if entry.folder == keep:
            continue
        log.info("removed modules from the node's cache: it is full", entry=entry.folder)
        _remove(node, entry.folder)
        entries.remove(entry)


def _entries(node: Files) -> Iterator[_Entry]:
    for driver in node.list_dir(paths.CACHE):
        for kernel in node.list_dir(f"{paths.CACHE}/{driver}"):
            for module_type in node.list_dir(f"{paths.CACHE}/{driver}/{kernel}"):
                folder = f"{paths.CACHE}/{driver}/{kernel}/{module_type}"
                size = sum(node.size(f"{folder}/{name}") or 0 for name in node.list_dir(folder))
                finished = node.stamp(f"{folder}/{MODULE_SET_NAME}")
                yield _Entry(folder=folder, kernel=kernel, size=size, time=finished[3] if finished else 0)


def _remove(node: Files, folder: str) -> None:
    """Remove an entry, and the folders above it that it leaves empty."""
    node.remove_tree(folder)
    for _ in range(2):
        folder = folder.rpartition("/")[0]
        if not node.list_dir(folder):
            node.remove_tree(folder)


def _text(key: CacheKey) -> str:
    return json.dumps(asdict(key), indent=2, sort_keys=True) + "\n"
