"""The SONAME of a library, read from parts of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_toolkit.cdi.libraries import soname
from support.samples.tinyko import tiny_ko
from support.samples.tinyso import tiny_so


def of(data: bytes) -> str | None:
    return soname(lambda offset, size: data[offset : offset + size])


def test_soname_of_a_library() -> None:
    assert of(tiny_so("libnvidia-ml.so.1")) == "libnvidia-ml.so.1"
    assert of(tiny_so()) == ""


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60), tiny_ko(["depends="])])
def test_other_files_have_none(data: bytes) -> None:
    assert of(data) is None


@given(
    st.integers(min_value=0, max_value=len(tiny_so("libcuda.so.1")) - 1), st.binary(min_size=1, max_size=8)
)
def test_a_damaged_file_raises_nothing(at: int, noise: bytes) -> None:
    data = tiny_so("libcuda.so.1")
    of(data[:at])
    of(data[:at] + noise + data[at + len(noise) :])
