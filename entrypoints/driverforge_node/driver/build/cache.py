"""The node's cache of module sets: a pod's restart compiles nothing again.

There is one entry for each driver, kernel release and module type, in `<driver>/<release>/<type>/`. Its
description is written last: a folder without one is no entry. What the modules were compiled with lies beside
it, and has to agree before an entry is taken.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_core.image import MODULE_SET_NAME, ModuleSet
from driverforge_node import log
from driverforge_node.driver.state import paths
from driverforge_node.ports import Host

KEY = "built-with.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What a set of compiled modules depends on."""

    driver: str
    module_type: str
    kernel: str
    # names and versions of all header packages
    headers: str
    # its own first line of --version
    compiler: str
    # identity of the network driver's build files, '' without them
    network: str

    @property
    def folder(self) -> str:
        return f"{paths.CACHE}/{self.driver}/{self.kernel}/{self.module_type}"


def reachable(host: Host) -> bool:
    """Whether there is a node to keep things for.

    In an image build our own root is the only one, and a cache in it would end up in a layer.
    """
    return host.node.root != "/" or host.node.is_dir(paths.CACHE)


def restore(host: Host, key: CacheKey, stage: str) -> bool:
    """Copy the entry for `key` into the folder `stage`.

    Returns False where there is no entry, where it is damaged, or where it was made with other headers,
    another compiler or another network driver.
    """
    node = host.node
    if (
        not reachable(host)
        or not node.exists(f"{key.folder}/{MODULE_SET_NAME}")
        or not node.exists(f"{key.folder}/{KEY}")
    ):
        return False
    if node.read_text(f"{key.folder}/{KEY}") != _text(key):
        return False
    description = node.read_text(f"{key.folder}/{MODULE_SET_NAME}")
    try:
        digests = ModuleSet.from_json(description).modules
        contents = {name: node.read_bytes(f"{key.folder}/{name}") for name in digests}
        whole = all(
            f"sha256:{hashlib.sha256(data).hexdigest()}" == digests[name] for name, data in contents.items()
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
        host.node.write_atomic(f"{key.folder}/{KEY}", _text(key).encode())
        names = [name for name in host.files.list_dir(place) if name != MODULE_SET_NAME]
        for name in (*names, MODULE_SET_NAME):
            host.node.write_atomic(f"{key.folder}/{name}", host.files.read_bytes(f"{place}/{name}"))
    except DriverforgeError as error:
        log.warning("modules are not kept in the node's cache", entry=key.folder, reason=error.brief)
        return
    log.info("kept modules in the node's cache", entry=key.folder)


def _text(key: CacheKey) -> str:
    return json.dumps(asdict(key), indent=2, sort_keys=True) + "\n"
