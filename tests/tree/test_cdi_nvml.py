"""NVML through nvidia-ml-py and a stand-in for libnvidia-ml that is compiled here.

It has two GPUs, the second with one MIG device of seven.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from driverforge_node.host.nvml import sysfs_address
from support.process import missing, run

STUB = r"""
#include <stdio.h>
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
static long devices[2], mig;
static int index_of(void *d) { return d == (void *)&devices[1]; }
int nvmlInit_v2(void) { return COUNT < 0 ? 9 : 0; }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *minor) { *minor = 1 - index_of(d); return 0; }
int nvmlDeviceGetUUID(void *d, char *text, unsigned size) {
  snprintf(text, size, d == (void *)&mig ? "MIG-1" : index_of(d) ? "GPU-1" : "GPU-0"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *pci) {
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, 32, "00000000:%02X:00.0", 0x3a + index_of(d)); return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) {
  *now = *next = 1; return index_of(d) ? 0 : 3; }
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **found) {
  *found = &mig; return i == 2 ? 0 : 6; }
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *id) { *id = 5; return 0; }
int nvmlDeviceGetComputeInstanceId(void *d, unsigned *id) { *id = 0; return 0; }
"""
ASK = """
import dataclasses, json, sys
from driverforge_core.errors import Unavailable
from driverforge_node.host.nvml import PyNvml
try:
    print(json.dumps([dataclasses.asdict(gpu) for gpu in PyNvml(sys.argv[1]).gpus()]))
except Unavailable as error:
    print(json.dumps(error.brief))
"""

pytestmark = pytest.mark.skipif(
    bool(missing("cc")), reason="no C compiler to make a stand-in for libnvidia-ml"
)


def answer(folder: Path, count: int) -> object:
    """In a process of its own: a loaded library stays loaded."""
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.580.65.06"
    source.write_text(STUB)
    run("cc", "-shared", "-fPIC", f"-DCOUNT={count}", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, source)
    path = ":".join(entry for entry in sys.path if entry)
    return json.loads(run(sys.executable, "-c", ASK, library, env={"PYTHONPATH": path}).stdout)


def test_gpus_and_mig_devices(tmp_path: Path) -> None:
    """The library is found at its path in the driver root, not where the linker would look."""
    mig = {"gpu_instance": 5, "compute_instance": 0, "index": 2, "uuid": "MIG-1"}
    assert answer(tmp_path, 2) == [
        {"index": 0, "minor": 1, "uuid": "GPU-0", "bus_id": "0000:3a:00.0", "mig_enabled": False, "migs": []},
        {
            "index": 1,
            "minor": 0,
            "uuid": "GPU-1",
            "bus_id": "0000:3b:00.0",
            "mig_enabled": True,
            "migs": [mig],
        },
    ]


def test_no_driver_and_no_gpu_are_said(tmp_path: Path) -> None:
    assert answer(tmp_path, -1) == "NVML does not start: Driver Not Loaded"
    assert answer(tmp_path, 0) == "NVML sees no GPU"


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    path = ":".join(entry for entry in sys.path if entry)
    said = run(sys.executable, "-c", ASK, tmp_path / "libnvidia-ml.so.1", env={"PYTHONPATH": path}).stdout
    assert "NVML does not start" in said


def test_addresses_are_those_of_sysfs() -> None:
    assert sysfs_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert sysfs_address("00010000:3B:00.0") == "00010000:3b:00.0"
