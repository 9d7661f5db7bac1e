"""The startup probe of the operator's driver pods, as the shell runs it, with the node's paths elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driverforge_operator.operands.driver import startup_probe
from support.process import Finished, run


class Container:
    """The driver's container as the probe sees it: the kernel's module, the folder of marks, nvidia-smi."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.validations = folder / "validations"
        self.validations.mkdir()
        (folder / "refcnt").write_text("0\n")
        [shared] = startup_probe("gpu-operator")
        text = shared["data"]["startup-probe.sh"]
        text = text.replace("/run/nvidia/validations", str(self.validations))
        (folder / "probe.sh").write_text(text.replace("/sys/module/nvidia/refcnt", str(folder / "refcnt")))
        self.smi(6)

    def smi(self, status: int) -> None:
        program = self.folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)

    def probe(self, **environment: str) -> Finished:
        path = f"{self.folder}:{os.environ['PATH']}"
        return run("sh", self.folder / "probe.sh", check=False, env={"PATH": path, **environment})

    @property
    def ready(self) -> str:
        mark = self.validations / ".driver-ctr-ready"
        return mark.read_text() if mark.exists() else ""


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_a_driver_that_serves_is_ready_with_what_is_switched_on(container: Container) -> None:
    container.smi(0)
    assert container.probe(GDS_ENABLED="true").status == 0
    assert container.ready == "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"


def test_a_gpu_that_does_not_answer_is_waited_for_unless_nobody_shall_ask_it(container: Container) -> None:
    done = container.probe()
    assert (done.status, done.stdout, container.ready) == (1, "nvidia-smi failed\n", "")
    done = container.probe(DRIVER_VALIDATION_SKIP_GPU_INIT="true")
    assert (done.status, bool(container.ready)) == (0, True)
    assert "no GPU was asked" in done.stdout


@pytest.mark.parametrize("environment", [{}, {"DRIVER_VALIDATION_SKIP_GPU_INIT": "true"}])
def test_a_module_and_the_daemons_are_waited_for_in_any_case(
    container: Container, environment: dict[str, str]
) -> None:
    container.smi(0)
    (container.validations / ".driver-daemons-status").write_text("NotReady\n")
    assert container.probe(**environment).stdout == "the driver's daemons: NotReady\n"
    (container.folder / "refcnt").unlink()
    done = container.probe(**environment)
    assert (done.status, done.stdout) == (1, "the kernel has no module nvidia yet\n")
    assert container.ready == ""


def test_on_a_node_that_had_no_driver_since_its_start_the_reason_is_told(container: Container) -> None:
    container.validations.rmdir()
    done = container.probe()
    assert (done.status, done.stdout, done.stderr) == (
        1,
        f"there is no {container.validations} yet\n",
        "",
    )
    (container.folder / "refcnt").unlink()
    assert container.probe().stdout == "the kernel has no module nvidia yet\n"
