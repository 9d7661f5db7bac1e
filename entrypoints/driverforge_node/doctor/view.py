"""What a runtime makes of its files, as far as the rules need it and without asking its program: a dump has none. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_node.doctor.facts import Document, RuntimeFacts
from driverforge_node.runtime import crio, docker
from driverforge_node.runtime.backends import BACKENDS
from driverforge_node.runtime.containerd import MERGES_KEYS, cri, default_of
from driverforge_node.runtime.document import REMOVED, lookup, merged
from driverforge_node.runtime.nvidia import is_nvidia

KEEPS_BUILT_IN = (2,)  # a table of runtimes replaces containerd 1.x's own one


def merges_keys(runtime: RuntimeFacts) -> bool:
    """Whether files are merged key by key. Of an unknown version, a file of version 3 tells a 2.x."""
    return runtime.version >= MERGES_KEYS if runtime.version else _newer_files(runtime)


def keeps_built_in(runtime: RuntimeFacts) -> bool:
    return runtime.version >= KEEPS_BUILT_IN if runtime.version else _newer_files(runtime)


def _newer_files(runtime: RuntimeFacts) -> bool:
    versions = [document.get("version", 0) for document in runtime.documents.values()]
    return any(isinstance(version, int) and version >= 3 for version in versions)


def winner(runtime: RuntimeFacts) -> str:
    """The file whose CRI section a containerd takes that takes whole sections; '' where none has any."""
    having = [
        path for path, document in runtime.documents.items() if lookup(document, cri(document)) is not REMOVED
    ]
    return having[-1] if having else ""


def effective(runtime: RuntimeFacts) -> Document:
    """The document that counts."""
    documents = list(runtime.documents.values())
    if runtime.kind == "containerd" and not merges_keys(runtime):
        return runtime.documents.get(winner(runtime), {})
    whole: dict[str, object] = {}
    for document in documents:
        whole = merged(whole, document)
    return whole


def handlers(runtime: RuntimeFacts) -> dict[str, str]:
    """Handlers of its files, with their programs."""
    return BACKENDS[runtime.kind].handlers(effective(runtime))


def nvidias(document: Document, kind: RuntimeFacts) -> dict[str, str]:
    """NVIDIA's handlers of one document."""
    found = BACKENDS[kind.kind].handlers(document)
    return {name: program for name, program in found.items() if is_nvidia(name, program)}


def has_nvidia(runtime: RuntimeFacts) -> bool:
    return any(is_nvidia(name, program) for name, program in handlers(runtime).items())


def default(runtime: RuntimeFacts) -> str:
    """The default runtime's name, '' where no file has one."""
    view = effective(runtime)
    if runtime.kind == "containerd":
        return default_of(view)
    found = lookup(view, (docker.DEFAULT,) if runtime.kind == "docker" else crio.DEFAULT)
    return found if isinstance(found, str) else ""


def systemd_cgroups(runtime: RuntimeFacts) -> bool:
    """Whether systemd keeps the containers' control groups, by the files."""
    view = effective(runtime)
    if runtime.kind == "crio":
        return lookup(view, ("crio", "runtime", "cgroup_manager")) in (REMOVED, "systemd")
    if runtime.kind == "docker":
        options = view.get("exec-opts")
        return isinstance(options, list) and "native.cgroupdriver=systemd" in options
    tables = lookup(view, (*cri(view), "containerd", "runtimes"))
    each = tables.values() if isinstance(tables, Mapping) else ()
    return any(
        isinstance(table, Mapping) and lookup(table, ("options", "SystemdCgroup")) is True for table in each
    )
