"""Rules on the configuration of container runtimes. Each is pure: evidence in, a diagnosis or None out."""

from __future__ import annotations

import re
from shlex import quote

from driverforge_toolkit.doctor import rules_template, rules_versions, runtime_files
from driverforge_toolkit.doctor.evidence import (
    APPLY,
    Diagnosis,
    Document,
    NodeEvidence,
    RuntimeEvidence,
)
from driverforge_toolkit.runtime.backends.containerd_config import (
    CRI_NAMES,
    RUNTIMES,
    cri_section,
)
from driverforge_toolkit.runtime.backends.hidden_section import deciding_file, having, missing_in
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

BUILT_IN = {"containerd": ("runc",), "docker": ("runc",), "crio": ("runc", "crun")}


def config_broken(evidence: NodeEvidence) -> Diagnosis | None:
    found = [
        runtime
        for runtime in evidence.runtimes
        if runtime.broken and not rules_template.is_made(runtime.config, evidence)
    ]
    if not found:
        return None
    restart = f"systemctl restart {found[0].service}"
    named = found[0].broken[0].partition(" ")[0]
    broken = named if named.startswith("/") else found[0].config
    made = found[0].supervisor in ("k3s", "rke2", "microk8s") and broken == found[0].config
    return Diagnosis(
        what=f"{found[0].kind} cannot start with the files as they are",
        evidence=tuple(line for runtime in found for line in runtime.broken),
        command=f"{restart}  # {found[0].supervisor} writes {broken} anew"
        if made
        else f"# repair {broken}, then: {restart}; what driverctl changed: driverctl runtime revert",
    )


def restart_doomed(evidence: NodeEvidence) -> Diagnosis | None:
    """What a rule of its own names, with a cure, is left to that."""
    for runtime in evidence.containerds:
        told = runtime_files.default(runtime) not in ("", *runtime_files.handlers(runtime)) or any(
            "no corresponding runtime" in line or "without its CRI plugin" in line for line in runtime.doomed
        )
        if runtime.doomed and not runtime.broken and not told:
            return Diagnosis(
                what="containerd would not serve pods after its next start, with its files as they are",
                evidence=runtime.doomed,
                command="# repair what it names, before anybody restarts it"
                if runtime.runs
                else f"# repair what it names, then: systemctl restart {runtime.service}",
            )
    return None


