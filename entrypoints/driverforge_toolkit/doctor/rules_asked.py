"""Rules on what containers ask of a runtime, and do not get from its files or its logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from driverforge_toolkit.cdi import remedy
from driverforge_toolkit.doctor import rules_node, rules_runtime, rules_versions, runtime_files
from driverforge_toolkit.doctor.evidence import APPLY, Diagnosis, NodeEvidence, RuntimeEvidence
from driverforge_toolkit.runtime.backends.containerd_config import (
    CGROUP,
    RUNTIMES,
    cri_section,
    options_of,
    runtimes_of,
)
from driverforge_toolkit.runtime.backends.hidden_section import Missing, deciding_file, missing_in
from driverforge_toolkit.runtime.formats.spelling import settled
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import lookup, put
from driverforge_toolkit.runtime.model import RUNC
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

SHOWN = 5
# containerd's words (internal/cri/config), and CRI-O's (server/runtime_oci.go)
REFUSED = re.compile(
    r'no runtime for \\*"(?P<containerd>[\w.-]+)\\*" is configured'
    r"|failed to find runtime handler (?P<crio>[\w.-]+) from runtime list"
)
UNRESOLVED = re.compile(r"unresolvable CDI devices (\S+?(?:, \S+?)*)(?=[\s\"\\]|$)")
STARTED = re.compile(r'msg="starting containerd"|Starting CRI-O, version')


def handler_asked(evidence: NodeEvidence) -> Diagnosis | None:
    """Of a runtime whose process says what it has, or of which another rule knows more, nothing."""
    known = (rules_runtime.drop_in_not_read, rules_runtime.config_overwritten, rules_runtime.mixed_runtimes)
    if any(rule(evidence) for rule in known):
        return None
    for runtime in evidence.runtimes:
        if runtime.reported is not None or runtime.broken or rules_versions.drop_in_version(evidence):
            continue
        line, name = next(_refusals(evidence, runtime.kind), ("", ""))
        if not name:
            continue
        stated = name in runtime_files.handlers(runtime)
        return Diagnosis(
            what=f"a container asked {runtime.kind} for the handler {name}, "
            + ("which its files have, and it had not" if stated else "which none of its files has"),
            evidence=(line,),
            command=f"systemctl restart {runtime.service}  # in a quiet hour" if stated else APPLY,
        )
    return None


def _refusals(evidence: NodeEvidence, kind: str) -> Iterator[tuple[str, str]]:
    """Log lines since the last start that refuse a handler of NVIDIA's, each with its name."""
    for source, lines in evidence.logs.items():
        for line in _since_start(lines):
            found = REFUSED.search(line)
            name = found.groupdict().get(kind) if found else None
            if name and is_nvidia(name, ""):
                yield f"{source}: {line.strip()}", name


def _since_start(lines: Sequence[str]) -> Sequence[str]:
    starts = [number for number, line in enumerate(lines) if STARTED.search(line)]
    return lines[starts[-1] + 1 :] if starts else lines


def device_asked(evidence: NodeEvidence) -> Diagnosis | None:
    """A CDI device that a runtime did not find, and that no spec has now."""
    if any(rule(evidence) for rule in (rules_node.spec_unresolvable, rules_node.spec_missing)):
        return None
    known = {name for file in evidence.specs for name in file.names}
    asked = {
        name: f"{source}: {line.strip()}"
        for source, lines in evidence.logs.items()
        for line in _since_start(lines)
        if (found := UNRESOLVED.search(line))
        for name in found[1].split(", ")
        if name not in known and name.partition("/")[0].endswith("nvidia.com")
    }
    if not asked:
        return None
    name, line = next(iter(asked.items()))
    kind, _, device = name.partition("=")
    has = sorted(one.partition("=")[2] for one in known if one.startswith(f"{kind}="))
    return Diagnosis(
        what=f"a container asked for the CDI device {name}, which no spec has",
        evidence=(line, f"specs of {kind} have: {', '.join(has[:SHOWN]) or 'nothing, for there is none'}"),
        command=_device_made(kind, device, has=bool(has)),
    )


def _device_made(kind: str, device: str, *, has: bool) -> str:
    if kind.startswith("management.") and device != "all":
        # NVIDIA's runtime adds its default kind to what NVIDIA_VISIBLE_DEVICES names (toolkit#1895)
        return (
            "# only the operator's own pods ask for this kind: give others no runtimeClassName, or a runtime "
            "with another default kind"
        )
    if not remedy.is_ours(kind):
        return f"# let the tool that writes {kind} write its spec {'again' if has else ''}".rstrip()
    return remedy.write_command(kind, "/var/run/cdi")


