"""Rules on the configuration of container runtimes. Each is pure: facts in, a diagnosis or None out."""

from __future__ import annotations

import re
from shlex import quote

from driverforge_node.doctor import view
from driverforge_node.doctor.facts import Diagnosis, Document, Facts, RuntimeFacts
from driverforge_node.runtime.containerd import CRI_NAMES, RUNTIMES, VERSIONLESS, cri
from driverforge_node.runtime.document import dotted, lookup
from driverforge_node.runtime.nvidia import is_nvidia

APPLY = "driverctl runtime apply"
REFUSES_HIGHER = (2, 2)  # containerd#12891
BUILT_IN = {"containerd": ("runc",), "docker": ("runc",), "crio": ("runc", "crun")}


def _containerds(facts: Facts) -> list[RuntimeFacts]:
    return [runtime for runtime in facts.runtimes if runtime.kind == "containerd"]


def _serves_kubelet(facts: Facts, runtime: RuntimeFacts) -> bool:
    return facts.kubelet and (not facts.kubelet_sockets or runtime.socket in facts.kubelet_sockets)


def config_broken(facts: Facts) -> Diagnosis | None:
    found = [runtime for runtime in facts.runtimes if runtime.broken]
    if not found:
        return None
    return Diagnosis(
        what=f"{found[0].kind} cannot start with the files as they are",
        evidence=tuple(line for runtime in found for line in runtime.broken),
        command=f"repair {found[0].config}, then systemctl restart {found[0].service}; what driverctl changed: driverctl runtime revert",
    )


def drop_in_version(facts: Facts) -> Diagnosis | None:
    for runtime in _containerds(facts):
        root = runtime.documents.get(runtime.config, {})
        version = root.get("version", 1 if root else None)
        higher = _higher_files(runtime)
        if higher:
            refused = not runtime.version or runtime.version >= REFUSES_HIGHER
            effect = (
                "containerd 2.2 and later do not start"
                if refused
                else "containerd 2.1 and older lose settings of the root file"
            )
            stated = [f"{path}: version = {runtime.documents[path]['version']}" for path in higher]
            paths = " ".join(map(quote, higher))
            return Diagnosis(
                what=f"a drop-in has a higher version than the root file: {effect}",
                evidence=(f"{runtime.config}: version = {version}", *stated),
                command=f"mv {paths} /root/ && systemctl restart {runtime.service} && {APPLY}",
            )
    return None


def _higher_files(runtime: RuntimeFacts) -> list[str]:
    root = runtime.documents.get(runtime.config, {})
    version = root.get("version", 1 if root else None)
    return [path for path, document in runtime.documents.items() if _higher(document.get("version"), version)]


def _unread(runtime: RuntimeFacts) -> bool:
    """Whether a containerd 1.x takes no notice of a file, for its keys are of a later version: what it says is not in force."""
    return (
        runtime.kind == "containerd"
        and () < runtime.version < view.KEEPS_BUILT_IN
        and bool(_higher_files(runtime))
    )


def _higher(version: object, than: object) -> bool:
    return isinstance(version, int) and isinstance(than, int) and version > than


def cri_disabled(facts: Facts) -> Diagnosis | None:
    for runtime in _containerds(facts):
        for path, document in runtime.documents.items():
            disabled = document.get("disabled_plugins")
            names = [name for name in disabled if name in CRI_NAMES] if isinstance(disabled, list) else []
            refused = _refuses_bare_names(document, names)
            if names and (refused or _serves_kubelet(facts, runtime) or _mentions_nvidia(runtime)):
                edits = " ".join(f"-e 's/\"{re.escape(name)}\" *,? *//'" for name in names)
                return Diagnosis(
                    what="containerd does not start: a version 2 file has to name the plugins in full that it disables"
                    if refused
                    else "containerd's CRI plugin is disabled: no kubelet can use it, and NVIDIA's handlers have no effect",
                    evidence=(f"{path}: disabled_plugins = {disabled}",),
                    command=f"sed -i -E {edits} {quote(path)} && systemctl restart {runtime.service} && {APPLY}",
                )
    return None


