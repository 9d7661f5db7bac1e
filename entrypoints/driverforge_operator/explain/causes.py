"""The table of causes: why a gate stays closed, and the command that helps.

Each pattern is what people really saw (the issues of NVIDIA's repositories and our own programs' words).
A new cause is a row here and its case in test_operator_causes.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """`told` is half a sentence; `command` has {node}, {namespace}, {daemonset}, {pod}, {container}, {image},
    {select} (what builds the image) and {cell} (its name there).

    `pattern` is looked for in what the kubelet, events and logs say; '' for what the gate itself finds out.
    `containers` limits it to some.
    """

    id: str
    told: str
    command: str
    pattern: str = ""
    containers: tuple[str, ...] = ()

    def shows(self, text: str, container: str) -> bool:
        if not self.pattern or (self.containers and container not in self.containers):
            return False
        return re.search(self.pattern, text, re.IGNORECASE) is not None

    def filled(self, **values: str) -> Cause:
        """The row in the words of one case."""
        known = defaultdict(str, values)
        return replace(self, told=self.told.format_map(known), command=self.command.format_map(known))


_LOGS = "kubectl logs -n {namespace} {pod} -c {container} --tail=200"
_DAEMONSET = "kubectl describe daemonset -n {namespace} {daemonset}"
_DRIVER = ("k8s-driver-manager", "nvidia-driver-ctr", "openshift-driver-toolkit-ctr")

# the more a pattern says, the earlier it stands: 'x509' is in a line that also has 'failed to pull'
CAUSES: tuple[Cause, ...] = (
    Cause(
        id="pull-denied",
        pattern=r"(?:pull|resolve).*(?:401|403|unauthorized|denied|authorization failed|no basic auth)",
        told="the registry refuses the credentials, or there are none for it",
        command="kubectl get pod -n {namespace} {pod} -o jsonpath='{{.spec.imagePullSecrets}}'  # if empty: "
        "kubectl create secret docker-registry NAME -n {namespace} …, and imagePullSecrets: [NAME] in the "
        "NVIDIADriver's spec, or in the ClusterPolicy's of this operand (spec.driver)",
    ),
    Cause(
        id="image-architecture",
        pattern=r"no match for platform in manifest|exec /\S+: exec format error",
        told="the image {image} is not for this node's architecture",
        command="{select}",
    ),
    Cause(
        id="image-missing",
        pattern=r"(?:pull|image|manifest).*(?:not ?found|manifest unknown|manifest_unknown|name unknown)",
        told="the registry has no image {image}: none was built for this system, kernel or driver",
        command="{select}",
        containers=("nvidia-driver-ctr",),
    ),
    Cause(
        # `driverforge build` does not make it: a mirror lacks it, or its maker has none for the system
        id="operand-image-missing",
        pattern=r"(?:pull|image|manifest).*(?:not ?found|manifest unknown|manifest_unknown|name unknown)",
        told="the registry has no image {image}",
        command="crictl pull {image}  # on the node, once the site's mirror has it (docs/air-gapped.md); "
        "or name one that is there",
    ),
    Cause(
        id="registry-certificate",
        pattern=r"(?:pull|resolve).*x509: ",
        told="the node's container runtime does not accept the registry's certificate",
        command="crictl pull {image}  # on the node, until it works: its runtime needs the registry's CA, as "
        "in /etc/containerd/certs.d/HOST/hosts.toml, /etc/containers/certs.d/HOST or the system's trust "
        "store",
    ),
    Cause(
        id="registry-unreachable",
        pattern=r"(?:pull|resolve).*(?:no such host|i/o timeout|connection refused|tls|deadline exceeded"
        r"|no route to host|connection reset|toomanyrequests|429|503)",
        told="the node does not reach the registry, or it takes no more requests now",
        command="crictl pull {image}  # on the node: its DNS, proxy and firewall; a closed site needs a "
        "mirror (docs/air-gapped.md)",
    ),
    Cause(
        id="pull-failed",
        pattern=r"ImagePullBackOff|ErrImagePull|InvalidImageName|Failed to pull image",
        told="the image {image} cannot be pulled",
        command="kubectl describe pod -n {namespace} {pod}",
    ),
    Cause(
        id="secure-boot",
        pattern=r"key was rejected by service|loading of unsigned module is rejected|lockdown:"
        r"|not signed by a key that is trusted|takes signed modules only|does not accept its signature"
        r"|required key not available",
        told="Secure Boot: the kernel does not accept the modules' signature",
        command="{select} --sign-certificate FILE --sign-key FILE  # a key of mokutil --list-enrolled",
        containers=_DRIVER,
    ),
    Cause(
        id="nouveau",
        pattern=r"belongs? to another driver: .*nouveau|nouveau (?:kernel )?(?:driver|module) is (?:in use"
        r"|loaded|currently)|(?:could not|failed to|unable to) (?:unload|remove).*nouveau"
        r"|bound to nouveau",
        told="nouveau has the GPU",
        command="printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/nouveau.conf "
        "# on the node; then update its initramfs and reboot it",
        containers=_DRIVER,
    ),
    Cause(
        # our driver manager, which unloads nothing: what could have done it ended with the pod before
        id="driver-stays",
        pattern=r"another driver is wanted than the loaded one",
        told="the driver from before is still loaded: it was in use when its pod was deleted",
        command="kubectl drain {node} --ignore-daemonsets --delete-emptydir-data  # then reboot it, and once "
        "it is up: kubectl uncordon {node}",
        containers=("k8s-driver-manager",),
    ),
    Cause(
        id="driver-held-by-module",
        pattern=r"is in use by:? .*\b(?:nvidia_(?:fs|peermem)|gdrdrv|nv_peer_mem)\b"
        r"|module \w+ depends on the driver",
        told="another kernel module uses the loaded driver: no pod that goes frees it",
        command="kubectl drain {node} --ignore-daemonsets --delete-emptydir-data  # then reboot it, and once "
        "it is up: kubectl uncordon {node}",
        containers=_DRIVER,
    ),
    Cause(
        id="driver-held",
        pattern=r"driver is in use|driver [\d.]+ is in use|modules? (?:are|is) (?:still )?in use"
        r"|module nvidia\w* is in use|device or resource busy|unable to cleanup driver modules"
        r"|failed to (?:unload|uninstall) .*(?:driver|module)|still running on the node",
        told="something holds the loaded driver: a pod with a GPU, or a process of the host",
        command="kubectl drain {node} --ignore-daemonsets --delete-emptydir-data  # once its driver is "
        "ready: kubectl uncordon {node}",
        containers=_DRIVER,
    ),
    Cause(
        id="mofed",
        pattern=r"waiting for mofed|mofed driver|/run/mellanox/drivers/\.driver-ready|mlx5_core"
        r"|without IB peer memory symbols",
        told="it waits for the network driver (MOFED), which is not on this node",
        command="kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep -i mofed",
        containers=(*_DRIVER, "mofed-validation", "nvidia-peermem-ctr"),
    ),
    Cause(
        id="kernel-headers",
        pattern=r"could not resolve linux kernel version|unable to find.*kernel-(?:headers|devel)"
        r"|unable to locate package linux-headers|no package kernel-(?:headers|devel)\S* available"
        r"|(?:no match for argument|unable to find a match): kernel-|/lib/modules/\S+/build: no such file"
        r"|unable to find the kernel source tree|no kernel headers",
        told="no repository that the container uses has headers of the node's kernel",
        command="{select}  # an image that has its modules",
        containers=_DRIVER,
    ),
    Cause(
        id="other-kernel",
        pattern=r"disagrees about version of symbol|invalid module format|version magic|exec format error"
        r"|unknown symbol in module|was built for another kernel|module nvidia\S* not found in directory",
        told="the modules were built for another kernel than the node's",
        command="{select}",
        containers=_DRIVER,
    ),
    Cause(
        id="compile-failed",
        pattern=r"error: .*\n?.*make(?:\[\d+\])?: \*\*\*|make(?:\[\d+\])?: \*\*\* .*error \d"
        r"|building kernel modules.*fail",
        told="this driver does not compile for the node's kernel",
        command="driverforge explain {cell}  # which drivers do: docs/matrix.md",
        containers=_DRIVER,
    ),
    Cause(
        id="no-gpu-found",
        pattern=r"no nvidia gpu found|no devices were found|no supported gpu",
        told="the driver finds no GPU that it supports",
        command="lspci -nnk -d 10de:  # on the node: which GPU, and which driver has it",
    ),
    Cause(
        id="unable-to-load",
        pattern=r"unable to load the kernel module|modprobe: ERROR: could not insert|could not be inserted",
        told="the kernel refuses the module, and its own log says why",
        command="dmesg | tail -50  # on the node",
        containers=_DRIVER,
    ),
    Cause(
        id="host-driver",
        pattern=r"driver is (?:already )?pre-?installed",
        told="the node has a driver of its own",
        command="kubectl label node {node} nvidia.com/gpu.deploy.driver=pre-installed --overwrite",
        containers=_DRIVER,
    ),
    Cause(
        id="runtime-without-nvidia",
        pattern=r'no runtime for "?\\?"?nvidia|runtimehandler "?nvidia"? not supported'
        r"|failed to find runtime handler nvidia",
        told="the container runtime has no handler nvidia (yet): the toolkit's change is not in force",
        command="driverctl doctor  # on the node",
    ),
    Cause(
        id="runtime-socket",
        pattern=r"unable to dial: dial unix \S+|no container runtime (?:runs|was found)",
        told="the toolkit finds no socket of a container runtime at the place that it was given",
        command="ls -l /run/containerd/containerd.sock /run/k3s/containerd/containerd.sock "
        "/run/k0s/containerd.sock  # on the node; then toolkit.env: CONTAINERD_SOCKET, with what is there",
        containers=("nvidia-container-toolkit-ctr",),
    ),
    Cause(
        id="cdi-unresolvable",
        pattern=r"unresolvable cdi devices?",
        told="no CDI spec of the node has the device",
        command="driverctl doctor  # on the node",
    ),
    Cause(
        id="nvml-mismatch",
        pattern=r"driver/library version mismatch",
        told="the loaded driver is another one than its libraries",
        command="kubectl drain {node} --ignore-daemonsets --delete-emptydir-data  # then delete {pod}, and "
        "once the next one is ready: kubectl uncordon {node}",
    ),
    Cause(
        id="nvml-lost",
        pattern=r"failed to initialize nvml|couldn't communicate with the nvidia driver|libnvidia-ml\.so",
        told="nvidia-smi does not reach the driver",
        command="driverctl doctor  # on the node",
    ),
    Cause(
        id="psa",
        pattern=r"violates PodSecurity",
        told="the namespace does not take privileged pods",
        command="kubectl label namespace {namespace} --overwrite "
        "pod-security.kubernetes.io/enforce=privileged",
    ),
    Cause(
        id="quota-missing",
        pattern=r"insufficient quota to match these scopes",
        told="the cluster, as GKE, takes pods of this priority class only where a ResourceQuota is for them",
        command="kubectl create quota gpu-operands -n {namespace} --hard=pods=100 --scopes=PriorityClass",
    ),
    Cause(
        id="quota",
        pattern=r"exceeded quota",
        told="a ResourceQuota of the namespace leaves no room for pods of this priority class",
        command="kubectl get resourcequota -n {namespace}",
    ),
    Cause(
        id="admission",
        pattern=r"admission webhook .* denied|denied by .*policy|unable to validate against any security"
        r"|failed calling webhook",
        told="an admission rule of the cluster refuses the pod",
        command="kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,"
        "validatingadmissionpolicies",
    ),
    Cause(
        id="account-missing",
        pattern=r"serviceaccount .* not found|error looking up service account",
        told="the pod's service account is not there",
        command="kubectl get serviceaccounts -n {namespace}",
    ),
    Cause(
        id="volume-missing",
        pattern=r"FailedMount: .*(?:configmap|secret) .*not found",
        told="a ConfigMap or Secret that the pod mounts is not there",
        command="kubectl get configmaps,secrets -n {namespace}",
    ),
    Cause(
        id="mount-failed",
        pattern=r"FailedMount",
        told="a volume cannot be mounted",
        command="kubectl describe pod -n {namespace} {pod}",
    ),
    Cause(
        id="other-driver-pod",
        pattern=r"anti-affinity",
        told="another driver pod is still on the node, and two would unload each other",
        command="kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep driver",
    ),
    Cause(
        id="no-room",
        pattern=r"insufficient (?:cpu|memory|pods|ephemeral-storage)|OutOf(?:cpu|memory|pods)|evicted",
        told="the node has no room for the pod",
        command="kubectl describe node {node}",
    ),
    Cause(
        id="out-of-memory",
        pattern=r"OOMKilled|exited 137",
        told="the container was killed: out of memory, or its probe gave up",
        command="kubectl describe pod -n {namespace} {pod}",
    ),
    Cause(
        id="no-space",
        pattern=r"no space left on device",
        told="a file system of the node is full",
        command="df -h  # on the node",
    ),
    Cause(
        # it waits for no file; its pod is not to be deleted in the middle of an eviction
        id="driver-manager-waits",
        pattern=r"has not ended",
        told="it waits for pods that use the GPU to go, or unloads the driver from before",
        command=_LOGS + " -f; kubectl get pods -A -o wide --field-selector spec.nodeName={node}",
        containers=("k8s-driver-manager",),
    ),
    Cause(
        id="stuck-init",
        pattern=r"waiting for nvidia container stack|has not ended|command failed, retrying",
        told="it waits for a file in /run/nvidia/validations that an earlier gate writes",
        command="ls -la /run/nvidia/validations  # on the node; kubectl delete pod -n {namespace} {pod}",
    ),
    Cause(
        id="starting",
        pattern=r"ContainerCreating|PodInitializing|is not started",
        told="it is still starting: a driver that is compiled takes minutes",
        command=_LOGS + " -f",
    ),
)

_LINE = 2000
"""Characters of a line that are looked at: an installer's progress bar is one line of megabytes."""

# where no row shows in what was said: of a container, of a DaemonSet without pods, of pods that were refused
UNKNOWN = Cause(id="unknown", told="none of the known causes shows", command=_LOGS)
NO_POD_YET = Cause(
    id="no-pod-yet",
    told="its pods cannot be made, or nobody makes pods of DaemonSets now",
    command=_DAEMONSET,
)
REFUSED = Cause(id="admission", told="an admission rule of the cluster", command=_DAEMONSET)


def likely(texts: Iterable[str], container: str, *, otherwise: Cause = UNKNOWN) -> Cause:
    """The first row that shows in what was said."""
    text = "\n".join(line[:_LINE] for one in texts for line in one.splitlines())
    return next((cause for cause in CAUSES if cause.shows(text, container)), otherwise)
