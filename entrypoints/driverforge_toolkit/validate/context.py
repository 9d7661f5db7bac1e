"""What a check may ask, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_core.errors import DriverforgeError, InputError, Unavailable
from driverforge_host.gpu.roots import DriverRoots
from driverforge_host.gpu.smi import SMI_TIMEOUT, named_gpus
from driverforge_host.ports import NODES, Cluster, Cuda, Host, JsonObject
from driverforge_toolkit.validate.validator_settings import ValidatorSettings

HOST_HERE = "/host"  # where NVIDIA's pods mount the host's root


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


def run_nvidia_smi(
    host: Host, argv: Sequence[str], *, what: str, env: Mapping[str, str] | None = None
) -> str:
    """The GPUs that nvidia-smi names. Raises NotValidated with all that it said where it names none."""
    result = host.commands.run([*argv, "-L"], env=env, check=False, timeout=SMI_TIMEOUT)
    if result.ok and (found := named_gpus(result.stdout)):
        return found
    raise NotValidated(
        f"nvidia-smi {'names no GPU' if result.ok else 'fails'} {what}",
        details=[f"{' '.join(result.argv)} ended with {result.status}", result.stdout, result.stderr],
        resolution="look for NVRM and Xid messages in the node's kernel log (dmesg), and into the driver "
        "pod's log",
    )
