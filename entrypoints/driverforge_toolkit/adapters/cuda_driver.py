"""CUDA's driver API through ctypes: a vectorAdd, without a toolkit.

The kernel is PTX, which the driver itself compiles for the GPU at hand. Names and types are those of cuda.h.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from driverforge_core.errors import TemporaryFailure, Unavailable

THREADS = 256  # of a block
NAME = 100  # bytes of a device's name
TIMEOUT = 120.0  # seconds for all devices: the first call wakes every GPU of the node
SONAME = "libcuda.so.1"
# what libcuda.so.1 loads by name to compile PTX; the linker does not look for it in a driver's root
COMPILER = "libnvidia-ptxjitcompiler.so.1"

# sm_30 is older than every GPU of the drivers that are served; PTX is compiled for newer ones, too
PTX = b"""
.version 4.0
.target sm_30
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count) {
  .reg .pred %outside;
  .reg .u32 %index, %block, %size, %thread, %count;
  .reg .u64 %a, %b, %sum, %offset;
  .reg .f32 %x, %y, %z;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u64 %sum, [sum];
  ld.param.u32 %count, [count];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %size, %thread;
  setp.ge.u32 %outside, %index, %count;
  @%outside bra DONE;
  mul.wide.u32 %offset, %index, 4;
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %b, %b;
  cvta.to.global.u64 %sum, %sum;
  add.u64 %a, %a, %offset;
  add.u64 %b, %b, %offset;
  add.u64 %sum, %sum, %offset;
  ld.global.f32 %x, [%a];
  ld.global.f32 %y, [%b];
  add.rn.f32 %z, %x, %y;
  st.global.f32 [%sum], %z;
DONE:
  ret;
}
\0"""


class DriverApi:
    """The `Cuda` port. Of `libraries` the first that can be loaded counts.

    A bare name is left to the dynamic linker, which finds what the container's runtime put there.
    """

    def __init__(self, libraries: Sequence[str], *, timeout: float = TIMEOUT) -> None:
        self._libraries = tuple(libraries)
        self._timeout = timeout

    def add_on_each(
        self, first: Sequence[float], second: Sequence[float]
    ) -> Iterator[tuple[str, list[float]]]:
        # the calls have no time limit of their own, and a thread inside one cannot be stopped: as a daemon it
        # does not keep this program from its end
        answers: queue.Queue[list[tuple[str, list[float]]] | Unavailable] = queue.Queue()
        session = _Session(_load(self._libraries))
        work = threading.Thread(target=lambda: answers.put(_answer(session, first, second)), daemon=True)
        work.start()
        try:
            answer = answers.get(timeout=self._timeout)
        except queue.Empty:
            raise TemporaryFailure(
                f"{session.last} of libcuda does not return",
                details=[f"it was called more than {self._timeout:.0f} s ago, from {session.path}"],
                resolution="look for Xid messages in the node's kernel log (dmesg); a GPU that hangs needs a "
                "reset (nvidia-smi --gpu-reset) or a reboot of the node",
            ) from None
        if isinstance(answer, Unavailable):
            raise answer
        yield from answer


def _load(libraries: Sequence[str]) -> ctypes.CDLL:
    problems = []
    for path in libraries:
        # what libcuda loads later by this SONAME, glibc answers with what is loaded
        folder, inside_a_root, _ = path.rpartition("/")
        if inside_a_root:
            _loaded(f"{folder}/{COMPILER}", mode=ctypes.RTLD_GLOBAL)
        library = _loaded(path)
        if isinstance(library, ctypes.CDLL):
            return library
        problems.append(str(library))
    raise Unavailable(
        "libcuda.so.1 cannot be loaded",
        details=problems,
        resolution="the container needs NVIDIA_VISIBLE_DEVICES=all and the runtime class nvidia, "
        "or the driver's root at the path that driver-ready names",
    )


def _loaded(path: str, *, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL | OSError:
    try:
        return ctypes.CDLL(path, mode=mode)
    except OSError as error:
        return error


def _answer(
    session: _Session, first: Sequence[float], second: Sequence[float]
) -> list[tuple[str, list[float]]] | Unavailable:
    try:
        return list(_on_each(session, first, second))
    except Unavailable as error:
        return error
    except AttributeError as error:
        return Unavailable(f"{session.path} is not NVIDIA's libcuda", details=[str(error)])


class _Session:
    """Calls of one library. `last` is the one that is running, or ran last."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.path = str(library._name)  # noqa: SLF001, it has no other name
        self.last = ""

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises Unavailable where it returns anything but CUDA_SUCCESS."""
        self.last = name
        if status := getattr(self._library, name)(*arguments):
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise Unavailable(
                f"{name} failed with CUDA error {status}",
                details=[(text.value or b"unknown error").decode(errors="replace"), f"library: {self.path}"],
                resolution="run nvidia-smi on the node, and look for Xid messages in its kernel log (dmesg)",
            )


def _on_each(
    session: _Session, first: Sequence[float], second: Sequence[float]
) -> Iterator[tuple[str, list[float]]]:
    count = ctypes.c_int()
    session.call("cuInit", ctypes.c_uint(0))
    session.call("cuDeviceGetCount", ctypes.byref(count))
    for index in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(NAME)
        session.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        session.call("cuDeviceGetName", name, ctypes.c_int(NAME), device)
        yield name.value.decode(errors="replace"), _add(session, device, first, second)


def _add(
    session: _Session, device: ctypes.c_int, first: Sequence[float], second: Sequence[float]
) -> list[float]:
    count = len(first)
    size = ctypes.c_size_t(4 * count)
    sums = (ctypes.c_float * count)()
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    with ExitStack() as stack:
        session.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        stack.callback(session.call, "cuDevicePrimaryCtxRelease_v2", device)
        session.call("cuCtxSetCurrent", context)
        session.call("cuModuleLoadData", ctypes.byref(module), PTX)
        session.call("cuModuleGetFunction", ctypes.byref(function), module, b"vector_add")
        memory = [_allocate(session, stack.callback, size) for _ in range(3)]
        for address, values in zip(memory, (first, second), strict=False):
            session.call("cuMemcpyHtoD_v2", address, (ctypes.c_float * count)(*values), size)
        parameters = [*memory, ctypes.c_uint(count)]
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(each) for each in parameters))
        blocks = -(-count // THREADS)
        sizes = [ctypes.c_uint(each) for each in (blocks, 1, 1, THREADS, 1, 1, 0)]
        session.call("cuLaunchKernel", function, *sizes, None, pointers, None)
        session.call("cuCtxSynchronize")
        session.call("cuMemcpyDtoH_v2", sums, memory[2], size)
    return list(sums)


def _allocate(session: _Session, at_the_end: Callable[..., object], size: ctypes.c_size_t) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    session.call("cuMemAlloc_v2", ctypes.byref(address), size)
    at_the_end(session.call, "cuMemFree_v2", address)
    return address
