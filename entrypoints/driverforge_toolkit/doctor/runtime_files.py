"""What a runtime makes of its files, found out without asking its program, which a dump does not have.

Pure.
"""

from __future__ import annotations

import copy

from driverforge_toolkit.doctor.evidence import Document, RuntimeEvidence
from driverforge_toolkit.runtime.backends import crio, docker
from driverforge_toolkit.runtime.backends.containerd_config import (
    CGROUP,
    CRI_V2,
    CRI_V3,
    ENABLE_CDI,
    MERGES_KEYS,
    cri_section,
    default_of,
    options_of,
    programs_of,
    runtimes_of,
    section_of,
)
from driverforge_toolkit.runtime.backends.distributions import BACKENDS
from driverforge_toolkit.runtime.backends.hidden_section import deciding_file
from driverforge_toolkit.runtime.formats.spelling import settled
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup, merged, put, take
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

KEEPS_BUILT_IN = (2,)  # a table of runtimes replaces containerd 1.x's own one


def merges_keys(runtime: RuntimeEvidence) -> bool:
    """Whether files are merged key by key. Where the version is unknown, a file of version 3 tells a 2.x."""
    return runtime.version >= MERGES_KEYS if runtime.version else _newer_files(runtime)


def keeps_built_in(runtime: RuntimeEvidence) -> bool:
    return runtime.version >= KEEPS_BUILT_IN if runtime.version else _newer_files(runtime)


def _newer_files(runtime: RuntimeEvidence) -> bool:
    versions = [document.get("version", 0) for document in runtime.documents.values()]
    return any(isinstance(version, int) and version >= 3 for version in versions)


def effective(runtime: RuntimeEvidence) -> Document:
    """The configuration that is in force by the files."""
    if runtime.kind == "containerd" and not merges_keys(runtime):
        return runtime.documents.get(deciding_file(runtime.documents), {})
    whole: dict[str, object] = {}
    for document in runtime.documents.values():
        whole = crio.layered(whole, document) if runtime.kind == "crio" else merged(whole, document)
    return _in_one_section(whole, runtime) if runtime.kind == "containerd" else whole


def _in_one_section(whole: dict[str, object], runtime: RuntimeEvidence) -> Document:
    """The files together, with the CRI section of all: each file is brought to one version by itself."""
    section: dict[str, object] = {}
    for document in runtime.documents.values():
        section = merged(section, section_of(document, runtime.version))
    whole = copy.deepcopy(whole)
    for path in (CRI_V2, CRI_V3):
        take(whole, path)
    if section:
        put(whole, cri_section(whole), section)
    return whole


def handlers(runtime: RuntimeEvidence) -> dict[str, str]:
    """The handlers that its files have, with their programs."""
    return _handlers_in(effective(runtime), runtime)


def _handlers_in(document: Document, runtime: RuntimeEvidence) -> dict[str, str]:
    if runtime.kind == "containerd":
        found = runtimes_of(document, daemon=runtime.version)
        return programs_of(found, any_case=keeps_built_in(runtime))
    return BACKENDS[runtime.kind].handlers(document)


def handlers_of_nvidia(document: Document, runtime: RuntimeEvidence) -> dict[str, str]:
    """NVIDIA's handlers of one document."""
    found = _handlers_in(document, runtime)
    return {name: program for name, program in found.items() if is_nvidia(name, program)}


def has_nvidia(runtime: RuntimeEvidence) -> bool:
    return any(is_nvidia(name, program) for name, program in handlers(runtime).items())


def injects_cdi(runtime: RuntimeEvidence) -> bool:
    """Whether a containerd of a known version brings CDI devices into containers itself.

    That is off in 1.7 unless a file says otherwise, and on in 2; 2.4 has no key for it any more.
    """
    view = effective(runtime)
    stated = lookup(view, (*cri_section(view), *ENABLE_CDI))
    if runtime.version >= (2, 4):
        return True
    return bool(runtime.version) and (stated if isinstance(stated, bool) else runtime.version >= (2,))


def low_level(runtime: RuntimeEvidence) -> tuple[str, ...]:
    """The programs that run its containers, by its files, without NVIDIA's."""
    return BACKENDS[runtime.kind].low_level_runtimes(effective(runtime))


def default(runtime: RuntimeEvidence) -> str:
    """The default runtime's name, '' where no file has one."""
    view = effective(runtime)
    if runtime.kind == "containerd":
        return default_of(view, daemon=runtime.version)
    found = lookup(view, (docker.DEFAULT,) if runtime.kind == "docker" else crio.DEFAULT)
    return found if isinstance(found, str) else ""


def systemd_cgroups(runtime: RuntimeEvidence) -> bool:
    """Whether systemd keeps the containers' control groups, by the files."""
    view = effective(runtime)
    if runtime.kind == "crio":
        return lookup(view, ("crio", "runtime", "cgroup_manager")) in (REMOVED, "systemd")
    if runtime.kind == "docker":
        options = view.get("exec-opts")
        return isinstance(options, list) and "native.cgroupdriver=systemd" in options
    any_case = keeps_built_in(runtime)
    return any(
        settled(options_of(table), any_case=any_case).get(CGROUP) is True
        for table in runtimes_of(view, daemon=runtime.version).values()
    )
