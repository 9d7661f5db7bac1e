"""The name `nvidia-validator` as a process: real files and signals, a library that stands in for libcuda."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.fakes import cudalibrary
from support.process import start, stop, until

MAIN = (
    f"import sys; sys.path[:0] = {sys.path!r}; sys.argv[0] = 'nvidia-validator'; "
    "from driverctl.cli import main; main()"
)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "OUTPUT_DIR": str(folder / "validations"), **variables}


def validator(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN],
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Where the dynamic linker finds the stand-in, as it finds what a container's runtime put there."""
    return {"LD_LIBRARY_PATH": str(cudalibrary.build(tmp_path_factory.mktemp("cuda")).parent)}


def test_cuda_is_validated_on_the_stand_in_and_that_is_said(
    tmp_path: Path, libraries: Mapping[str, str]
) -> None:
    done = validator(tmp_path, COMPONENT="cuda", **libraries)
    assert done.returncode == 0, done.stderr
    assert cudalibrary.DEVICE in done.stderr
    assert (tmp_path / "validations/cuda-ready").read_text() == ""


@pytest.mark.parametrize(
    ("variable", "value", "brief"),
    [
        (cudalibrary.WRONG, "1", f"{cudalibrary.DEVICE} computes wrongly"),
        (cudalibrary.DEVICES, "0", "CUDA sees no GPU in this container"),
        (cudalibrary.FAILS, "cuLaunchKernel", "cuLaunchKernel failed with CUDA error 999"),
    ],
)
def test_cuda_that_does_not_work_fails_with_1_and_leaves_no_file(
    tmp_path: Path, libraries: Mapping[str, str], variable: str, value: str, brief: str
) -> None:
    ready = tmp_path / "validations/cuda-ready"
    ready.parent.mkdir()
    ready.touch()
    done = validator(tmp_path, COMPONENT="cuda", **libraries, **{variable: value})
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"error: {brief}")
    assert done.stderr.splitlines()[-1].startswith("  next: ")
    assert not ready.exists()


def test_a_switch_may_stand_alone_as_upstreams(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "--component", "gdrcopy", "--cleanup-all"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr.splitlines()[0] == "error: the kernel module gdrdrv is not loaded"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_metrics_are_served_until_the_pod_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    port = free_port()
    env = environment(tmp_path, COMPONENT="metrics", METRICS_PORT=str(port), NODE_NAME="n1")
    child = start([sys.executable, "-c", MAIN], log=log, env=env)
    try:
        until(lambda: "serving metrics" in log.read_text(), "the exporter", child=child, log=log)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b'gpu_operator_node_driver_ready{node="n1"} 0' in answer.read()
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0, log.read_text()
    finally:
        stop(child)
