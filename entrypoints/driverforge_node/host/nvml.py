"""NVML through nvidia-ml-py (extra `nvml`), loaded from the driver root where the library is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from driverforge_core.errors import Unavailable
from driverforge_node.ports import Gpu, Mig


class PyNvml:
    """The `Nvml` port. `library` is the path of libnvidia-ml.so as this process sees it.

    An empty one leaves the search to the dynamic linker.
    """

    def __init__(self, library: str = "") -> None:
        self._library = library

    def gpus(self) -> tuple[Gpu, ...]:
        with self._session() as nvml:
            count = nvml.nvmlDeviceGetCount()
            if count == 0:
                raise _unavailable("NVML sees no GPU")
            return tuple(_gpu(nvml, index) for index in range(count))

    @contextmanager
    def _session(self) -> Iterator[Any]:
        try:
            import pynvml
        except ImportError:
            raise _unavailable("nvidia-ml-py is not part of this image") from None
        try:
            if self._library:
                import ctypes

                # nvidia-ml-py asks for libnvidia-ml.so.1: glibc answers with what is loaded under that SONAME
                ctypes.CDLL(self._library, mode=ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
        except (OSError, pynvml.NVMLError) as error:
            raise _unavailable(f"NVML does not start: {error}") from error
        try:
            yield pynvml
        except pynvml.NVMLError as error:
            raise _unavailable(f"NVML failed: {error}") from error
        finally:
            pynvml.nvmlShutdown()


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        why,
        resolution="use --mode static, which reads /proc/driver/nvidia, "
        "or make libnvidia-ml.so.1 of the loaded driver visible",
    )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    enabled = _mig_enabled(nvml, handle)
    return Gpu(
        index=index,
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        bus_id=sysfs_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        mig_enabled=enabled,
        migs=tuple(_migs(nvml, handle)) if enabled else (),
    )


def _mig_enabled(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False  # a GPU that has no MIG answers 'not supported'
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _migs(nvml: Any, handle: Any) -> Iterator[Mig]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        yield Mig(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(device)),
            gpu_instance=nvml.nvmlDeviceGetGpuInstanceId(device),
            compute_instance=nvml.nvmlDeviceGetComputeInstanceId(device),
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def sysfs_address(bus_id: str) -> str:
    """'00000000:3B:00.0' of NVML as '0000:3b:00.0' of sysfs; a domain above 0xffff keeps its eight digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[4:] if domain.startswith('0000') and len(domain) == 8 else domain}:{rest}"
