"""Whether a spec still describes the node: what it was made from is in the file's first lines; other tools' specs have their content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from driverforge_core.errors import InputError, Unavailable
from driverforge_node.cdi import document, gpus
from driverforge_node.cdi.libraries import locate
from driverforge_node.cdi.nodes import MANAGEMENT, char_devices
from driverforge_node.cdi.roots import Roots, read, view
from driverforge_node.cdi.spec import Spec
from driverforge_node.host.ports import Files, Host

_DEVICES = (*MANAGEMENT, "/dev/gdrdrv", "/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm", "/dev/dri/*")
_NOTE = "Written by driverctl, which writes it anew when devices, driver or MIG change; what others write here is lost then."
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
class Facts:
    """What a spec depends on, as of one look at the node."""

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
    return sha256(repr(value).encode()).hexdigest()[:12]


def observe(host: Host, roots: Roots) -> Facts:
    """Look at the node. Reads only, and no library is opened: cheap enough for a watcher."""
    seen = view(host, roots)
    try:
        version = locate(seen.driver, loaded=read(seen.system, "/sys/module/nvidia/version").strip()).version
    except Unavailable:
        version = ""
    numbers = ((path, seen.dev.device_number(path)) for path in char_devices(seen, _DEVICES))
    gpu_minors = sorted(gpu.minor for gpu in gpus.static_gpus(seen))
    layout = [f"{minor}: {mig}" for minor in gpu_minors for mig in gpus.static_migs(seen.system, minor)]
    return Facts(
        driver=version,
        devices=tuple((path, *found) for path, found in numbers if found),
        mig=tuple(layout),
        root=f"{seen.driver.identity('/')} {roots.driver}",
    )


def comments(facts: Facts) -> tuple[str, ...]:
    """The lines that a spec made from these facts begins with."""
    return (_NOTE, "facts: " + " ".join(f"{name}={mark}" for name, mark in facts.marks.items()))


def needs_regeneration(files: Files, path: str, facts: Facts) -> tuple[str, ...]:
    """Why the spec at `path` has to be written anew, a sentence each; empty where it describes `facts`."""
    text = read(files, path)
    if not text:
        return (f"{path} is missing or empty",)
    recorded = next((match[1] for line in text.splitlines()[:5] if (match := _LINE.fullmatch(line))), "")
    if recorded:
        before = dict(word.partition("=")[::2] for word in recorded.split())
        changed = [name for name, mark in facts.marks.items() if before.get(name) != mark]
        return tuple(_change(name, before.get(name, ""), facts) for name in changed)
    try:
        return tuple(_content_reasons(document.read(text, path), facts))
    except InputError as error:
        return (error.brief,)


def _change(name: str, before: str, facts: Facts) -> str:
    values = f" from {before} to {facts.driver or 'none'}" if name == "driver" else ""
    return f"{_MEANING[name]} changed{values}"


def _content_reasons(spec: Spec, facts: Facts) -> Iterator[str]:
    """For specs without our first lines: what the content itself says."""
    version = driver_version(spec)
    if version and facts.driver and version != facts.driver:
        yield f"the driver's version changed from {version} to {facts.driver}"
    nodes = [node for edits in spec.all_edits for node in edits.device_nodes]
    there = {path: (major, minor) for path, major, minor in facts.devices}
    for node in nodes:
        if node.path not in there:
            yield f"{node.path} is gone"
        elif (node.major, node.minor) not in ((0, 0), there[node.path]):
            yield f"{node.path} has other numbers now"
    known = {node.path for node in nodes}
    if any(_GPU.fullmatch(path) for path in known):
        yield from (f"{path} is new" for path in there if _GPU.fullmatch(path) and path not in known)


def driver_version(spec: Spec) -> str:
    """The driver that a spec was made for: what its hook says, else the names of the libraries; '' where it says nothing."""
    args = [arg for edits in spec.all_edits for hook in edits.hooks for arg in hook.args]
    stated = [arg.removeprefix(_ARGUMENT) for arg in args if arg.startswith(_ARGUMENT)]
    paths = (mount.host_path for edits in spec.all_edits for mount in edits.mounts)
    named = [match[1] for path in paths if (match := _VERSIONED.search(path))]
    return next(iter([*stated, *named]), "")