def cri_disabled(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        for path, document in runtime.documents.items():
            disabled = document.get("disabled_plugins")
            names = [name for name in disabled if name in CRI_NAMES] if isinstance(disabled, list) else []
            refused = _refuses_bare_names(document, names)
            if names and (refused or evidence.serves_kubelet(runtime) or _mentions_nvidia(runtime)):
                # the plugins' sections have these names, too
                place = "/^[[:space:]]*disabled_plugins/,/\\]/"
                edits = (f"""{place}s/["']{re.escape(name)}["'] *,? *//""" for name in names)
                return Diagnosis(
                    what="containerd does not start: a version 2 file has to name the plugins in full that "
                    "it disables"
                    if refused
                    else "containerd's CRI plugin is disabled: no kubelet can use it, "
                    "and NVIDIA's handlers have no effect",
                    evidence=(f"{path}: disabled_plugins = {disabled}",),
                    command=f"sed -i -E {' '.join(f'-e {quote(edit)}' for edit in edits)}"
                    f"{_newer(runtime, path)} {quote(path)} && "
                    f"systemctl restart {runtime.service} && {APPLY}",
                )
    return None


def _newer(runtime: RuntimeEvidence, path: str) -> str:
    """What makes a root file without a version one that can get a drop-in, as that of docker's package."""
    document = runtime.documents[path]
    if path != runtime.config or "version" in document:
        return ""
    known = rules_versions.plugins_of(document) <= rules_versions.PLUGINS.keys()
    return rules_versions.edits_for_version_2(document) if known else ""


def _refuses_bare_names(document: Document, names: list[str]) -> bool:
    """Whether containerd refuses the names: `invalid disabled plugin URI "cri" expect io.containerd.x.vx`.

    Who adds `version = 2` to the file that docker's package ships gets that.
    """
    version = document.get("version")
    return isinstance(version, int) and version > 1 and "cri" in names


def _mentions_nvidia(runtime: RuntimeEvidence) -> bool:
    return any(
        runtime_files.handlers_of_nvidia(document, runtime)
        for document in (*runtime.documents.values(), *runtime.loose.values())
    )


def drop_in_not_read(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        found = [
            path
            for path, document in runtime.loose.items()
            if runtime_files.handlers_of_nvidia(document, runtime)
        ]
        if found and not runtime_files.has_nvidia(runtime):
            return Diagnosis(
                what=f"NVIDIA's handlers are in a file that {runtime.kind} does not read",
                evidence=tuple(
                    f"{path} is not among the imports of {runtime.config}"
                    if runtime.kind == "containerd"
                    else f"{path} is not in {runtime.config}.d"
                    for path in found
                ),
                command=APPLY,
            )
    return None


def runc_missing(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        names = runtime_files.handlers(runtime)
        if (
            not names
            or "runc" in names
            or runtime_files.keeps_built_in(runtime)
            or rules_versions.unread(runtime)
        ):
            continue
        if rules_template.is_made(runtime.config, evidence):
            continue
        default = runtime_files.default(runtime) or "runc"
        path = deciding_file(runtime.documents)
        effect = (
            "its CRI plugin does not load"
            if default == "runc"
            else f"what asks for runc does not start ({default} is the default)"
        )
        elsewhere = having(runtime.documents, "runc", besides=(path,))
        hidden = f": that of {', '.join(elsewhere)}, which has runc, is not read" if elsewhere else ""
        replaces = (
            "its CRI section replaces that of the other files"
            if elsewhere
            else ("its table of runtimes replaces the built-in one")
        )
        return Diagnosis(
            what=f"containerd 1.x has no runtime runc: {effect}",
            evidence=(f"{path} has {', '.join(sorted(names))}; {replaces}{hidden}",),
            command=_with_runc(runtime, path, evidence),
        )
    return None


def _with_runc(runtime: RuntimeEvidence, path: str, evidence: NodeEvidence) -> str:
    """What brings runc back, with the rest of the section that the file at `path` hides."""
    restart = f"systemctl restart {runtime.service}"
    missing = missing_in(runtime.documents, runtime.texts)
    if missing is None:
        return f"# write the runtime runc into {path}, then: {restart}"
    folder = runtime.config.rpartition("/")[0]
    templates = [each.path for each in evidence.templates if each.path.rpartition("/")[0] == folder]
    target = ""
    # what a distribution writes anew at its start loses what is appended to it
    if runtime.supervisor == "k0s" and path.startswith("/run/"):
        return f"{missing.command_for_new('/etc/k0s/containerd.d/runc.toml')} && {restart}"
    if runtime.supervisor == "microk8s" and path == runtime.config:
        target = f"{folder}/containerd-template.toml"
    elif runtime.supervisor in ("k3s", "rke2") and path == runtime.config:
        if not templates:
            return restart  # its own configuration has runc
        target = templates[0]
    return f"{missing.command(target)} && {restart}"


def default_unknown(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        names, default = runtime_files.handlers(runtime), runtime_files.default(runtime)
        if not default or default in names or default in BUILT_IN[runtime.kind]:
            continue
        return Diagnosis(
            what=f"the default runtime of {runtime.kind} is {default}, which does not exist: "
            "no container starts",
            evidence=(
                f"{runtime.config} and what it imports have {', '.join(sorted(names)) or 'no runtimes'}",
            ),
            command=APPLY if is_nvidia(default, "") else _set_default(runtime, default),
        )
    return None


def _set_default(runtime: RuntimeEvidence, default: str) -> str:
    key = {"containerd": "default_runtime_name", "crio": "default_runtime", "docker": "default-runtime"}[
        runtime.kind
    ]
    with_it = [path for path in runtime.documents if _mentions(runtime, path, default)] or [runtime.config]
    restart = f"systemctl restart {runtime.service}"
    made = runtime.config in with_it and runtime.supervisor
    # k3s writes the file anew, with what it was started with
    if made in ("k3s", "rke2"):
        where = f"/etc/rancher/{made}/config.yaml or its unit"
        return f"# take --default-runtime={default} out of {where}, then: {restart}"
    if made == "microk8s":
        template = f"{runtime.config.rpartition('/')[0]}/containerd-template.toml"
        return f"sed -i '/{key}/s/=.*/= \"runc\"/' {quote(template)} && {restart}"
    old = f"""(["']?[[:space:]]*[=:][[:space:]]*)["']{re.escape(default)}["']"""
    edit = f'/{key}/s/{old}/\\1"{BUILT_IN[runtime.kind][0]}"/'
    return f"sed -i -E {quote(edit)} {' '.join(map(quote, with_it))} && {restart}"


def _mentions(runtime: RuntimeEvidence, path: str, default: str) -> bool:
    return (
        runtime_files.default(
            RuntimeEvidence(kind=runtime.kind, config=path, documents={path: runtime.documents[path]})
        )
        == default
    )


def handler_without_type(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        document = runtime_files.effective(runtime)
        version = document.get("version")
        lacking = [
            name
            for name in runtime_files.handlers_of_nvidia(document, runtime)
            if not _text_at(document, (*cri_section(document), *RUNTIMES, name, "runtime_type"))
        ]
        if lacking and isinstance(version, int) and version >= 3:
            return Diagnosis(
                what="a handler has no runtime_type: containerd makes no sandbox for it",
                evidence=tuple(f"{runtime.config}: {name} has no runtime_type" for name in lacking),
                command=APPLY,
            )
    return None


def _text_at(document: object, path: tuple[str, ...]) -> str:
    found = lookup(document, path) if isinstance(document, dict) else ""
    return found if isinstance(found, str) else ""


def config_overwritten(evidence: NodeEvidence) -> Diagnosis | None:
    for entry in evidence.journal:
        changed = evidence.rewritten.get(entry.config, ())
        runtime = next((each for each in evidence.runtimes if each.config == entry.config), None)
        if runtime and runtime.broken:
            continue  # what it has is not known
        stated = runtime_files.handlers(runtime) if runtime else {}
        lost = [name for name, program in entry.handlers if stated.get(name) != program]
        if changed and lost and entry.state == "in force":
            return Diagnosis(
                what=f"somebody else rewrote the configuration of {entry.kind}: "
                f"{', '.join(lost)} {'are' if len(lost) > 1 else 'is'} gone",
                evidence=tuple(f"{path} is not what driverctl wrote" for path in changed),
                command=f"{APPLY}  # let that tool keep the file's `imports`, or watch it: "
                "driverctl toolkit run --reapply",
            )
    return None


def changed_runtime_down(evidence: NodeEvidence) -> Diagnosis | None:
    """Not in a dump, which has no processes."""
    for entry in evidence.journal if evidence.live else ():
        runtime = next((each for each in evidence.runtimes if each.config == entry.config), None)
        if runtime is None or runtime.runs:
            continue
        start = f"systemctl start {entry.supervisor.unit}" if entry.supervisor.unit else "# start it"
        return Diagnosis(
            what=f"the {entry.kind} at {entry.socket}, which driverctl has changed, does not run",
            evidence=(
                *(f"{file.path} was changed by driverctl" for file in entry.files),
                *(f"{path} was changed again since" for path in evidence.rewritten.get(entry.config, ())),
            ),
            command=f"{start}  # if it does not come up: driverctl runtime revert, which puts its files back "
            "and starts it",
        )
    return None


def change_refused(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        if runtime.refused is not None:
            return Diagnosis(
                what=f"{runtime.kind} did not accept driverctl's last change, on {runtime.refused.when}",
                evidence=runtime.refused.said,
                command=f"# change what it names, then: {APPLY}; to try the same again: {APPLY} --force",
            )
    return None


def not_in_force(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        if runtime.reported is None or runtime.broken or rules_versions.unread(runtime):
            continue
        stated = {
            name: program
            for name, program in runtime_files.handlers(runtime).items()
            if is_nvidia(name, program)
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
                command=f"systemctl restart {runtime.service}  # in a quiet hour",
            )
    return None


def mixed_runtimes(evidence: NodeEvidence) -> Diagnosis | None:
    if not evidence.kubelet_sockets or len(evidence.runtimes) < 2:
        return None
    used = [runtime for runtime in evidence.runtimes if runtime.socket in evidence.kubelet_sockets]
    others = [
        runtime
        for runtime in evidence.runtimes
        if runtime.socket not in evidence.kubelet_sockets and runtime_files.has_nvidia(runtime)
    ]
    if not others or not used or any(runtime_files.has_nvidia(runtime) for runtime in used):
        return None
    return Diagnosis(
        what="NVIDIA's handlers are in a runtime that the kubelet does not use",
        evidence=(
            f"the kubelet uses {used[0].socket}",
            *(f"{runtime.config}: {', '.join(runtime_files.handlers(runtime))}" for runtime in others),
        ),
        command=f"driverctl runtime apply --socket {used[0].socket}",
    )


def folder_read_only(evidence: NodeEvidence) -> Diagnosis | None:
    found = [
        runtime
        for runtime in evidence.runtimes
        if runtime.read_only and not runtime_files.has_nvidia(runtime)
    ]
    if not found:
        return None
    return Diagnosis(
        what=f"the configuration of {found[0].kind} is on a read-only file system: no handler can be added",
        evidence=tuple(f"{runtime.read_only} cannot be written" for runtime in found),
        command="# put the handlers into the system's own machine configuration; they are printed by: "
        "driverctl runtime plan",
    )