def _refuses_bare_names(document: Document, names: list[str]) -> bool:
    """`invalid disabled plugin URI "cri" expect io.containerd.x.vx`: who adds `version = 2` to docker's file gets that."""
    version = document.get("version")
    return isinstance(version, int) and version > 1 and "cri" in names


def _mentions_nvidia(runtime: RuntimeFacts) -> bool:
    return any(
        view.nvidias(document, runtime) for document in (*runtime.documents.values(), *runtime.loose.values())
    )


def version_1(facts: Facts) -> Diagnosis | None:
    for runtime in _containerds(facts):
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
            and (unread or _serves_kubelet(facts, runtime))
        ):
            return Diagnosis(
                what="containerd's configuration is version 1: nothing can be added to it by a drop-in, and 2.x does not read it",
                evidence=(
                    f"{runtime.config} has no `version`",
                    *(f"{path}: version 1 too, and not imported" for path in unread),
                ),
                command=f"containerd --config {quote(runtime.config)} config migrate > /root/config.toml; look at it, put it in place, "
                f"then systemctl restart {runtime.service} && {APPLY}",
            )
    return None


def drop_in_not_read(facts: Facts) -> Diagnosis | None:
    for runtime in facts.runtimes:
        found = [path for path, document in runtime.loose.items() if view.nvidias(document, runtime)]
        if found and not view.has_nvidia(runtime):
            return Diagnosis(
                what=f"NVIDIA's handlers are in a file that {runtime.kind} does not read",
                evidence=tuple(f"{path} is not among the imports of {runtime.config}" for path in found),
                command=APPLY,
            )
    return None


def runc_missing(facts: Facts) -> Diagnosis | None:
    for runtime in _containerds(facts):
        names = view.handlers(runtime)
        if not names or "runc" in names or view.keeps_built_in(runtime) or _unread(runtime):
            continue
        default = view.default(runtime) or "runc"
        path = view.winner(runtime)
        header = dotted((*cri(runtime.documents[path]), *RUNTIMES, "runc"))
        effect = (
            "its CRI plugin does not load"
            if default == "runc"
            else f"what asks for runc does not start ({default} is the default)"
        )
        return Diagnosis(
            what=f"containerd 1.x has no runtime runc: {effect}",
            evidence=(
                f"{path} has {', '.join(sorted(names))}; its table of runtimes replaces the built-in one",
            ),
            command=f"printf '\\n[{header}]\\nruntime_type = \"io.containerd.runc.v2\"\\n' >> {quote(path)} "
            f"&& systemctl restart {runtime.service}",
        )
    return None


def default_unknown(facts: Facts) -> Diagnosis | None:
    for runtime in facts.runtimes:
        names, default = view.handlers(runtime), view.default(runtime)
        if not default or default in names or default in BUILT_IN[runtime.kind]:
            continue
        return Diagnosis(
            what=f"the default runtime of {runtime.kind} is {default}, which does not exist: no container starts",
            evidence=(
                f"{runtime.config} and what it imports have {', '.join(sorted(names)) or 'no runtimes'}",
            ),
            command=APPLY if is_nvidia(default, "") else _set_default(runtime, default),
        )
    return None


def _set_default(runtime: RuntimeFacts, default: str) -> str:
    key = {"containerd": "default_runtime_name", "crio": "default_runtime", "docker": "default-runtime"}[
        runtime.kind
    ]
    with_it = [path for path in runtime.documents if _mentions(runtime, path, default)] or [runtime.config]
    files, name = " ".join(map(quote, with_it)), re.escape(default)
    return f'sed -i -E \'/{key}/s/"{name}"/"{BUILT_IN[runtime.kind][0]}"/\' {files} && systemctl restart {runtime.service}'


def _mentions(runtime: RuntimeFacts, path: str, default: str) -> bool:
    return (
        view.default(RuntimeFacts(kind=runtime.kind, config=path, documents={path: runtime.documents[path]}))
        == default
    )


