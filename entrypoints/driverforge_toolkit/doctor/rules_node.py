"""Rules on CDI specs, device links, the toolkit's files, driverctl's own state, and the logs.

All are pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from shlex import quote

from driverforge_core.errors import InputError
from driverforge_toolkit.cdi import readers, remedy
from driverforge_toolkit.cdi.conformance import minimum_version
from driverforge_toolkit.cdi.spec import Spec
from driverforge_toolkit.cdi.specfiles import SpecFile
from driverforge_toolkit.cdi.stale import driver_version
from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import Diagnosis, NodeEvidence

INSTALL = "driverctl toolkit install"
TOLD = "# "  # begins what is no command
MANY = 3  # restarts of one unit that are no coincidence
HANGUP = re.compile(
    r"containerd(?:\.service)?\b.*(?:status=1/HUP|status=129|signal: hangup)|(?:k3s"
    r"|rke2).*containerd.*signal: hangup",
    re.IGNORECASE,
)
COUNTER = re.compile(r"(\S+\.service): Scheduled restart job, restart counter is at (\d+)")
TOO_QUICK = re.compile(
    r"((?:containerd|crio|docker|k3s\S*|rke2\S*|k0s\S*)\.service): Start request repeated too quickly"
)
RUNTIME_UNIT = re.compile(r"(?:containerd|crio|docker|k3s|rke2|k0s)")
DENIED = re.compile(r"avc:\s+denied\b.*nvidia|avc:\s+denied\b.*xserver_misc_device_t", re.IGNORECASE)
SHOWN = 5  # log lines that are shown
# the driver's other majors are fixed, or their files are made again with each load
NODE_OWNERS = (("/dev/nvidia-caps/", "nvidia-caps"), ("/dev/nvidia-uvm", "nvidia-uvm"))


def _nvidia(evidence: NodeEvidence) -> Iterator[SpecFile]:
    """Specs of NVIDIA's devices that can be read."""
    for file in evidence.specs:
        if file.spec and file.spec.kind.partition("/")[0].endswith("nvidia.com"):
            yield file


def _rewrite(evidence: NodeEvidence, paths: Iterable[str]) -> list[str]:
    """What writes each of these specs again, at its place."""
    specs = {file.path: file.spec for file in evidence.specs if file.spec}
    return [
        _rewritten(specs.get(path), path, evidence.gone.get(path, ()), evidence.hook_program)
        for path in dict.fromkeys(paths)
    ]


def _rewritten(spec: Spec | None, path: str, gone: Collection[str], hook: str) -> str:
    plugin = spec is not None and spec.kind.startswith("k8s.device-plugin.")
    if plugin and hook and any(name.endswith(("/nvidia-ctk", "/nvidia-cdi-hook")) for name in gone):
        return (
            f"{TOLD}for the device plugin: NVIDIA_CDI_HOOK_PATH={hook} (devicePlugin.env of a ClusterPolicy)"
        )
    return (
        remedy.rewrite_command(spec.kind, path, options=remedy.generate_options(spec, gone=gone))
        if spec
        else remedy.command_for_unreadable(path)
    )


def _joined(commands: Iterable[str]) -> str:
    """Commands one after another, and behind them what only another tool can do."""
    every = tuple(commands)
    behind = (remedy.OTHERS, TOLD)
    told = "; ".join(command.removeprefix(TOLD) for command in every if command.startswith(behind))
    run = "; ".join(command for command in every if not command.startswith(behind))
    return "  ".join(filter(None, [run, f"# {told}" if told else ""]))


def spec_of_other_driver(evidence: NodeEvidence) -> Diagnosis | None:
    others = {file.path: driver_version(file.spec) for file in _nvidia(evidence) if file.spec}
    wrong = {
        path: version
        for path, version in others.items()
        if version and evidence.driver and version != evidence.driver
    }
    if not wrong:
        return None
    installed = set(wrong.values()) & evidence.libraries
    if installed and evidence.driver not in evidence.libraries:
        return Diagnosis(
            what=f"the driver {min(installed)} was installed, and {evidence.driver} is still loaded: "
            "containers get libraries that do not match it",
            evidence=tuple(f"{path}: {version}" for path, version in wrong.items()),
            command="# reboot the node; where a driver container brings it: drain, and delete that pod",
        )
    return Diagnosis(
        what="a CDI spec is for another driver version than the loaded one: "
        "containers get libraries that do not match it",
        evidence=(f"loaded: {evidence.driver}", *(f"{path}: {version}" for path, version in wrong.items())),
        command=_joined(_rewrite(evidence, wrong)),
    )


