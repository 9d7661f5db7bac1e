"""The table of rules: what `driverctl doctor` looks for, and docs/doctor.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driverforge_toolkit.doctor import rules_asked, rules_node, rules_runtime, rules_template, rules_versions
from driverforge_toolkit.doctor.evidence import Diagnosis, NodeEvidence, RuntimeEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A known problem: what people see, why, and upstream's reports of it.

    Without `issues` it was found by us.
    """

    id: str
    check: Callable[[NodeEvidence], Diagnosis | None]
    symptom: str
    cause: str
    issues: tuple[str, ...] = ()


# the ones that keep a node down come first
RULES: tuple[Rule, ...] = (
    Rule(
        id="drop-in-version",
        check=rules_versions.drop_in_version,
        symptom="containerd does not start: `drop-in config version 4 higher than root config version 2`",
        cause="the drop-in was made from `containerd config dump`, which prints the newest version; "
        "2.3.0 to 2.3.4 refuse it, older ones lose settings, later ones take it",
        issues=("aicr#1688", "aicr#1689", "containerd#12891", "containerd#13939"),
    ),
    Rule(
        id="config-broken",
        check=rules_runtime.config_broken,
        symptom="the runtime does not start, or will not after its next restart",
        cause="a file is not valid TOML or JSON, or the runtime's own program refuses it",
        issues=("gpu-operator#1323", "gpu-operator#1367", "toolkit#803"),
    ),
    Rule(
        id="restart-doomed",
        check=rules_runtime.restart_doomed,
        symptom="the runtime runs, and does not come back from its next restart; or it is down since then",
        cause="a file that it reads at its start was changed since: an import or a base_runtime_spec that is "
        "gone, a spec that is no JSON, `mirrors` beside `config_path`",
    ),
    Rule(
        id="changed-runtime-down",
        check=rules_runtime.changed_runtime_down,
        symptom="the node is NotReady, and no runtime answers",
        cause="the runtime ended after driverctl changed it, for that change or for anything else",
    ),
    Rule(
        id="cri-disabled",
        check=rules_runtime.cri_disabled,
        symptom="the kubelet says `unknown service runtime.v1.RuntimeService`",
        cause='docker\'s package of containerd ships `disabled_plugins = ["cri"]`',
        issues=("toolkit#982", "toolkit#1430", "container-config#7"),
    ),
    Rule(
        id="runc-missing",
        check=rules_runtime.runc_missing,
        symptom="the CRI plugin does not load: `no corresponding runtime configured`; the node is NotReady",
        cause="containerd 1.x takes a file's table of runtimes instead of its built-in one",
        issues=("k8s-device-plugin#1145", "nvidia-docker#1788"),
    ),
    Rule(
        id="default-unknown",
        check=rules_runtime.default_unknown,
        symptom="no container starts",
        cause="a clean-up deleted the default runtime, or its name",
        issues=("toolkit#1328", "gpu-operator#188"),
    ),
    Rule(
        id="template-without-base",
        check=rules_template.template_without_base,
        symptom="after a restart of k3s or rke2, pods have no network or no registry",
        cause="a template of its own replaces the whole configuration",
        issues=(
            "gpu-operator#992",
            "gpu-operator#1371",
            "gpu-operator#623",
            "gpu-operator#473",
            "rke2#3385",
        ),
    ),
    Rule(
        id="template-error",
        check=rules_template.template_error,
        symptom="k3s or rke2 or its containerd does not start: `template: compiled_template:119:21`",
        cause="the template repeats a part of the distribution's own, or asks for what its release has not",
        issues=("k3s#8754", "rke2#4984"),
    ),
    Rule(
        id="restart-loop",
        check=rules_node.restart_loop,
        symptom="the node is NotReady again and again",
        cause="each start of the toolkit's pod restarts the runtime, which ends that pod",
        issues=("gpu-operator#456", "gpu-operator#594", "toolkit#39", "rke2#3723"),
    ),
    Rule(
        id="sighup-death",
        check=rules_node.sighup_death,
        symptom="containerd ends, and with rke2 the whole node's service",
        cause="NVIDIA's toolkit sends SIGHUP, on which containerd exits",
        issues=("containerd#13285", "containerd#13466", "flatcar#1157"),
    ),
    Rule(
        id="wrapper-calls-itself",
        check=rules_node.wrapper_calls_itself,
        symptom="container starts hang; many processes of nvidia-container-runtime",
        cause="the toolkit took its own wrapper, the default runtime by then, for the low-level runtime",
    ),
    Rule(
        id="restore-pending",
        check=rules_node.restore_pending,
        symptom="the runtime's configuration is not what was asked for",
        cause="driverctl was killed during a change; the node's own restore put the old files "
        "back, or is about to",
    ),
    Rule(
        id="change-refused",
        check=rules_runtime.change_refused,
        symptom="the toolkit's pod fails at each start, and restarts nothing",
        cause="the runtime did not come up with the change; it is not tried again while all is as it was",
    ),
    Rule(
        id="config-version-1",
        check=rules_versions.version_1,
        symptom="the toolkit reports success, and there is no nvidia runtime",
        cause="a version 1 file takes no drop-in",
        issues=("toolkit#1430",),
    ),
    Rule(
        id="drop-in-not-read",
        check=rules_runtime.drop_in_not_read,
        symptom='`no runtime for "nvidia" is configured`',
        cause="the drop-in is in a folder that no `imports` names, or of CRI-O's in conf.d",
        issues=("toolkit#1404", "toolkit#1407", "gpu-operator#2236"),
    ),
    Rule(
        id="handler-without-type",
        check=rules_runtime.handler_without_type,
        symptom="sandboxes of the handler cannot be made",
        cause="the options that were copied had no runtime_type",
        issues=("toolkit#1956",),
    ),
    Rule(
        id="config-overwritten",
        check=rules_runtime.config_overwritten,
        symptom="GPU pods fail since somebody ran kubespray",
        cause="another tool writes the whole file",
        issues=("gpu-operator#598", "gpu-operator#207"),
    ),
    Rule(
        id="journal-unfinished",
        check=rules_node.journal_unfinished,
        symptom="a revert is refused or incomplete",
        cause="driverctl was killed during a change, or its journal was damaged",
    ),
    Rule(
        id="not-in-force",
        check=rules_runtime.not_in_force,
        symptom='`no runtime for "nvidia" is configured`, though the files have it',
        cause="the runtime was not restarted since (RUNTIME_RESTART_MODE=none)",
        issues=("gpu-operator#594", "gpu-operator#399"),
    ),
    Rule(
        id="handler-asked",
        check=rules_asked.handler_asked,
        symptom='`no runtime for "nvidia" is configured`, `failed to find runtime handler nvidia`',
        cause="a provisioner, k3s or rke2 wrote the file anew, or the runtime was not restarted since",
        issues=("claudie#1786", "kubespray#12277", "rke2#8752"),
    ),
    Rule(
        id="settings-hidden",
        check=rules_asked.settings_hidden,
        symptom="images are not pulled from the mirror, or CNI is not found, since there is a drop-in",
        cause="containerd before 2.1 takes its whole CRI section from the last file that has one",
        issues=("Olares#3735", "containerd#9968"),
    ),
    Rule(
        id="other-cgroups",
        check=rules_asked.other_cgroups,
        symptom="pods with GPUs are ended after seconds, or their limits do not hold",
        cause="NVIDIA's handler was written by hand, without runc's `SystemdCgroup`",
        issues=("puppetlabs-kubernetes#717", "k3s#7130"),
    ),
    Rule(
        id="mixed-runtimes",
        check=rules_runtime.mixed_runtimes,
        symptom="pods find no nvidia runtime, while docker or another containerd has it",
        cause="another runtime of the node was configured than the kubelet's",
        issues=("home-ops#14313", "gpu-operator#1529", "toolkit#982"),
    ),
    Rule(
        id="folder-read-only",
        check=rules_runtime.folder_read_only,
        symptom="the toolkit cannot make /etc/containerd/conf.d",
        cause="the system's /etc is read-only",
        issues=("gpu-operator#2382", "gpu-operator#2731"),
    ),
    Rule(
        id="programs-missing",
        check=rules_node.programs_missing,
        symptom="`exec: nvidia-container-runtime: no such file or directory`",
        cause="the toolkit was removed, and the handlers stayed",
        issues=("gpu-operator#188", "gpu-operator#494", "container-config#8"),
    ),
    Rule(
        id="low-level-missing",
        check=rules_node.low_level_missing,
        symptom="containers with GPUs do not start: no low-level runtime",
        cause="runc or crun is at a path of its own (CRI-O: /usr/libexec/crio)",
        issues=("gpu-operator#984",),
    ),
    Rule(
        id="spec-unresolvable",
        check=rules_node.spec_unresolvable,
        symptom="`unresolvable CDI devices`",
        cause="runtimes skip a broken spec, and a device that two specs have",
        issues=("gpu-operator#531", "toolkit#1239", "dra#1144"),
    ),
    Rule(
        id="spec-folder",
        check=rules_asked.spec_folder,
        symptom="`unresolvable CDI devices`, and the spec is there",
        cause="`cdi_spec_dirs` names other folders, as on Talos",
        issues=("dra#736",),
    ),
    Rule(
        id="spec-version",
        check=rules_node.spec_version,
        symptom="`unresolvable CDI devices`, and the spec is there",
        cause="the spec states a newer version of CDI's format than containerd's library reads",
        issues=("toolkit#1940",),
    ),
    Rule(
        id="spec-missing",
        check=rules_node.spec_missing,
        symptom="`unresolvable CDI devices management.nvidia.com/gpu=…`",
        cause="the mode is cdi, and the spec was never written or is gone",
        issues=("gpu-operator#531", "toolkit#1239"),
    ),
    Rule(
        id="device-asked",
        check=rules_asked.device_asked,
        symptom="`unresolvable CDI devices management.nvidia.com/gpu=GPU-…`",
        cause="no spec has the device, or the runtime's default kind is the one of the operator's own pods",
        issues=("toolkit#1895", "toolkit#1239", "gpu-operator#1982"),
    ),
    Rule(
        id="spec-of-other-driver",
        check=rules_node.spec_of_other_driver,
        symptom="`driver/library version mismatch` in containers",
        cause="the spec is from before the driver was installed again",
        issues=("toolkit#1611", "toolkit#1982", "AgentBaker#8736"),
    ),
    Rule(
        id="spec-without-devices",
        check=rules_node.spec_without_devices,
        symptom="`couldn't communicate with the NVIDIA driver` in the first container after a boot",
        cause="the spec was written before /dev had the driver's files",
        issues=("dra#1380",),
    ),
    Rule(
        id="spec-with-wrong-major",
        check=rules_node.spec_with_wrong_major,
        symptom="nvidia-smi works in a container, CUDA does not",
        cause="the major of nvidia-uvm is another one after each boot",
        issues=("toolkit#1828", "toolkit#856"),
    ),
    Rule(
        id="spec-paths-gone",
        check=rules_node.spec_paths_gone,
        symptom="`failed to stat CDI host device`, or a mount fails",
        cause="the spec was written before the devices were there, MIG changed since, or the device plugin "
        "was told another place of the hook program",
        issues=("toolkit#1611", "NemoClaw#4733", "talos#13021"),
    ),
    Rule(
        id="links-missing",
        check=rules_node.links_missing,
        symptom="`Failed to initialize NVML: Unknown Error` in a container that worked before",
        cause="at a daemon-reload systemd sets the device rules again, "
        "and finds devices through /dev/char only",
        issues=("toolkit#48", "toolkit#251", "toolkit#1227", "gpu-operator#485"),
    ),
    Rule(
        id="stale-ready",
        check=rules_node.stale_ready,
        symptom="operands start before the toolkit is there",
        cause="/run/nvidia/validations outlives the pod that wrote it",
        issues=("gpu-operator#2264",),
    ),
    Rule(
        id="selinux-denials",
        check=rules_node.selinux_denials,
        symptom="`Insufficient Permissions`, or a library cannot be loaded",
        cause="no policy lets containers use the devices",
        issues=("nvidia-container-runtime#42", "toolkit#580", "gpu-operator#452"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProblem:
    rule: Rule
    diagnosis: Diagnosis


def examine(evidence: NodeEvidence) -> tuple[KnownProblem, ...]:
    """All that the rules say, the worst first."""
    diagnoses = ((rule, rule.check(evidence)) for rule in RULES)
    return tuple(KnownProblem(rule=rule, diagnosis=diagnosis) for rule, diagnosis in diagnoses if diagnosis)


def looked_at(evidence: NodeEvidence) -> tuple[str, ...]:
    """What there was to judge. That nothing was found says little of a node on which nothing is."""
    runtimes = tuple(
        f"{runtime.kind} ({runtime.config}{_life(runtime) if evidence.live else ''})"
        for runtime in evidence.runtimes
    )
    return (
        *(runtimes or ("no container runtime: neither a process nor its files",)),
        "a kubelet" if evidence.kubelet else "no kubelet",
        f"{len(evidence.specs)} CDI spec file{'' if len(evidence.specs) == 1 else 's'}",
        f"driver {evidence.driver}" if evidence.driver else "no loaded driver",
        evidence.toolkit.folder if evidence.toolkit.there else f"no toolkit in {evidence.toolkit.folder}",
    )


def _life(runtime: RuntimeEvidence) -> str:
    if not runtime.runs:
        return ": does not run"
    return ": runs, serves no pods" if runtime.reported is None else ": answers"
