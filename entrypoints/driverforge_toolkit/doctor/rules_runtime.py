"""Rules on the configuration of container runtimes. Each is pure: evidence in, a diagnosis or None out."""

from __future__ import annotations

import re
from shlex import quote

from driverforge_core.errors import InputError
from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import (
    Diagnosis,
    Document,
    NodeEvidence,
    RuntimeEvidence,
    TemplateEvidence,
)
from driverforge_toolkit.runtime.backends import template_cure
from driverforge_toolkit.runtime.backends.containerd_config import (
    CRI_NAMES,
    RUNTIMES,
    VERSIONLESS,
    cri_section,
)
from driverforge_toolkit.runtime.backends.template_render import rendered
from driverforge_toolkit.runtime.formats.values import dotted, lookup
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

APPLY = "driverctl runtime apply"
REFUSES_HIGHER = (2, 2)  # containerd#12891
# Go's text/template, as k3s and rke2 log it at their end
TEMPLATE_FAILED = re.compile(r"template: (?P<name>compiled_template|base):(?P<line>\d+)(?::\d+)?: ")
CONTAINERD_STARTS = re.compile(r"Running containerd |containerd is now running")
BUILT_IN = {"containerd": ("runc",), "docker": ("runc",), "crio": ("runc", "crun")}


def _containerds(evidence: NodeEvidence) -> list[RuntimeEvidence]:
    return [runtime for runtime in evidence.runtimes if runtime.kind == "containerd"]


def _serves_kubelet(evidence: NodeEvidence, runtime: RuntimeEvidence) -> bool:
    return evidence.kubelet and (not evidence.kubelet_sockets or runtime.socket in evidence.kubelet_sockets)


def config_broken(evidence: NodeEvidence) -> Diagnosis | None:
    found = [
        runtime for runtime in evidence.runtimes if runtime.broken and not _is_made(runtime.config, evidence)
    ]
    if not found:
        return None
    return Diagnosis(
        what=f"{found[0].kind} cannot start with the files as they are",
        evidence=tuple(line for runtime in found for line in runtime.broken),
        command=f"repair {found[0].config}, then systemctl restart {found[0].service}; "
        "what driverctl changed: driverctl runtime revert",
    )


def _is_made(config: str, evidence: NodeEvidence) -> bool:
    """Whether a distribution makes this file of a template that has a problem of its own."""
    wrong = template_without_base(evidence) or template_error(evidence)
    folders = [template.path.rpartition("/")[0] for template in evidence.templates]
    return wrong is not None and config.rpartition("/")[0] in folders


