"""The table of rules: what `driverctl doctor` looks for, and docs/doctor.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driverforge_node.doctor import rules_node as node
from driverforge_node.doctor import rules_runtime as runtime
from driverforge_node.doctor.facts import Diagnosis, Facts, RuntimeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`symptom` is what people see, `cause` why; `issues` are upstream's reports of it, none where it was found by us."""

    id: str
    check: Callable[[Facts], Diagnosis | None]
    symptom: str
    cause: str
    issues: tuple[str, ...] = ()


def _rule(
    id_: str, check: Callable[[Facts], Diagnosis | None], symptom: str, cause: str, issues: str = ""
) -> Rule:
    return Rule(id=id_, check=check, symptom=symptom, cause=cause, issues=tuple(issues.split()))


# the ones that keep a node down come first
RULES: tuple[Rule, ...] = (
    _rule("drop-in-version", runtime.drop_in_version,
        "containerd does not start: `drop-in config version 4 higher than root config version 2`",
        "the drop-in was made from `containerd config dump`, which prints the newest version", "aicr#1688 aicr#1689 containerd#12891"),
    _rule("config-broken", runtime.config_broken, "the runtime does not start, or will not after its next restart",
        "a file is no TOML or JSON, or the runtime's own program refuses it", "gpu-operator#1323 gpu-operator#1367 toolkit#803"),
    _rule("cri-disabled", runtime.cri_disabled, "the kubelet says `unknown service runtime.v1.RuntimeService`",
        "docker's package of containerd ships `disabled_plugins = [\"cri\"]`", "toolkit#982 toolkit#1430 container-config#7"),
    _rule("runc-missing", runtime.runc_missing, "the CRI plugin does not load: `no corresponding runtime configured`; the node is NotReady",
        "containerd 1.x takes a file's table of runtimes instead of its built-in one", "k8s-device-plugin#1145 nvidia-docker#1788"),
    _rule("default-unknown", runtime.default_unknown, "no container starts",
        "a clean-up deleted the default runtime, or its name", "toolkit#1328 gpu-operator#188"),
    _rule("template-without-base", runtime.template_without_base, "after a restart of k3s or rke2, pods have no network or no registry",
        "a template of its own replaces the whole configuration", "gpu-operator#992 gpu-operator#623 gpu-operator#473 rke2#3385 k3s#13680"),
    _rule("restart-loop", node.restart_loop, "the node is NotReady again and again",
        "each start of the toolkit's pod restarts the runtime, which ends that pod",
        "gpu-operator#456 gpu-operator#594 toolkit#39 rke2#3723"),
    _rule("sighup-death", node.sighup_death, "containerd ends, and with rke2 the whole node's service",
        "NVIDIA's toolkit sends SIGHUP, on which containerd exits", "containerd#13285 containerd#13466 flatcar#1157"),
    _rule("wrapper-calls-itself", node.wrapper_calls_itself, "container starts hang; many processes of nvidia-container-runtime",
        "the toolkit took its own wrapper, the default runtime by then, for the low-level runtime"),
    _rule("restore-pending", node.restore_pending, "the runtime's configuration is not what was asked for",
        "driverctl was killed during a change; the node's own restore put the old files back, or is about to"),
    _rule("config-version-1", runtime.version_1, "the toolkit reports success, and there is no nvidia runtime",
        "a version 1 file takes no drop-in", "toolkit#1430"),
    _rule("drop-in-not-read", runtime.drop_in_not_read, "`no runtime for \"nvidia\" is configured`",
        "the drop-in is in a folder that no `imports` names", "toolkit#1404 toolkit#1407"),
    _rule("handler-without-type", runtime.handler_without_type, "sandboxes of the handler cannot be made",
        "the options that were copied had no runtime_type", "toolkit#1956"),
    _rule("config-overwritten", runtime.config_overwritten, "GPU pods fail since somebody ran kubespray",
        "another tool writes the whole file", "gpu-operator#598 gpu-operator#207"),
    _rule("journal-unfinished", node.journal_unfinished, "a revert is refused or incomplete",
        "driverctl was killed during a change, or its journal was damaged"),
    _rule("not-in-force", runtime.not_in_force, "`no runtime for \"nvidia\" is configured`, though the files have it",
        "the runtime was not restarted since (RUNTIME_RESTART_MODE=none)", "gpu-operator#594 gpu-operator#399"),
    _rule("mixed-runtimes", runtime.mixed_runtimes, "pods find no nvidia runtime, while docker or another containerd has it",
        "another runtime of the node was configured than the kubelet's", "home-ops#14313 gpu-operator#1529 toolkit#982"),
    _rule("folder-read-only", runtime.folder_read_only, "the toolkit cannot make /etc/containerd/conf.d",
        "the system's /etc is read-only", "gpu-operator#2382 gpu-operator#2731"),
    _rule("programs-missing", node.programs_missing, "`exec: nvidia-container-runtime: no such file or directory`",
        "the toolkit was removed, and the handlers stayed", "gpu-operator#188 gpu-operator#494 container-config#8"),
    _rule("low-level-missing", node.low_level_missing, "containers with GPUs do not start: no low-level runtime",
        "runc or crun is at a path of its own (CRI-O: /usr/libexec/crio)", "gpu-operator#984"),
    _rule("spec-unresolvable", node.spec_unresolvable, "`unresolvable CDI devices`",
        "runtimes skip a broken spec, and a device that two specs have", "gpu-operator#531 toolkit#1239 dra#1144"),
    _rule("spec-missing", node.spec_missing, "`unresolvable CDI devices management.nvidia.com/gpu=…`",
        "the mode is cdi, and the spec was never written or is gone", "gpu-operator#531 toolkit#1239"),
    _rule("spec-of-other-driver", node.spec_of_other_driver, "`driver/library version mismatch` in containers",
        "the spec is from before the driver was installed again", "toolkit#1611 toolkit#1982 AgentBaker#8736"),
    _rule("spec-with-wrong-major", node.spec_with_wrong_major, "nvidia-smi works in a container, CUDA does not",
        "the major of nvidia-uvm is another one after each boot", "toolkit#1828 toolkit#856"),
    _rule("spec-paths-gone", node.spec_paths_gone, "`failed to stat CDI host device`, or a mount fails",
        "the spec was written before the devices were there, or MIG changed since", "toolkit#1611 NemoClaw#4733"),
    _rule("links-missing", node.links_missing, "`Failed to initialize NVML: Unknown Error` in a container that worked before",
        "at a daemon-reload systemd sets device rules anew, and finds devices by /dev/char only",
        "toolkit#48 toolkit#251 toolkit#1227 gpu-operator#485"),
    _rule("stale-ready", node.stale_ready, "operands start before the toolkit is there",
        "/run/nvidia/validations outlives the pod that wrote it", "gpu-operator#2264"),
    _rule("selinux-denials", node.selinux_denials, "`Insufficient Permissions`, or a library cannot be loaded",
        "no policy lets containers use the devices", "nvidia-container-runtime#42 toolkit#580 gpu-operator#452"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    rule: Rule
    diagnosis: Diagnosis


def examine(facts: Facts) -> tuple[Found, ...]:
    """All that the rules say, the worst first."""
    diagnoses = ((rule, rule.check(facts)) for rule in RULES)
    return tuple(Found(rule=rule, diagnosis=diagnosis) for rule, diagnosis in diagnoses if diagnosis)


def looked_at(facts: Facts) -> tuple[str, ...]:
    """What there was to judge: that nothing was found says little of a node on which nothing is."""
    runtimes = tuple(
        f"{runtime.kind} ({runtime.config}{_life(runtime) if facts.live else ''})"
        for runtime in facts.runtimes
    )
    return (
        *(runtimes or ("no container runtime: neither a process nor its files",)),
        "a kubelet" if facts.kubelet else "no kubelet",
        f"{len(facts.specs)} CDI spec file{'' if len(facts.specs) == 1 else 's'}",
        f"driver {facts.driver}" if facts.driver else "no loaded driver",
        facts.toolkit.folder if facts.toolkit.there else f"no toolkit in {facts.toolkit.folder}",
    )


def _life(runtime: RuntimeFacts) -> str:
    if not runtime.runs:
        return ": does not run"
    return ": runs, serves no pods" if runtime.reported is None else ": answers"


def as_text(found: tuple[Found, ...], facts: Facts) -> str:
    return f"{_findings(found)}\n\nlooked at: {'; '.join(looked_at(facts))}"


def _findings(found: tuple[Found, ...]) -> str:
    if not found:
        return f"nothing found: none of {len(RULES)} known problems shows on this node"
    parts = []
    for one in found:
        lines = [f"{one.rule.id}: {one.diagnosis.what}", *(f"  | {line}" for line in one.diagnosis.evidence)]
        lines.append(f"  next: {one.diagnosis.command}")
        if one.rule.issues:
            lines.append(f"  see:  {', '.join(one.rule.issues)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def as_document(found: tuple[Found, ...], facts: Facts) -> dict[str, object]:
    """For --json; keys stay."""
    return {
        "schema": 1,
        "rules": len(RULES),
        "looked_at": list(looked_at(facts)),
        "found": [
            {
                "id": one.rule.id, "what": one.diagnosis.what, "evidence": list(one.diagnosis.evidence),
                "next": one.diagnosis.command, "issues": list(one.rule.issues),
            }
            for one in found
        ],
    }  # fmt: skip


def page() -> str:
    """docs/doctor.md, in full."""
    lines = [
        "# What is wrong with this node?",
        "",
        "    driverctl doctor                    # on the node, or in a privileged pod with hostPID",
        "    driverctl doctor --root DIR         # a copy of a node's files, as must-gather makes it; no process is asked or started",
        "    driverctl doctor --json",
        "",
        "Looks for known problems of the container runtime, CDI specs and the toolkit. Each that shows is printed with its",
        "evidence and the next command; nothing is changed. The last line says what there was to look at: a runtime that does not run",
        "is named there. Exit status 0: nothing found; 1: something was; others: the look failed (77: it needs root).",
        "CDI specs of kinds that `driverctl cdi generate` does not write are left to the tool that wrote them.",
        "",
        "Of a dump, the files count that are at their places below DIR: `etc/containerd`, `etc/crio`, `etc/docker`, `etc/cdi`,",
        "`var/run/cdi`, `var/lib/rancher`, `var/lib/kubelet`, `var/lib/driverforge`, `usr/local/nvidia`, `run/nvidia`, `proc/devices`,",
        "`sys/module/nvidia/version`, `var/log`. `--log FILE` adds a log from elsewhere (`journalctl -u containerd > FILE`). What a",
        "dump cannot show (which handlers the running process has, device files, links in /dev/char) is not judged.",
        "",
        "| id | what is seen | cause | upstream |",
        "|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| `{rule.id}` | {rule.symptom} | {rule.cause} | {', '.join(rule.issues) or 'found by us'} |"
        for rule in RULES
    ]
    lines += [
        "",
        "`toolkit` is NVIDIA/nvidia-container-toolkit, `dra` NVIDIA/k8s-dra-driver-gpu. A running node can be watched for the same:",
        "[watch.md](watch.md). This page is generated from `entrypoints/driverforge_node/doctor/catalogue.py` by `hack/environment-page`.",
    ]
    return "\n".join(lines) + "\n"
