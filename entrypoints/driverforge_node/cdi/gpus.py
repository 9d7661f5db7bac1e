"""GPUs and their MIG devices: values, their CDI names, and what /proc says of them where NVML is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from driverforge_node import log
from driverforge_node.cdi.roots import View, read
from driverforge_node.host.ports import Files

INFORMATION = "/proc/driver/nvidia/gpus"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
STRATEGIES = ("index", "uuid", "type-index")

_GPU_NODE = re.compile(r"nvidia(\d+)")
_INSTANCE = re.compile(r"[gc]i(\d+)")
_MINOR = re.compile(r"(config|monitor|gpu\d+/gi\d+(?:/ci\d+)?/access) (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A MIG device. Its index and UUID are known to NVML only; without them it is named by its instances."""

    gpu_instance: int
    compute_instance: int
    index: int | None = None
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int  # NVML's order: by PCI address
    minor: int  # of /dev/nvidiaN
    uuid: str = ""
    bus_id: str = ""  # '0000:3b:00.0', as sysfs writes it
    mig_enabled: bool = False
    migs: tuple[Mig, ...] = ()


class Nvml(Protocol):
    """What NVML knows and /proc does not."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU by index. Raises Unavailable where the library or every GPU is missing."""


def names(strategies: Iterable[str], gpu: Gpu, mig: Mig | None = None) -> tuple[str, ...]:
    """CDI device names: '0' or '0:1' (index), the UUID (uuid), 'gpu0' or 'mig0:1' (type-index); '0:gi1:ci0' for a MIG without an index."""
    found = []
    for strategy in strategies:
        if strategy == "uuid":
            found.append(mig.uuid if mig else gpu.uuid)
            continue
        prefix = "" if strategy == "index" else "mig" if mig else "gpu"
        found.append(f"{prefix}{gpu.index}{_mig_part(mig)}")
    return tuple(name for name in dict.fromkeys(found) if name)


def _mig_part(mig: Mig | None) -> str:
    if mig is None:
        return ""
    return f":{mig.index}" if mig.index is not None else f":gi{mig.gpu_instance}:ci{mig.compute_instance}"


def static_gpus(view: View) -> tuple[Gpu, ...]:
    """GPUs from /proc/driver/nvidia, else from /dev alone (then without UUIDs, in the order of their minors)."""
    found = [gpu for address in view.system.list_dir(INFORMATION) if (gpu := _gpu_of(view.system, address))]
    if not found:
        nodes = (_GPU_NODE.fullmatch(name) for name in view.dev.list_dir("/dev"))
        found = [
            Gpu(index=0, minor=int(match[1]))
            for match in nodes
            if match and view.dev.device_number(f"/dev/{match[0]}")
        ]
    ordered = sorted(found, key=lambda gpu: (gpu.bus_id, gpu.minor))
    return tuple(_with_migs(view, gpu, index) for index, gpu in enumerate(ordered))


def _gpu_of(system: Files, address: str) -> Gpu | None:
    """From /proc/driver/nvidia/gpus/ADDRESS/information, 'Key: value' lines. A UUID with '?' is one that is not known yet."""
    lines = read(system, f"{INFORMATION}/{address}/information").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if not facts.get("Device Minor", "").isdigit():
        return None
    uuid = facts.get("GPU UUID", "")
    return Gpu(
        index=0, minor=int(facts["Device Minor"]), uuid="" if "?" in uuid else uuid, bus_id=address.lower()
    )


def _with_migs(view: View, gpu: Gpu, index: int) -> Gpu:
    migs = tuple(static_migs(view.system, gpu.minor))
    return Gpu(
        index=index, minor=gpu.minor, uuid=gpu.uuid, bus_id=gpu.bus_id, mig_enabled=bool(migs), migs=migs
    )


def static_migs(system: Files, minor: int) -> Iterator[Mig]:
    """MIG devices of a GPU: the driver has a folder for each instance."""
    base = f"{CAPABILITIES}/gpu{minor}/mig"
    for gpu_instance in _instances(system, base):
        for compute_instance in _instances(system, f"{base}/gi{gpu_instance}", "ci"):
            yield Mig(gpu_instance=gpu_instance, compute_instance=compute_instance)


def _instances(system: Files, folder: str, kind: str = "gi") -> list[int]:
    found = (_INSTANCE.fullmatch(name) for name in system.list_dir(folder) if name.startswith(kind))
    return sorted(int(match[1]) for match in found if match)


def parse_mig_minors(text: str) -> dict[str, int]:
    """/proc/driver/nvidia-caps/mig-minors: capability to minor of /dev/nvidia-caps/nvidia-capN; lines of another form are none."""
    matches = (_MINOR.fullmatch(line) for line in text.splitlines())
    return {match[1]: int(match[2]) for match in matches if match}


def mig_nodes(minors: Mapping[str, int], gpu: Gpu, mig: Mig) -> tuple[str, ...]:
    """The capability devices that open this MIG device. A capability without a number is left out, and said."""
    instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
    wanted = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
    missing = [name for name in wanted if name not in minors]
    if missing:
        log.warning(
            "the driver lists no device for a MIG capability", missing=",".join(missing), file=MIG_MINORS
        )
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in wanted if name in minors)


def drm_nodes(view: View, gpu: Gpu) -> tuple[str, ...]:
    """/dev/dri/card* and renderD* of a GPU, by its PCI address."""
    names_ = view.system.list_dir(f"/sys/bus/pci/devices/{gpu.bus_id}/drm") if gpu.bus_id else ()
    paths = [f"/dev/dri/{name}" for name in names_ if name.startswith(("card", "renderD"))]
    return tuple(path for path in paths if view.dev.device_number(path))


def drm_links(view: View, gpu: Gpu, nodes: Iterable[str]) -> tuple[str, ...]:
    """Links of /dev/dri/by-path that lead to one of `nodes`, as 'TARGET::LINK'."""
    found = []
    for kind in ("card", "render"):
        link = f"/dev/dri/by-path/pci-{gpu.bus_id}-{kind}"
        target = view.dev.resolve(link)
        if view.dev.is_link(link) and target in nodes:
            found.append(f"{'../' + target.removeprefix('/dev/dri/')}::{link}")
    return tuple(found)