def spec_without_devices(evidence: NodeEvidence) -> Diagnosis | None:
    bare = [
        file.path
        for file in _nvidia(evidence)
        if file.spec
        and driver_version(file.spec)
        and not any(each.device_nodes for each in file.spec.all_edits)
    ]
    if not bare:
        return None
    return Diagnosis(
        what="a CDI spec has the driver's libraries and no device file: no GPU is seen in its containers",
        evidence=tuple(f"{path} names no file of /dev" for path in bare),
        command=_joined([*_devices("nodes", ["/"]), *_rewrite(evidence, bare)]),
    )


def spec_with_wrong_major(evidence: NodeEvidence) -> Diagnosis | None:
    lines: dict[str, str] = {}
    roots: list[str] = []
    for file in _nvidia(evidence):
        for node in (
            node for edits in (file.spec.all_edits if file.spec else ()) for node in edits.device_nodes
        ):
            owner = next((name for start, name in NODE_OWNERS if node.path.startswith(start)), "")
            major = evidence.majors.get(owner)
            if node.major and major is not None and node.major != major:
                lines[
                    f"{node.path} is {node.major}:{node.minor} in {file.path}, "
                    f"{owner} has the major {major} in /proc/devices"
                ] = file.path
                roots.append(remedy.dev_root(node) or "/")
    if not lines:
        return None
    return Diagnosis(
        what="a CDI spec has device numbers of an earlier boot or module load: "
        "CUDA does not start in containers",
        evidence=tuple(lines),
        command=_joined([*_devices("nodes", roots), *_rewrite(evidence, lines.values())]),
    )


def spec_paths_gone(evidence: NodeEvidence) -> Diagnosis | None:
    found = {path: gone for path, gone in evidence.gone.items() if gone}
    if not found:
        return None
    lines = [
        f"{path}: {', '.join(gone[:SHOWN])}{' and more' if len(gone) > SHOWN else ''}"
        for path, gone in found.items()
    ]
    return Diagnosis(
        what="a CDI spec names files of the node that are not there: "
        "containers with its devices do not start",
        evidence=tuple(lines),
        command=_joined(_rewrite(evidence, found)),
    )


def spec_unresolvable(evidence: NodeEvidence) -> Diagnosis | None:
    broken = [file for file in evidence.specs if file.spec is None]
    seen: dict[str, SpecFile] = {}
    twice = []
    for file in _nvidia(evidence):
        for name in file.names:
            other = seen.setdefault(name, file)
            if other is not file and other.folder == file.folder:
                twice.append((name, other.path, file.path))
    if not broken and not twice:
        return None
    lines = [f"{file.path}: {'; '.join(file.problems)}" for file in broken]
    lines += [f"{name} is in {first} and in {second}" for name, first, second in twice]
    bad = [*(file.path for file in broken), *dict.fromkeys(second for _, _, second in twice)]
    return Diagnosis(
        what="CDI devices cannot be resolved: a spec cannot be read, "
        "or two specs of one folder have the same device",
        evidence=tuple(lines),
        command=_joined(
            [
                f"mv {' '.join(map(quote, bad))} /root/",
                *(remedy.command_for_unreadable(file.path) for file in broken),
            ]
        ),
    )


def spec_version(evidence: NodeEvidence) -> Diagnosis | None:
    for runtime in evidence.containerds:
        if not runtime_files.injects_cdi(runtime):
            continue
        reads = readers.newest_read(runtime.version)
        newer = [file for file in evidence.specs if file.spec and readers.is_newer(file.spec.version, reads)]
        if newer:
            release = ".".join(map(str, runtime.version))
            known = f"versions up to {reads}" if reads else "no CDI at all"
            return Diagnosis(
                what=f"a CDI spec has a newer version than containerd {release} reads: "
                "its devices cannot be resolved",
                evidence=(
                    f"containerd {release}, as its project builds it, reads {known}",
                    *(f"{file.path}: cdiVersion {file.spec.version}" for file in newer if file.spec),
                ),
                command=_joined(_readable(file, reads) for file in newer),
            )
    return None


