"""NVIDIA's own nvidia-ctk, for nodes with MIG and graphics, still writes the specs that were recorded.

`tests/tree/test_cdi_golden.py` compares ours with the records. The GPUs are a fake NVML library's.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.process import missing
from support.skipping import provided
from support.upstream import gotools, recordedcdi

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making device files and chroot need root"),
    pytest.mark.skipif(
        bool(missing("cc", "chroot", "ldd")), reason="no C compiler, or no chroot, for a fake NVML"
    ),
]


@pytest.mark.parametrize("name", recordedcdi.ROOTS)
def test_the_recorded_spec_is_what_the_program_writes(tmp_path: Path, name: str) -> None:
    provided(gotools.programs)
    assert recordedcdi.said(name, tmp_path) == recordedcdi.recorded(name)
