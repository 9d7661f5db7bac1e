"""Rules on the `version` of containerd's files. Pure.

Which releases take a drop-in of a higher version than the root file's was run: 2.3.0 to 2.3.4 refuse it
(containerd#12891, taken back by #13939 in 2.3.5), later ones migrate each file by itself, and older ones
migrate the merged files by one version, so that settings of the root file are lost without a word.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from shlex import quote

from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import APPLY, Diagnosis, Document, NodeEvidence, RuntimeEvidence
from driverforge_toolkit.runtime.backends.containerd_config import (
    CRI_V2,
    CRI_V3,
    RUNTIMES,
    VERSIONLESS,
    cri_section,
    runtimes_of,
)
from driverforge_toolkit.runtime.backends.hidden_section import missing_in
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import take

TAKES_HIGHER = (2, 3, 5)
REFUSES_HIGHER = (2, 3)
NEWEST: Mapping[tuple[int, ...], int] = {
    (1, 7): 2,
    (2, 0): 3,
    (2, 1): 3,
    (2, 2): 3,
}  # the highest version that a release starts with
# what a file of version 1 calls a plugin by its ID alone (containerd 1.7, plugin/plugin.go)
PLUGINS = {
    "cri": CRI_V2[1],
    "opt": "io.containerd.internal.v1.opt",
    "restart": "io.containerd.internal.v1.restart",
    "linux": "io.containerd.runtime.v1.linux",
    "cgroups": "io.containerd.monitor.v1.cgroups",
    "scheduler": "io.containerd.gc.v1.scheduler",
    "devmapper": "io.containerd.snapshotter.v1.devmapper",
    "overlayfs": "io.containerd.snapshotter.v1.overlayfs",
    "zfs": "io.containerd.snapshotter.v1.zfs",
}
_STATED = re.compile(r"^[ \t]*version[ \t]*=", re.MULTILINE)


def drop_in_version(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        root = runtime.documents.get(runtime.config, {})
        higher = _higher_files(runtime)
        if higher and runtime.version < TAKES_HIGHER:
            version = root.get("version", 1 if root else None)
            stated = [f"{path}: version = {number}" for path, number in higher.items()]
            effect = _effect(runtime.version, max(higher.values()))
            return Diagnosis(
                what=f"a drop-in has a higher version than the root file: {effect}",
                evidence=(f"{runtime.config}: version = {version}", *stated),
                command=_lowered(runtime, tuple(higher)),
            )
    return None


def _effect(release: tuple[int, ...], version: int) -> str:
    if not release:
        return (
            "containerd 2.3.0 to 2.3.4 do not start, older ones do not or lose settings; later ones take it"
        )
    if release >= REFUSES_HIGHER:
        return "containerd 2.3.0 to 2.3.4 do not start"
    if version > NEWEST.get(release[:2], version):
        return f"containerd {release[0]}.{release[1]} does not start"
    if release < (1, 7):
        return f"containerd {release[0]}.{release[1]} does not see what the drop-in sets"
    return "containerd before 2.3 loses settings of the root file"


def _lowered(runtime: RuntimeEvidence, higher: tuple[str, ...]) -> str:
    """What gives a drop-in the root file's version. One with nothing but NVIDIA's is written anew."""
    restart = f"systemctl restart {runtime.service}"
    others = [path for path in higher if not _is_nvidias(runtime.documents[path], runtime)]
    if not others:
        # containerd does not start without a file that is imported by its name
        emptied = "".join(f" && : > {quote(path)}" for path in higher if _is_named(runtime, path))
        return f"mv {' '.join(map(quote, higher))} /root/{emptied} && {restart} && {APPLY}"
    version = runtime.documents.get(runtime.config, {}).get("version")
    path = others[0]
    edits = _edits(runtime.texts.get(path, ""), version) if len(higher) == 1 else ""
    if not edits:
        return (
            f"# write {' and '.join(others)} in version {version or 2}, as {runtime.config} is, "
            f"then: {restart}; or update containerd to 2.3.5 or later, which reads it as it is"
        )
    lowered = f"sed -i.before -E {edits} {quote(path)}"
    if runtime_files.merges_keys(runtime):
        return f"{lowered} && {restart}"
    text = _in_version_2(runtime.texts[path])
    rest = missing_in({**runtime.documents, path: parse(text.encode(), path)}, {**runtime.texts, path: text})
    return f"{lowered} && {rest.command()} && {restart}" if rest else f"{lowered} && {restart}"


def _is_named(runtime: RuntimeEvidence, path: str) -> bool:
    """Whether some file imports this one by its whole name."""
    imports = (document.get("imports") for document in runtime.documents.values())
    return any(isinstance(names, list) and path in names for names in imports)


def _edits(text: str, version: object) -> str:
    """What sed does to a drop-in of version 3 or 4 to give it another one; '' where that is not all.

    3 and 4 have the same names. In version 2 the section of CRI's runtimes has another name, and the settings
    of its images, which are a section of their own in 3, are in it.
    """
    stated = _STATED.search(text)
    plugins = parse(text.encode(), "").get("plugins", {}) if text else {}
    if stated is None or version not in (2, 3) or not isinstance(plugins, Mapping):
        return ""
    number = f"-e '{text.count(chr(10), 0, stated.end()) + 1}s/[0-9]+/{version}/'"
    if version == 3:
        return number
    old, new = (re.escape(CRI_V3[1]), CRI_V2[1])
    return f"{number} -e 's/{old}/{new}/'" if set(plugins) <= {CRI_V3[1]} else ""


def _in_version_2(text: str) -> str:
    return _STATED.sub("version = 2 #", text, count=1).replace(CRI_V3[1], CRI_V2[1])


def _is_nvidias(document: Document, runtime: RuntimeEvidence) -> bool:
    """Whether a drop-in has nothing but NVIDIA's handlers."""
    names = runtimes_of(document)
    rest = copy.deepcopy(dict(document))
    for name in runtime_files.handlers_of_nvidia(document, runtime):
        take(rest, (*cri_section(document), *RUNTIMES, name))
    return bool(names or not document.get("plugins")) and set(rest) <= {"version"}


