"""What a check may ask, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_core.errors import DriverforgeError, InputError, Unavailable
from driverforge_node.gpu.roots import DriverRoots
from driverforge_node.ports import Cluster, Cuda, Files, Host, JsonObject
from driverforge_node.validate.validator_settings import ValidatorSettings

NODES = "/api/v1/nodes"
HOST_HERE = "/host"  # where NVIDIA's pods mount the host's root
SMI_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/wsl/lib", "opt/bin")
SMI_TIMEOUT = 120.0  # seconds: the first call wakes every GPU of the node


class NotValidated(DriverforgeError):
    """A part does not work, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A part works, or is not asked for here: then there is no file. `seen` is what shows it."""

    seen: str
    files: Mapping[str, str] = field(default_factory=dict)  # by name; written when all of it is true
    roots: DriverRoots | None = None  # of a driver that serves: links to its device files are wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The ports and settings of one run. Cluster and CUDA are asked for only where a check needs them."""

    host: Host
    settings: ValidatorSettings
    cluster: Callable[[], Cluster]
    cuda: Callable[[Sequence[str]], Cuda]  # of the first of these libraries that can be loaded

    def status_file(self, name: str) -> str:
        """The path of one of the files by which containers wait for each other."""
        return f"{self.settings.output_dir.rstrip('/')}/{name}"

    def node(self) -> JsonObject:
        """This node's object. Raises InputError without NODE_NAME."""
        if not self.settings.node_name:
            raise InputError(
                "which node this is, is not said",
                details=["NODE_NAME is not set"],
                resolution="set NODE_NAME from fieldRef spec.nodeName",
            )
        found = self.cluster().get(f"{NODES}/{self.settings.node_name}")
        if found is None:
            raise Unavailable(f"the cluster has no node {self.settings.node_name}")
        return found


def nvidia_smi_of(files: Files, root: str) -> str:
    """nvidia-smi below a root, as the root calls it; '' where it has none."""
    inside = files.under(root)
    paths = (f"/{folder}/nvidia-smi" for folder in SMI_FOLDERS)
    return next((path for path in paths if inside.exists(path)), "")


def host_driver(host: Host) -> str:
    """The GPUs that the nvidia-smi of the node's own driver names; '' where the node brought none that works.

    A driver's container may leave files on the node: only one that runs counts.
    """
    root = host.node.root
    smi = nvidia_smi_of(host.files, root)
    if not smi:
        return ""
    argv = [smi] if root == "/" else ["chroot", root, smi]
    result = host.commands.run([*argv, "-L"], check=False, timeout=SMI_TIMEOUT)
    return _gpus(result.stdout) if result.ok else ""


def run_nvidia_smi(
    host: Host, argv: Sequence[str], *, what: str, env: Mapping[str, str] | None = None
) -> str:
    """The GPUs that nvidia-smi names. Raises NotValidated with all that it said where it names none."""
    result = host.commands.run([*argv, "-L"], env=env, check=False, timeout=SMI_TIMEOUT)
    if result.ok and (found := _gpus(result.stdout)):
        return found
    raise NotValidated(
        f"nvidia-smi {'names no GPU' if result.ok else 'fails'} {what}",
        details=[f"{' '.join(result.argv)} ended with {result.status}", result.stdout, result.stderr],
        resolution="look for NVRM and Xid messages in the node's kernel log (dmesg), and into the driver "
        "pod's log",
    )


def _gpus(text: str) -> str:
    """Of `nvidia-smi -L`, which prints a line a GPU, and lines that are indented for its MIG devices."""
    return "; ".join(line.strip() for line in text.splitlines() if line.startswith("GPU "))