def drop_in_version(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in _containerds(evidence):
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


def _higher_files(runtime: RuntimeEvidence) -> list[str]:
    root = runtime.documents.get(runtime.config, {})
    version = root.get("version", 1 if root else None)
    return [path for path, document in runtime.documents.items() if _higher(document.get("version"), version)]


def _unread(runtime: RuntimeEvidence) -> bool:
    """Whether a containerd 1.x ignores a file, because the file's keys are of a later version."""
    return (
        runtime.kind == "containerd"
        and () < runtime.version < runtime_files.KEEPS_BUILT_IN
        and bool(_higher_files(runtime))
    )


def _higher(version: object, than: object) -> bool:
    return isinstance(version, int) and isinstance(than, int) and version > than


def cri_disabled(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in _containerds(evidence):
        for path, document in runtime.documents.items():
            disabled = document.get("disabled_plugins")
            names = [name for name in disabled if name in CRI_NAMES] if isinstance(disabled, list) else []
            refused = _refuses_bare_names(document, names)
            if names and (refused or _serves_kubelet(evidence, runtime) or _mentions_nvidia(runtime)):
                edits = " ".join(f"-e 's/\"{re.escape(name)}\" *,? *//'" for name in names)
                return Diagnosis(
                    what="containerd does not start: a version 2 file has to name the plugins in full that "
                    "it disables"
                    if refused
                    else "containerd's CRI plugin is disabled: no kubelet can use it, "
                    "and NVIDIA's handlers have no effect",
                    evidence=(f"{path}: disabled_plugins = {disabled}",),
                    command=f"sed -i -E {edits} {quote(path)} && systemctl restart {runtime.service} && "
                    f"{APPLY}",
                )
    return None


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


def version_1(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in _containerds(evidence):
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
            and (unread or _serves_kubelet(evidence, runtime))
        ):
            return Diagnosis(
                what="containerd's configuration is version 1: nothing can be added to it by a drop-in, "
                "and 2.x does not read it",
                evidence=(
                    f"{runtime.config} has no `version`",
                    *(f"{path}: version 1 too, and not imported" for path in unread),
                ),
                command=f"containerd --config {quote(runtime.config)} config migrate > /root/config.toml; "
                "look at it, put it in place, "
                f"then systemctl restart {runtime.service} && {APPLY}",
            )
    return None


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
                evidence=tuple(f"{path} is not among the imports of {runtime.config}" for path in found),
                command=APPLY,
            )
    return None


def runc_missing(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in _containerds(evidence):
        names = runtime_files.handlers(runtime)
        if not names or "runc" in names or runtime_files.keeps_built_in(runtime) or _unread(runtime):
            continue
        if _is_made(runtime.config, evidence):
            continue
        default = runtime_files.default(runtime) or "runc"
        path = runtime_files.deciding_file(runtime)
        header = dotted((*cri_section(runtime.documents[path]), *RUNTIMES, "runc"))
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
    files, name = " ".join(map(quote, with_it)), re.escape(default)
    edit = f'/{key}/s/"{name}"/"{BUILT_IN[runtime.kind][0]}"/'
    return f"sed -i -E '{edit}' {files} && systemctl restart {runtime.service}"


def _mentions(runtime: RuntimeEvidence, path: str, default: str) -> bool:
    return (
        runtime_files.default(
            RuntimeEvidence(kind=runtime.kind, config=path, documents={path: runtime.documents[path]})
        )
        == default
    )


def handler_without_type(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in _containerds(evidence):
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


def template_without_base(evidence: NodeEvidence) -> Diagnosis | None:
    for template in evidence.templates:
        if template_cure.is_bare(template.text):
            name = template.distribution
            return Diagnosis(
                what=f"{name}'s template has nothing of {name}'s own configuration: "
                "CNI and registries are lost at its next start",
                evidence=(f"{template.path} has no {template_cure.BASE}", *_left_out(template)),
                command=template_cure.command(template.path, template.text, template.unit),
            )
    return None


def template_error(evidence: NodeEvidence) -> Diagnosis | None:
    """What is made of a template is not TOML, or nothing was made of it: then the distribution says why."""
    for template in evidence.templates:
        if not template_cure.is_bare(template.text) and (wrong := _wrong_with(template, evidence)):
            brief, details, in_base = wrong
            name = template.distribution
            return Diagnosis(
                what=brief,
                evidence=(*details, *(() if in_base else _left_out(template))),
                command=f"update {name}: the mistake is in its own template (k3s#8754: not in releases after "
                "1.25.15, 1.26.10, 1.27.7 and 1.28.3)"
                if in_base
                else template_cure.command(template.path, template.text, template.unit),
            )
    return None


def _wrong_with(
    template: TemplateEvidence, evidence: NodeEvidence
) -> tuple[str, tuple[str, ...], bool] | None:
    """What is wrong, how it was seen, and whether it is in the distribution's own template."""
    try:
        rendered(template.text, template.path, base=template.base)
    except InputError as error:
        return error.brief, tuple(error.details), False
    for source, lines in evidence.logs.items():
        told = [line for line in lines if TEMPLATE_FAILED.search(line) or CONTAINERD_STARTS.search(line)]
        found = TEMPLATE_FAILED.search(told[-1]) if told else None
        if found is not None:
            of_base = found["name"] == "base" or int(found["line"]) > len(template.text.splitlines())
            what = f"{template.distribution} does not start: it cannot make containerd's configuration"
            return what, (f"{source}: {told[-1].strip()}",), of_base
    return None


def _left_out(template: TemplateEvidence) -> tuple[str, ...]:
    """What the cure does not keep, for people."""
    keys = template_cure.left_out(template.text)
    own = f"{template.distribution}'s own values come back for"
    return (f"{own} {', '.join(map(dotted, keys))}",) if keys else ()


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
                command=f"{APPLY}; let that tool keep the file's `imports`, or watch it: "
                "driverctl toolkit run --reapply",
            )
    return None


def changed_runtime_down(evidence: NodeEvidence) -> Diagnosis | None:
    """Not in a dump, which has no processes."""
    for entry in evidence.journal if evidence.live else ():
        runtime = next((each for each in evidence.runtimes if each.config == entry.config), None)
        if runtime is None or runtime.runs:
            continue
        start = f"systemctl start {entry.supervisor.unit}" if entry.supervisor.unit else "start it"
        return Diagnosis(
            what=f"the {entry.kind} at {entry.socket}, which driverctl has changed, does not run",
            evidence=(
                *(f"{file.path} was changed by driverctl" for file in entry.files),
                *(f"{path} was changed again since" for path in evidence.rewritten.get(entry.config, ())),
            ),
            command=f"{start}; if it does not come up: driverctl runtime revert, which puts its files back "
            "and starts it",
        )
    return None


def change_refused(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        if runtime.refused is not None:
            return Diagnosis(
                what=f"{runtime.kind} did not accept driverctl's last change, on {runtime.refused.when}",
                evidence=runtime.refused.said,
                command=f"change what it names, then {APPLY}; to try the same again: {APPLY} --force",
            )
    return None


def not_in_force(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.runtimes:
        if runtime.reported is None or runtime.broken or _unread(runtime):
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
                command=f"systemctl restart {runtime.service}, in a quiet hour",
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
        command="put the handlers into the system's own machine configuration "
        "(driverctl runtime plan prints them)",
    )
