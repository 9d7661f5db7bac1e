"""A stand-in for libcuda.so.1, compiled here: it adds vectors in memory that it was really given.

It has no GPU and says so in its device's name. It loads a compiler by its name, as NVIDIA's does, but has no
use for it. It does not read PTX: what it computes is not evidence that
the kernel's text is right, only that the calls around it are.
"""

from __future__ import annotations

from pathlib import Path

from support.process import run

DEVICE = "a stand-in for a GPU"
CALLS = (
    "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2", "cuMemcpyHtoD_v2",
    "cuLaunchKernel", "cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2",
)  # fmt: skip
"""Every call that a vectorAdd makes, in their order."""

# variables of the process, by which the stand-in is told what goes wrong
FAILS, HANGS = "STAND_IN_FAILS", "STAND_IN_HANGS"  # the name of the call
WRONG = "STAND_IN_WRONG"  # one of its sums is not one
DEVICES = "STAND_IN_DEVICES"  # how many; 2 otherwise

_SOURCE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_COMPILER = 221,
   NO_MODULE = 200, NOT_FOUND = 500, ASKED_TO = 999 };
typedef unsigned long long address_t;
static int started, current, loaded, launched;
static int told(const char *variable, const char *value) {
  const char *said = getenv(variable); return said && !strcmp(said, value); }
static int devices(void) { const char *said = getenv("STAND_IN_DEVICES"); return said ? atoi(said) : 2; }
/* every function: fail or hang where it is told to */
#define CALL do { \
  if (told("STAND_IN_HANGS", __func__)) for (;;) sleep(1); \
  if (told("STAND_IN_FAILS", __func__)) return ASKED_TO; } while (0)
int cuGetErrorString(int code, const char **text) {
  *text = code == ASKED_TO ? "the stand-in was told to fail" : "the stand-in refuses"; return 0; }
int cuInit(unsigned flags) { CALL; started = 1; return flags; }
int cuDeviceGetCount(int *count) { CALL; *count = devices(); return started ? 0 : NOT_INITIALIZED; }
int cuDeviceGet(int *device, int index) { CALL; *device = 7 + index; return index >= devices(); }
int cuDeviceGetName(char *name, int size, int device) {
  CALL; strncpy(name, "a stand-in for a GPU", size); return device < 7; }
int cuDevicePrimaryCtxRetain(void **context, int device) { CALL; *context = &current; return device < 7; }
int cuCtxSetCurrent(void *context) { CALL; current = context == &current; return !current; }
int cuModuleLoadData(void **module, const char *text) {
  CALL; if (!current) return 201;
  if (!dlopen("libnvidia-ptxjitcompiler.so.1", RTLD_NOW)) return NO_COMPILER;
  loaded = strstr(text, ".visible .entry vector_add(") != 0;
  *module = &loaded; return loaded ? 0 : NO_MODULE; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  CALL; *function = &launched; return module == &loaded && !strcmp(name, "vector_add") ? 0 : NOT_FOUND; }
int cuMemAlloc_v2(address_t *address, size_t size) {
  CALL; *address = (address_t)(size_t)calloc(1, size); return !*address; }
int cuMemcpyHtoD_v2(address_t to, const void *from, size_t size) {
  CALL; memcpy((void *)(size_t)to, from, size); return 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  CALL;
  if (function != &launched || gy * gz * by * bz != 1 || shared || stream || extra) return INVALID_VALUE;
  const float *a = *(float **)parameters[0], *b = *(float **)parameters[1];
  float *sum = *(float **)parameters[2];
  unsigned count = *(unsigned *)parameters[3];
  for (unsigned i = 0; i < gx * bx && i < count; i++) sum[i] = a[i] + b[i];
  if (told("STAND_IN_WRONG", "1")) sum[count - 1] += 1;
  return 0; }
int cuCtxSynchronize(void) { CALL; return 0; }
int cuMemcpyDtoH_v2(void *to, address_t from, size_t size) {
  CALL; memcpy(to, (void *)(size_t)from, size); return 0; }
int cuMemFree_v2(address_t address) { CALL; free((void *)(size_t)address); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { CALL; return device < 7; }
"""


def build(folder: Path) -> Path:
    """The library and its compiler, in `folder`. Needs a C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "cuda.c", folder / "libcuda.so.1"
    for name, text in (("libnvidia-ptxjitcompiler.so.1", "int nothing;\n"), (library.name, _SOURCE)):
        source.write_text(text)
        run("cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, source, "-ldl")
    return library
