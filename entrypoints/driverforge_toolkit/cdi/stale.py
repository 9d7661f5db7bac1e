"""Whether a spec still describes the node.

The first lines of our own files say what they were made from. Of other tools' specs the content is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from driverforge_core.errors import InputError, Unavailable
from driverforge_host.gpu import inventory
from driverforge_host.gpu.detect import loaded_version
from driverforge_host.gpu.device_files import EVERY, char_devices
from driverforge_host.gpu.roots import DriverRoots, view_of
from driverforge_host.ports import Files, Host, text_of
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.cdi.libraries import locate
from driverforge_toolkit.cdi.spec import Spec

_DEVICES = (*EVERY, "/dev/gdrdrv", "/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm", "/dev/dri/*")
_NOTE = (
    "Written by driverctl, which writes it again when devices, driver or MIG change. "
    "Edits made here are lost then."
)
_LINE = re.compile(r"# facts: (.+)")
_MEANING = {
    "driver": "the driver's version",
    "devices": "the device files",
    "mig": "the MIG layout",
    "root": "the driver root",
}
_GPU = re.compile(r"/dev/nvidia\d+")
_VERSIONED = re.compile(r"/(?:libcuda|libnvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)$")
_ARGUMENT = "--host-driver-version="


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecBasis:
    """What a spec is made from, as of one look at the node."""

    driver: str  # version of the user space, '' where there is none
    devices: tuple[tuple[str, int, int], ...]  # (path, major, minor)
    mig: tuple[str, ...]
    root: str  # which file system and folder the driver root is, and what the host calls it

    @property
    def marks(self) -> dict[str, str]:
        """A short text for each part, equal only where the part is equal."""
        return {
            "driver": self.driver or "none",
            "devices": _hash(self.devices),
            "mig": _hash(self.mig),
            "root": _hash(self.root),
        }


def _hash(value: object) -> str:
    """Twelve digits of a value's repr.

    They are written into files, so the repr of `Mig` must stay as it is.
    """
    return sha256(repr(value).encode()).hexdigest()[:12]


def observe(host: Host, roots: DriverRoots) -> SpecBasis:
    """Look at the node. Reads only, and no library is opened: cheap enough for a watcher."""
    seen = view_of(host, roots)
    try:
        version = locate(seen.driver, loaded=loaded_version(seen.system)).version
    except Unavailable:
        version = ""
    numbers = ((path, seen.dev.device_number(path)) for path in char_devices(seen, _DEVICES))
    gpu_minors = sorted(gpu.minor for gpu in inventory.static_gpus(seen))
    layout = [f"{minor}: {mig}" for minor in gpu_minors for mig in inventory.static_migs(seen.system, minor)]
    return SpecBasis(
        driver=version,
        devices=tuple((path, *found) for path, found in numbers if found),
        mig=tuple(layout),
        # a driver that is installed again has another folder or mount under the same path
        root=f"{seen.driver.identity('/')} {roots.driver}",
    )


def comments(basis: SpecBasis) -> tuple[str, ...]:
    """The comments that a spec made from this begins with."""
    return (_NOTE, "facts: " + " ".join(f"{name}={mark}" for name, mark in basis.marks.items()))


def needs_regeneration(files: Files, path: str, basis: SpecBasis) -> tuple[str, ...]:
    """Why the spec at `path` has to be written again, a sentence each; empty where it describes `basis`."""
    text = text_of(files, path)
    if not text:
        return (f"{path} is missing or empty",)
    recorded = next((match[1] for line in text.splitlines()[:5] if (match := _LINE.fullmatch(line))), "")
    if recorded:
        before = dict(word.partition("=")[::2] for word in recorded.split())
        changed = [name for name, mark in basis.marks.items() if before.get(name) != mark]
        return tuple(_change(name, before.get(name, ""), basis) for name in changed)
    try:
        return tuple(_content_reasons(specfiles.read(text, path), basis))
    except InputError as error:
        return (error.brief,)


def _change(name: str, before: str, basis: SpecBasis) -> str:
    values = f" from {before} to {basis.driver or 'none'}" if name == "driver" else ""
    return f"{_MEANING[name]} changed{values}"


def _content_reasons(spec: Spec, basis: SpecBasis) -> Iterator[str]:
    """What the content of a spec without our first lines says."""
    version = driver_version(spec)
    if version and basis.driver and version != basis.driver:
        yield f"the driver's version changed from {version} to {basis.driver}"
    nodes = [node for edits in spec.all_edits for node in edits.device_nodes]
    there = {path: (major, minor) for path, major, minor in basis.devices}
    for node in nodes:
        if node.path not in there:
            yield f"{node.path} is gone"
        elif (node.major, node.minor) not in ((0, 0), there[node.path]):
            yield f"{node.path} has other numbers now"
    known = {node.path for node in nodes}
    if any(_GPU.fullmatch(path) for path in known):
        yield from (f"{path} is new" for path in there if _GPU.fullmatch(path) and path not in known)


def driver_version(spec: Spec) -> str:
    """The version of the driver that a spec was made for; '' where it says nothing.

    The hook for CUDA's compatibility libraries states it, else the names of libraries do.
    """
    args = [arg for edits in spec.all_edits for hook in edits.hooks for arg in hook.args]
    stated = [arg.removeprefix(_ARGUMENT) for arg in args if arg.startswith(_ARGUMENT)]
    paths = (mount.host_path for edits in spec.all_edits for mount in edits.mounts)
    named = (version for path in paths if (version := library_version(path)))
    return next(iter([*stated, *named]), "")


def library_version(path: str) -> str:
    """The driver that a library belongs to, by its name; '' for a library that does not say."""
    found = _VERSIONED.search(path)
    return found[1] if found else ""
