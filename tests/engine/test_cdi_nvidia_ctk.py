"""NVIDIA's own nvidia-ctk, for a node with MIG and graphics, still writes the spec that was recorded.

`tests/tree/test_cdi_golden.py` compares ours with the record. The GPUs are a fake NVML library's.
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


def test_the_recorded_spec_is_what_the_program_writes(tmp_path: Path) -> None:
    provided(gotools.programs)
    recordedcdi.write_root(tmp_path)
    assert recordedcdi.said(tmp_path) == recordedcdi.SPEC.read_text()
