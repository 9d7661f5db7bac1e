"""GPUs and MIG devices as /proc and /dev show them, for where NVML is not there.

The values `Gpu` and `Mig` are in `ports`: NVML's adapter makes the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from driverforge_host.gpu.roots import DriverView
from driverforge_host.ports import Files, Gpu, Mig, text_of

INFORMATION = "/proc/driver/nvidia/gpus"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_GPU_NODE = re.compile(r"nvidia(\d+)")
_INSTANCE = re.compile(r"[gc]i(\d+)")
_MINOR = re.compile(r"(config|monitor|gpu\d+/gi\d+(?:/ci\d+)?/access) (\d+)")


def static_gpus(view: DriverView) -> tuple[Gpu, ...]:
    """GPUs from /proc/driver/nvidia, else from /dev alone.

    Those from /dev have no UUID, and are in the order of their minors.
    """
    found = [gpu for address in view.system.list_dir(INFORMATION) if (gpu := _gpu_of(view.system, address))]
    if not found:
        nodes = (_GPU_NODE.fullmatch(name) for name in view.dev.list_dir("/dev"))
        found = [
            Gpu(index=0, minor=int(match[1]))
            for match in nodes
            if match and view.dev.device_number(f"/dev/{match[0]}")
        ]
    # NVML's order, so that an index means the same with and without it
    ordered = sorted(found, key=lambda gpu: (gpu.bus_id, gpu.minor))
    return tuple(_with_migs(view, gpu, index) for index, gpu in enumerate(ordered))


def _gpu_of(system: Files, address: str) -> Gpu | None:
    """A GPU from /proc/driver/nvidia/gpus/ADDRESS/information, which has 'Key: value' lines.

    A UUID with '?' is one that the driver does not know yet.
    """
    lines = text_of(system, f"{INFORMATION}/{address}/information").splitlines()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if not values.get("Device Minor", "").isdigit():
        return None
    uuid = values.get("GPU UUID", "")
    return Gpu(
        index=0,
        minor=int(values["Device Minor"]),
        uuid="" if "?" in uuid else uuid,
        bus_id=address.lower(),
        model=values.get("Model", ""),
    )


def _with_migs(view: DriverView, gpu: Gpu, index: int) -> Gpu:
    migs = tuple(static_migs(view.system, gpu.minor))
    return replace(gpu, index=index, mig_enabled=bool(migs), migs=migs)


def static_migs(system: Files, minor: int) -> Iterator[Mig]:
    """MIG devices of a GPU.

    The driver has a folder for each GPU instance, and in it one for each compute instance.
    """
    base = f"{CAPABILITIES}/gpu{minor}/mig"
    for gpu_instance in _instances(system, base):
        for compute_instance in _instances(system, f"{base}/gi{gpu_instance}", "ci"):
            yield Mig(gpu_instance=gpu_instance, compute_instance=compute_instance)


def _instances(system: Files, folder: str, kind: str = "gi") -> list[int]:
    found = (_INSTANCE.fullmatch(name) for name in system.list_dir(folder) if name.startswith(kind))
    return sorted(int(match[1]) for match in found if match)


def parse_mig_minors(text: str) -> dict[str, int]:
    """The text of /proc/driver/nvidia-caps/mig-minors: capability to minor of /dev/nvidia-caps/nvidia-capN.

    Lines of another form are left out.
    """
    matches = (_MINOR.fullmatch(line) for line in text.splitlines())
    return {match[1]: int(match[2]) for match in matches if match}
