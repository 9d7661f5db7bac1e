"""The node's cache of module sets: what was compiled once on a node is not compiled again after a pod's restart.

One entry a (driver, kernel release, module type): `<driver>/<release>/<type>/`. Its description is written last, so an entry without one is
none; header package versions, compiler and network driver are kept beside it and must agree.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_core.image import MODULE_SET_NAME, ModuleSet
from driverforge_node import log
from driverforge_node.driver import paths
from driverforge_node.host.ports import Host

KEY = "built-with.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a set of compiled modules depends on."""

    driver: str
    module_type: str
    kernel: str
    headers: str  # names and versions of all header packages
    compiler: str
    network: str  # identity of the network driver's build files, '' without them

    @property
    def folder(self) -> str:
        return f"{paths.CACHE}/{self.driver}/{self.kernel}/{self.module_type}"


def reachable(host: Host) -> bool:
    """Whether there is a node to keep things for: in an image build, our own root is the only one, and a cache would end in a layer."""
    return host.node.root != "/" or host.node.is_dir(paths.CACHE)


def restore(host: Host, key: Key, stage: str) -> bool:
    """Copy the entry for `key` into the folder `stage`.

    False where there is none, it is damaged, or it was made with other headers, another compiler or another network driver.
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


def store(host: Host, key: Key, place: str) -> None:
    """Keep a published set. A cache that cannot be written (read-only, full) is a warning: the modules themselves are there."""
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


def _text(key: Key) -> str:
    return json.dumps(asdict(key), indent=2, sort_keys=True) + "\n"
