"""NVML through nvidia-ml-py (extra `nvml`), loaded from the driver root where the library is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from driverforge_core import log
from driverforge_core.errors import Unavailable
from driverforge_host.ports import Gpu, Mig

# NVML's numbers of the profiles with the attribute '+gfx' (NVML_GPU_INSTANCE_PROFILE_*_SLICE_GFX of nvml.h:
# 1, 2, 4 and 3 slices). Older versions of nvidia-ml-py have no names for them.
_GRAPHICS_PROFILES = (0xA, 0xB, 0xC, 0x11)


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
        # nvidia-ml-py decodes every text itself
        except UnicodeDecodeError as error:
            raise _unavailable(f"NVML's answer is no text: {error}") from error
        finally:
            # a GPU may be lost by now, and what was answered counts
            with suppress(pynvml.NVMLError):
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
        model=_text(nvml.nvmlDeviceGetName(handle)),
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
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
            continue  # no MIG device has this index
        gpu_instance = nvml.nvmlDeviceGetGpuInstanceId(device)
        yield Mig(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(device)),
            gpu_instance=gpu_instance,
            compute_instance=nvml.nvmlDeviceGetComputeInstanceId(device),
            graphics=_has_graphics(nvml, handle, gpu_instance),
        )


def _has_graphics(nvml: Any, handle: Any, gpu_instance: int) -> bool:
    """Whether a GPU instance was made with a profile for graphics; False where NVML does not say."""
    try:
        info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(handle, gpu_instance))
    except nvml.NVMLError as error:
        log.warning(
            "NVML does not say which profile a MIG device has; it gets no /dev/dri nodes",
            gpu_instance=gpu_instance,
            why=str(error),
        )
        return False
    return any(_profile_id(nvml, handle, number) == info.profileId for number in _GRAPHICS_PROFILES)


def _profile_id(nvml: Any, handle: Any, number: int) -> int | None:
    """What a GPU calls the profile with this number; ids differ from one model to another.

    None where the GPU has no such profile, or the driver is older than it.
    """
    try:
        return int(nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=1).id)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def sysfs_address(bus_id: str) -> str:
    """'00000000:3B:00.0' of NVML as '0000:3b:00.0' of sysfs; a domain above 0xffff keeps its eight digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[4:] if domain.startswith('0000') and len(domain) == 8 else domain}:{rest}"
