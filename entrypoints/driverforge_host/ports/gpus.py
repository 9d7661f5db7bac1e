"""GPUs, as NVML and CUDA know them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A MIG device. Its index and UUID are known to NVML only; without them it is named by its instances."""

    gpu_instance: int
    compute_instance: int
    index: int | None = None
    uuid: str = ""
    # NVML only; not in the repr, of which specs hold a hash (`cdi.stale`)
    graphics: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that a driver serves, with its MIG devices."""

    index: int  # NVML's order: by PCI address
    minor: int  # of /dev/nvidiaN
    uuid: str = ""
    bus_id: str = ""  # '0000:3b:00.0', as sysfs writes it
    mig_enabled: bool = False
    migs: tuple[Mig, ...] = ()
    model: str = ""


class Nvml(Protocol):
    """What NVML knows and /proc does not."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU by index. Raises Unavailable where the library or every GPU is missing."""


class Cuda(Protocol):
    """The GPUs that this process may compute on."""

    def add_on_each(
        self, first: Sequence[float], second: Sequence[float]
    ) -> Iterator[tuple[str, list[float]]]:
        """Add two vectors of 32-bit floats on each device: its name, and the sums that it gave.

        Raises Unavailable with the driver's own error, TemporaryFailure where a call does not return.
        """
