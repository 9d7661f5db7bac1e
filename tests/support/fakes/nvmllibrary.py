"""A stand-in for libnvidia-ml.so, compiled here: what PyNvml and NVIDIA's nvidia-ctk ask of NVML.

It has two GPUs, whose minors are not their indices. The second one has MIG on, with two MIG devices of seven:
index 0 was made with a profile for compute alone, index 2 with one for graphics.
"""

from __future__ import annotations

from pathlib import Path

from driverforge_host.ports import Gpu, Mig
from support.process import run

NAME = "libnvidia-ml.so.580.65.06"
SONAME = "libnvidia-ml.so.1"
MODEL = "a fake"
GPUS = (
    Gpu(
        index=0,
        minor=1,
        uuid="GPU-00000000-1111-2222-3333-444444444444",
        bus_id="0000:3a:00.0",
        model=MODEL,
    ),
    Gpu(
        index=1,
        model=MODEL,
        minor=0,
        uuid="GPU-00000001-1111-2222-3333-444444444444",
        bus_id="0000:3b:00.0",
        mig_enabled=True,
        migs=(
            Mig(
                index=0,
                uuid="MIG-00000000-5555-6666-7777-888888888888",
                gpu_instance=5,
                compute_instance=0,
            ),
            Mig(
                index=2,
                uuid="MIG-00000001-5555-6666-7777-888888888888",
                gpu_instance=6,
                compute_instance=0,
                graphics=True,
            ),
        ),
    ),
)
# what differs from one driver to another
NO_DRIVER = "COUNT=-1"
NO_GPU = "COUNT=0"
OLD_DRIVER = "PROFILES=10"  # it knows no profile for graphics
NO_INSTANCES = "INSTANCES=0"  # it has no function to look at a GPU instance
LOST_AT_THE_END = "SHUTDOWN=15"  # NVML_ERROR_GPU_IS_LOST
NO_TEXT = "MARK=0xff"  # in the name of its GPUs

_SOURCE = r"""
#include <stdio.h>
#include <string.h>
#ifndef COUNT
#define COUNT 2
#endif
#ifndef PROFILES
#define PROFILES 18
#endif
#ifndef INSTANCES
#define INSTANCES 1
#endif
#ifndef SHUTDOWN
#define SHUTDOWN 0
#endif
#ifndef MARK
#define MARK ' '
#endif
enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
/* the id of the first is the number of a profile for graphics: who takes one for the other is wrong */
enum { COMPUTE_NUMBER = 0, COMPUTE_ID = 10, GRAPHICS_NUMBER = 10, GRAPHICS_ID = 47 };
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned counts[8]; unsigned long long memory; } attributes_t;
typedef struct { void *device; unsigned id, profile, start, size; } instance_t;
typedef struct { void *device, *instance; unsigned id, profile, start, size; } compute_t;
typedef struct { unsigned id, p2p, slices, count, engines[6]; unsigned long long memory; } profile_t;
typedef struct { unsigned id, slices, count, engines[6]; } compute_profile_t;
static long devices[2], migs[2], instances[2], computes[2];
static int at(void *handle, long *table) { return handle == (void *)&table[1]; }
static int is_mig(void *d) { return d == (void *)&migs[0] || d == (void *)&migs[1]; }
int nvmlInit_v2(void) { return COUNT < 0 ? DRIVER_NOT_LOADED : 0; }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return SHUTDOWN; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.65.06"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetName(void *d, char *text, unsigned size) { snprintf(text, size, "a%cfake", MARK); return 0; }
int nvmlDeviceGetIndex(void *d, unsigned *index) {
  *index = is_mig(d) ? 2 * at(d, migs) : at(d, devices); return 0; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *minor) { *minor = 1 - at(d, devices); return 0; }
int nvmlDeviceGetUUID(void *d, char *text, unsigned size) {
  if (is_mig(d)) snprintf(text, size, "MIG-0000000%d-5555-6666-7777-888888888888", at(d, migs));
  else snprintf(text, size, "GPU-0000000%d-1111-2222-3333-444444444444", at(d, devices));
  return 0; }
int nvmlDeviceGetHandleByUUID(const char *text, void **d) {
  *d = text[0] == 'M' ? &migs[text[11] - '0'] : &devices[text[11] - '0']; return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *pci) {
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, 32, "00000000:%02X:00.0", 0x3a + at(d, devices)); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *memory) {
  memory->total = 96ull << 30; memory->free = memory->used = 0; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) {
  *now = *next = 1; return at(d, devices) ? 0 : NOT_SUPPORTED; }
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *count) {
  *count = at(d, devices) ? 7 : 0; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **found) {
  *found = &migs[i / 2]; return i == 0 || i == 2 ? 0 : i == 1 ? NOT_FOUND : INVALID_ARGUMENT; }
int nvmlDeviceIsMigDeviceHandle(void *d, unsigned *mig) { *mig = is_mig(d); return 0; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **d) { *d = &devices[1]; return 0; }
int nvmlDeviceGetAttributes_v2(void *d, attributes_t *all) {
  memset(all, 0, sizeof *all); all->memory = 24 << 10; return 0; }
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *id) { *id = 5 + at(d, migs); return 0; }
int nvmlDeviceGetComputeInstanceId(void *d, unsigned *id) { *id = 0; return 0; }
#if INSTANCES
int nvmlDeviceGetGpuInstanceById(void *d, unsigned id, void **found) {
  *found = &instances[id - 5]; return 0; }
#endif
int nvmlGpuInstanceGetInfo(void *found, instance_t *info) {
  memset(info, 0, sizeof *info);
  info->id = 5 + at(found, instances);
  info->profile = at(found, instances) ? GRAPHICS_ID : COMPUTE_ID; return 0; }
int nvmlGpuInstanceGetComputeInstanceById(void *instance, unsigned id, void **found) {
  *found = &computes[at(instance, instances)]; return 0; }
int nvmlComputeInstanceGetInfo_v2(void *found, compute_t *info) { memset(info, 0, sizeof *info); return 0; }
int nvmlDeviceGetGpuInstanceProfileInfo(void *d, unsigned number, profile_t *info) {
  if (number >= PROFILES) return INVALID_ARGUMENT;
  if (number != COMPUTE_NUMBER && number != GRAPHICS_NUMBER) return NOT_SUPPORTED;
  memset(info, 0, sizeof *info);
  info->id = number == GRAPHICS_NUMBER ? GRAPHICS_ID : COMPUTE_ID;
  info->memory = 24 << 10; return 0; }
int nvmlGpuInstanceGetComputeInstanceProfileInfo(
    void *instance, unsigned number, unsigned engine, compute_profile_t *info) {
  memset(info, 0, sizeof *info); return number ? NOT_SUPPORTED : 0; }
"""


def build(folder: Path, *, changes: str = "") -> Path:
    """The library, in `folder`; `changes` is one of the constants above. Needs a C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "nvml.c", folder / NAME
    source.write_text(_SOURCE)
    defined = [f"-D{changes}"] if changes else []
    run("cc", "-shared", "-fPIC", *defined, f"-Wl,-soname,{SONAME}", "-o", library, source)
    source.unlink()
    return library