def _higher_files(runtime: RuntimeEvidence) -> dict[str, int]:
    """Files with a higher version than the root file's, and that version."""
    root = runtime.documents.get(runtime.config, {})
    version = root.get("version", 1 if root else None)
    stated = {path: document.get("version") for path, document in runtime.documents.items()}
    return {
        path: number
        for path, number in stated.items()
        if isinstance(number, int) and isinstance(version, int) and number > version
    }


def unread(runtime: RuntimeEvidence) -> bool:
    """Whether a containerd 1.x ignores a file, because the file's keys are of a later version."""
    return (
        runtime.kind == "containerd"
        and () < runtime.version < runtime_files.KEEPS_BUILT_IN
        and bool(_higher_files(runtime))
    )


def version_1(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        root = runtime.documents.get(runtime.config, {})
        content = sorted(set(root) - VERSIONLESS - {"imports", "disabled_plugins"})
        unread = [
            path
            for path, document in runtime.loose.items()
            if "version" not in document and "plugins" in document
        ]
        if (
            "version" not in root
            and (content or (root and unread))
            and (unread or evidence.serves_kubelet(runtime))
        ):
            return Diagnosis(
                what="containerd's configuration is version 1: nothing can be added to it by a drop-in, "
                "and 2.x does not read it",
                evidence=(
                    f"{runtime.config} has no `version`",
                    *(f"{path}: version 1 too, and not imported" for path in unread),
                ),
                command=_in_full(runtime),
            )
    return None


def _in_full(runtime: RuntimeEvidence) -> str:
    """What makes the root file one of version 2.

    `containerd config migrate` does not: 1.x has no such command, and 2.x drops the section of CRI.
    """
    root = runtime.documents.get(runtime.config, {})
    back = f"systemctl restart {runtime.service} && {APPLY}"
    if unknown := sorted(plugins_of(root) - PLUGINS.keys()):
        return (
            f"# give {runtime.config} `version = 2` and the plugins their full names "
            f"({', '.join(unknown)}: `ctr plugins ls` has TYPE and ID, which make TYPE.ID), then: {back}"
        )
    return f"sed -i.before -E{edits_for_version_2(root)} {quote(runtime.config)} && {back}"


def plugins_of(root: Document) -> set[str]:
    """The plugins that a file has a section of, or disables."""
    plugins, disabled = root.get("plugins"), root.get("disabled_plugins")
    names = set(plugins if isinstance(plugins, Mapping) else ())
    return {str(name) for name in names.union(disabled if isinstance(disabled, list) else ())}


def edits_for_version_2(root: Document) -> str:
    """What sed does to a file of version 1, whose plugins are all known: version 2 names them in full."""
    return " -e '1i version = 2'" + "".join(
        f""" -e 's/^([[:space:]]*\\[+plugins\\.)"?{name}"?([].])/\\1"{PLUGINS[name]}"\\2/'"""
        f""" -e '/^[[:space:]]*disabled_plugins/s/"{name}"/"{PLUGINS[name]}"/'"""
        for name in sorted(plugins_of(root))
    )