def _readable(file: SpecFile, reads: str) -> str:
    """What gives a spec the version that its content needs, where that is enough."""
    least = minimum_version(file.spec) if file.spec else ""
    if reads and not readers.is_newer(least, reads):
        return f"""sed -i -E 's/("?cdiVersion"?: *"?)[0-9.]+/\\1{reads}/' {quote(file.path)}"""
    return f"{TOLD}update containerd to {readers.first_reader(least)} or later, for {file.path}"


def spec_missing(evidence: NodeEvidence) -> Diagnosis | None:
    toolkit = evidence.toolkit
    wanted = toolkit.default_kind or "nvidia.com/gpu"
    if toolkit.mode != "cdi" or any(file.spec and file.spec.kind == wanted for file in evidence.specs):
        return None
    kinds = sorted({file.spec.kind for file in evidence.specs if file.spec}) or ["none"]
    try:
        command = remedy.write_command(wanted, "/var/run/cdi")
    except InputError:
        command = (
            f"# write VENDOR/CLASS as nvidia-container-runtime.modes.cdi.default-kind into {toolkit.config}, "
            "as nvidia.com/gpu"
        )
    return Diagnosis(
        what=f"the toolkit's mode is cdi, and no CDI spec has {wanted}: "
        "`unresolvable CDI devices` at every container's start",
        evidence=(f'{toolkit.config}: mode = "cdi"', f"kinds of specs that are there: {', '.join(kinds)}"),
        command=command,
    )


def links_missing(evidence: NodeEvidence) -> Diagnosis | None:
    systemd = [runtime for runtime in evidence.runtimes if runtime_files.systemd_cgroups(runtime)]
    if not evidence.unlinked or not systemd:
        return None
    shown = evidence.unlinked[:SHOWN]
    return Diagnosis(
        what="devices lack their links in /dev/char, and systemd keeps the control groups: "
        "a daemon-reload takes GPUs from containers",
        evidence=(
            f"{systemd[0].kind} uses systemd's control groups",
            *(f"/dev/char has no {name}" for name in shown),
        ),
        command=_joined(_devices("links", _roots(evidence.unlinked))),
    )


def _roots(unlinked: Iterable[str]) -> list[str]:
    """Dev roots whose devices have to be linked. Several have files of one number: the first one's do."""
    first: dict[str, str] = {}
    for number, _, path in (name.partition(" for ") for name in unlinked):
        first.setdefault(number, path.partition("/dev/")[0] or "/")
    return list(first.values())


def _devices(action: str, roots: Iterable[str]) -> list[str]:
    """`driverctl devices` for each of the dev roots: in a pod its own default is another one."""
    return [f"driverctl devices {action} --dev-root {quote(root)}" for root in dict.fromkeys(roots)]


def programs_missing(evidence: NodeEvidence) -> Diagnosis | None:
    if not evidence.missing_programs:
        return None
    return Diagnosis(
        what="handlers refer to programs that are not on the node: containers with them do not start",
        evidence=tuple(f"{program} is not there" for program in evidence.missing_programs),
        command=f"{INSTALL}  # or take the handlers out: driverctl runtime revert --strip",
    )


def wrapper_calls_itself(evidence: NodeEvidence) -> Diagnosis | None:
    if not evidence.toolkit.own:
        return None
    return Diagnosis(
        what="NVIDIA's runtime has itself as its low-level runtime: container starts hang for ever",
        evidence=tuple(f"{evidence.toolkit.config}: runtimes has {name}" for name in evidence.toolkit.own),
        command=f"{INSTALL} --nvidia-container-runtime.runtimes runc,crun",
    )


def low_level_missing(evidence: NodeEvidence) -> Diagnosis | None:
    toolkit = evidence.toolkit
    if not toolkit.low_level or set(toolkit.low_level) != set(toolkit.absent):
        return None
    stated = [name for runtime in evidence.runtimes for name in runtime_files.low_level(runtime)]
    named = [name for name in dict.fromkeys(stated) if name not in toolkit.absent]
    return Diagnosis(
        what="none of the low-level runtimes of NVIDIA's runtime is on the node",
        evidence=tuple(f"{toolkit.config}: {name} is not there" for name in toolkit.absent),
        command=f"{INSTALL} --nvidia-container-runtime.runtimes {','.join(map(quote, named))}"
        if named
        else f"# install runc, or name what is there: {INSTALL} --nvidia-container-runtime.runtimes PATH",
    )


