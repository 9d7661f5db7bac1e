"""The vectorAdd of the validator against a compiled stand-in for libcuda.

No GPU is used here: the stand-in says so in the name of its device.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import TemporaryFailure, Unavailable
from driverforge_toolkit.adapters.cuda_driver import DriverApi
from support.fakes import cudalibrary

FIRST, SECOND = [float(n) for n in range(1000)], [0.5 * n for n in range(1000)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudalibrary.build(tmp_path_factory.mktemp("cuda"))


def added(library: Path, *, timeout: float = 30) -> list[tuple[str, list[float]]]:
    return list(DriverApi([str(library)], timeout=timeout).add_on_each(FIRST, SECOND))


def test_each_device_adds_what_it_was_given(library: Path) -> None:
    expected = [a + b for a, b in zip(FIRST, SECOND, strict=True)]
    assert added(library) == [(cudalibrary.DEVICE, expected)] * 2


def test_no_device_gives_no_sums(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cudalibrary.DEVICES, "0")
    assert added(library) == []


@pytest.mark.parametrize("call", cudalibrary.CALLS)
def test_a_call_that_fails_is_named_with_the_drivers_words(
    call: str, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cudalibrary.FAILS, call)
    with pytest.raises(Unavailable, match=f"^{call} failed with CUDA error 999") as caught:
        added(library)
    assert caught.value.details[0] == "the stand-in was told to fail"
    assert "dmesg" in caught.value.resolution


def test_a_call_that_hangs_is_given_up(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cudalibrary.HANGS, "cuCtxSynchronize")
    with pytest.raises(TemporaryFailure, match="cuCtxSynchronize of libcuda does not return"):
        added(library, timeout=1)


def test_the_first_library_that_can_be_loaded_counts(library: Path) -> None:
    sums = DriverApi(["/no/such/libcuda.so.1", str(library)]).add_on_each([1.0], [2.0])
    assert list(sums) == [(cudalibrary.DEVICE, [3.0])] * 2


def test_every_library_that_could_not_be_loaded_is_named() -> None:
    with pytest.raises(Unavailable, match="cannot be loaded") as caught:
        list(DriverApi(["/no/libcuda.so.1", "/nor/libcuda.so.1"]).add_on_each([1.0], [2.0]))
    assert [line.partition(":")[0] for line in caught.value.details] == [
        "/no/libcuda.so.1",
        "/nor/libcuda.so.1",
    ]