def handler_without_type(facts: Facts) -> Diagnosis | None:
    for runtime in _containerds(facts):
        document = view.effective(runtime)
        version = document.get("version")
        lacking = [
            name
            for name in view.nvidias(document, runtime)
            if not lookup_text(document, (*cri(document), *RUNTIMES, name, "runtime_type"))
        ]
        if lacking and isinstance(version, int) and version >= 3:
            return Diagnosis(
                what="a handler has no runtime_type: containerd makes no sandbox for it",
                evidence=tuple(f"{runtime.config}: {name} has no runtime_type" for name in lacking),
                command=APPLY,
            )
    return None


def lookup_text(document: object, path: tuple[str, ...]) -> str:
    found = lookup(document, path) if isinstance(document, dict) else ""
    return found if isinstance(found, str) else ""


def template_without_base(facts: Facts) -> Diagnosis | None:
    for path, text in facts.templates.items():
        if ("template" in text and '"base"' in text) or ".NodeConfig" in text:
            continue
        name = "rke2" if "/rke2/" in path else "k3s"
        return Diagnosis(
            what=f"{name}'s template has nothing of {name}'s own configuration: CNI and registries are lost at its next start",
            evidence=(f'{path} has no {{{{ template "base" . }}}}',),
            command=f"sed -i '1i {{{{ template \"base\" . }}}}' {quote(path)} && systemctl restart {name}",
        )
    return None


def config_overwritten(facts: Facts) -> Diagnosis | None:
    for entry in facts.journal:
        changed = facts.rewritten.get(entry.config, ())
        runtime = next((each for each in facts.runtimes if each.config == entry.config), None)
        stated = view.handlers(runtime) if runtime and not runtime.broken else {}
        lost = [name for name, program in entry.handlers if stated.get(name) != program]
        if changed and lost and entry.state == "in force":
            return Diagnosis(
                what=f"somebody else rewrote the configuration of {entry.kind}: {', '.join(lost)} {'are' if len(lost) > 1 else 'is'} gone",
                evidence=tuple(f"{path} is not what driverctl wrote" for path in changed),
                command=f"{APPLY}; let that tool keep the file's `imports`, or watch it: driverctl toolkit run --reapply",
            )
    return None


def not_in_force(facts: Facts) -> Diagnosis | None:
    for runtime in facts.runtimes:
        if runtime.reported is None or runtime.broken or _unread(runtime):
            continue
        stated = {
            name: program for name, program in view.handlers(runtime).items() if is_nvidia(name, program)
        }
        missing = [
            name for name, program in stated.items() if runtime.reported.get(name, "") not in (program, None)
        ]
        if missing:
            return Diagnosis(
                what=f"{runtime.kind} runs without handlers that its files have: it was not restarted since",
                evidence=(
                    f"files: {', '.join(sorted(stated))}",
                    f"process: {', '.join(sorted(runtime.reported)) or 'no handlers'}",
                ),
                command=f"systemctl restart {runtime.service}, in a quiet hour",
            )
    return None


def mixed_runtimes(facts: Facts) -> Diagnosis | None:
    if not facts.kubelet_sockets or len(facts.runtimes) < 2:
        return None
    used = [runtime for runtime in facts.runtimes if runtime.socket in facts.kubelet_sockets]
    others = [
        runtime
        for runtime in facts.runtimes
        if runtime.socket not in facts.kubelet_sockets and view.has_nvidia(runtime)
    ]
    if not others or not used or any(view.has_nvidia(runtime) for runtime in used):
        return None
    return Diagnosis(
        what="NVIDIA's handlers are in a runtime that the kubelet does not use",
        evidence=(
            f"the kubelet uses {used[0].socket}",
            *(f"{runtime.config}: {', '.join(view.handlers(runtime))}" for runtime in others),
        ),
        command=f"driverctl runtime apply --socket {used[0].socket}",
    )


def folder_read_only(facts: Facts) -> Diagnosis | None:
    found = [runtime for runtime in facts.runtimes if runtime.read_only and not view.has_nvidia(runtime)]
    if not found:
        return None
    return Diagnosis(
        what=f"the configuration of {found[0].kind} is on a read-only file system: no handler can be added",
        evidence=tuple(f"{runtime.read_only} cannot be written" for runtime in found),
        command="put the handlers into the system's own machine configuration (driverctl runtime plan prints them)",
    )