def stale_ready(evidence: NodeEvidence) -> Diagnosis | None:
    if "toolkit-ready" not in evidence.ready:
        return None
    why = [] if evidence.toolkit.there else [f"{evidence.toolkit.folder} is not there"]
    if "driver-ready" not in evidence.ready:
        why.append("there is no driver-ready beside it")
    if not why:
        return None
    return Diagnosis(
        what="the file toolkit-ready is left from an earlier start: pods that wait for it start too early",
        evidence=("/run/nvidia/validations/toolkit-ready is there", *why),
        command="rm /run/nvidia/validations/toolkit-ready",
    )


def restore_pending(evidence: NodeEvidence) -> Diagnosis | None:
    pending = [restore for restore in evidence.restores if not restore.watched]
    if not pending:
        return None
    lines = [
        line
        for restore in pending
        for line in (f"{restore.path}: {restore.state.value}", *restore.log[-SHOWN:])
    ]
    return Diagnosis(
        what="a driverctl was killed while it changed the runtime, "
        "and the node's own restore is pending or done",
        evidence=tuple(lines),
        command="driverctl runtime apply  # finishes the change; to undo it: driverctl runtime revert",
    )


def journal_unfinished(evidence: NodeEvidence) -> Diagnosis | None:
    if evidence.journal_problem:
        # as the error says it: "the journal entry PATH is damaged"
        damaged = next((word for word in evidence.journal_problem[0].split() if word.startswith("/")), "")
        return Diagnosis(
            what="driverctl's journal is damaged: a revert cannot be exact",
            evidence=evidence.journal_problem,
            command=f"mv {quote(damaged)} /root/ && driverctl runtime revert --strip",
        )
    left = [
        entry
        for entry in evidence.journal
        if entry.state == "prepared" or (entry.state == "written" and entry.restore)
    ]
    if not left or evidence.lock_held or evidence.restores:
        return None
    return Diagnosis(
        what="a driverctl was killed while it changed the runtime",
        evidence=tuple(f"the journal says of {entry.config}: {entry.state}" for entry in left),
        command="driverctl runtime apply  # finishes the change; to undo it: driverctl runtime revert",
    )


def sighup_death(evidence: NodeEvidence) -> Diagnosis | None:
    lines = _matching(evidence, HANGUP)
    if not lines:
        return None
    return Diagnosis(
        what="somebody sent containerd SIGHUP, which ends it: it has no reload",
        evidence=tuple(lines[-SHOWN:]),
        command="driverctl runtime apply  # restarts the unit; or for NVIDIA's toolkit: "
        "RUNTIME_RESTART_MODE=systemd",
    )


def restart_loop(evidence: NodeEvidence) -> Diagnosis | None:
    lines = _matching(evidence, TOO_QUICK)
    for line in _matching(evidence, COUNTER):
        found = COUNTER.search(line)
        if found and RUNTIME_UNIT.match(found[1]) and int(found[2]) >= MANY:
            lines.append(line)
    if not lines:
        return None
    return Diagnosis(
        what="the container runtime is restarted again and again",
        evidence=tuple(lines[-SHOWN:]),
        command="driverctl runtime revert  # then read why it ended: "
        f"journalctl -u {_unit(lines[-1])} -n 100",
    )


def _unit(line: str) -> str:
    found = COUNTER.search(line) or TOO_QUICK.search(line)
    return found[1] if found else "containerd"


def selinux_denials(evidence: NodeEvidence) -> Diagnosis | None:
    lines = _matching(evidence, DENIED)
    if not lines:
        return None
    return Diagnosis(
        what="SELinux keeps containers from NVIDIA's devices or files",
        evidence=tuple(lines[-SHOWN:]),
        command="setsebool -P container_use_devices on",
    )


def _matching(evidence: NodeEvidence, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{source}: {line.strip()}"
        for source, lines in evidence.logs.items()
        for line in lines
        if pattern.search(line)
    ]