def settings_hidden(evidence: NodeEvidence) -> Diagnosis | None:
    if rules_runtime.runc_missing(evidence) or rules_versions.drop_in_version(evidence):
        return None
    for runtime in evidence.containerds:
        missing = None if runtime_files.merges_keys(runtime) else missing_in(runtime.documents, runtime.texts)
        if missing is None or _one_section(runtime) or _is_built_in(missing, runtime):
            continue
        ours = any(missing.path in (file.path for file in entry.files) for entry in evidence.journal)
        lines = [line for line in missing.text.splitlines() if line.strip()]
        hidden = [f"{'.'.join(key[-2:])} is hidden, too" for key in missing.hidden]
        append = f"{missing.command()} && systemctl restart {runtime.service}"
        return Diagnosis(
            what=f"containerd before 2.1 takes its CRI section from {missing.path} alone: "
            "settings of the other files are not in force",
            evidence=(*lines[:SHOWN], *hidden),
            command=APPLY if ours else append,
        )
    return None


def _is_built_in(missing: Missing, runtime: RuntimeEvidence) -> bool:
    """Whether nothing is hidden, or what containerd 2.0 has without any file."""
    document = parse(missing.text.encode(), missing.path)
    runc: dict[str, object] = {}
    if runtime_files.keeps_built_in(runtime):
        put(runc, (*cri_section(document), *RUNTIMES, "runc", "runtime_type"), RUNC)
    return document in ({}, runc) and not missing.hidden


def _one_section(runtime: RuntimeEvidence) -> bool:
    sections = [
        path
        for path, document in runtime.documents.items()
        if isinstance(lookup(document, cri_section(document)), Mapping)
    ]
    return len(sections) < 2 or deciding_file(runtime.documents) != sections[-1]


def other_cgroups(evidence: NodeEvidence) -> Diagnosis | None:
    """Handlers of NVIDIA's without the SystemdCgroup that runc has.

    Not the other way round: where runc lacks it, the kubelet may have followed the default handler.
    """
    for runtime in evidence.containerds:
        any_case = runtime_files.keeps_built_in(runtime)
        systemd = {
            name: settled(options_of(table), any_case=any_case).get(CGROUP) is True
            for name, table in runtimes_of(runtime_files.effective(runtime)).items()
            if isinstance(table, Mapping) and table.get("runtime_type") == RUNC
        }
        lacking = [name for name, has in systemd.items() if is_nvidia(name, "") and not has]
        if lacking and systemd.get("runc"):
            return Diagnosis(
                what=f"{', '.join(lacking)} lacks runc's SystemdCgroup: "
                "its pods are in control groups where their limits do not hold, and may be ended",
                evidence=("runc: SystemdCgroup = true", *(f"{name}: not" for name in lacking)),
                command=APPLY,
            )
    return None


def spec_folder(evidence: NodeEvidence) -> Diagnosis | None:
    """Folders of specs that a runtime is told not to read; one of a kind that it has elsewhere is no loss."""
    for runtime in evidence.runtimes:
        key, stated = _spec_folders(runtime)
        if not stated:
            continue
        read = {folder.removeprefix("/var") for folder in stated}
        specs = [file for file in evidence.specs if file.spec]
        had = {name for file in specs if file.folder.removeprefix("/var") in read for name in file.names}
        lost = [
            file
            for file in specs
            if file.folder.removeprefix("/var") not in read and not had.issuperset(file.names)
        ]
        if lost:
            folders = " and ".join(dict.fromkeys(file.folder for file in lost))
            return Diagnosis(
                what=f"{runtime.kind} does not read the folder of a CDI spec: its devices cannot be resolved",
                evidence=(
                    f"{key} = {', '.join(stated)}",
                    *(f"{file.path} is there" for file in lost[:SHOWN]),
                ),
                command=f"# add {folders} to {key} in {runtime.config} or what it imports, then: "
                f"systemctl restart {runtime.service}",
            )
    return None


def _spec_folders(runtime: RuntimeEvidence) -> tuple[str, tuple[str, ...]]:
    """The setting that names the folders of specs, and these; none where the runtime has its own."""
    view = runtime_files.effective(runtime)
    if runtime.kind == "containerd":
        key = (*cri_section(view), "cdi_spec_dirs") if runtime_files.injects_cdi(runtime) else ()
    else:
        key = ("cdi-spec-dirs",) if runtime.kind == "docker" else ("crio", "runtime", "cdi_spec_dirs")
    found = lookup(view, key) if key else None
    names = tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()
    return key[-1] if key else "", names
