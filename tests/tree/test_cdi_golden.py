"""The specs that upstream's nvidia-ctk and installer wrote for a fake driver root: ours parse to the same.

They are in cases/toolkit/golden-cdi. More, with MIG and graphics, are in cases/nvidia-programs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from driverforge_host.gpu.roots import DriverRoots
from driverforge_host.ports import Gpu
from driverforge_toolkit.cdi.generate import SpecRequest, generate_management, make_spec
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.specfiles import write
from support.fakes import nvmllibrary
from support.fakes.driverroot import ROOT, FakeNvml, bare_node, write_tree
from support.fakes.fakehost import FakeNode
from support.samples.tinyso import tiny_so
from support.upstream import recordedcdi

CASES = Path(__file__).parents[1] / "cases/toolkit/golden-cdi"
MODES = ("gds", "imex", "management", "nvml", "nvswitch")
NVML = FakeNvml(
    tuple(
        Gpu(
            index=n, minor=n, uuid=f"GPU-0000000{n}-1111-2222-3333-444444444444", bus_id=f"0000:0{7 + n}:00.0"
        )
        for n in range(2)
    )
)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """The fixture's tree.

    Its libnvidia-ml was a compiled stub with a SONAME, the other libraries were no ELF files.
    """
    made = bare_node(tmp_path)
    write_tree(
        made,
        (CASES / "fixture-tree.txt").read_text(),
        contents={"libnvidia-ml.so.580.65.06": tiny_so("libnvidia-ml.so.1")},
    )
    return made


def golden(name: str) -> object:
    text = (CASES / f"{name}.yaml").read_text()
    text = text.replace("@DRIVER_ROOT@", ROOT).replace("@INSTALL_DIR@", "/usr/local/nvidia")
    return recordedcdi.with_void_mount(yaml.safe_load(text))


def test_every_recorded_spec_has_its_test() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {*MODES, "installer-management.nvidia.com-gpu"}


@pytest.mark.parametrize("mode", MODES)
def test_spec_is_upstreams(node: FakeNode, mode: str) -> None:
    request = SpecRequest(mode=SpecMode(mode), kind="nvidia.com/gpu", roots=DriverRoots(driver=ROOT))
    assert yaml.safe_load(write(make_spec(node.host, request, NVML))) == golden(mode)


def test_installers_management_spec_is_upstreams(node: FakeNode) -> None:
    path = generate_management(
        node.host,
        driver_root="/run/nvidia/driver",
        driver_root_ctr=ROOT,
        dev_root="/",
        dev_root_ctr=ROOT,
        output_dir="/var/run/cdi",
        kind="management.nvidia.com/gpu",
        hook_path="/usr/local/nvidia/toolkit/nvidia-cdi-hook",
    )
    assert path == "/var/run/cdi/management.nvidia.com-gpu.yaml"
    assert yaml.safe_load(node.text(path)) == golden("installer-management.nvidia.com-gpu")


@pytest.mark.parametrize("name", recordedcdi.ROOTS)
def test_spec_of_a_whole_root_is_upstreams(tmp_path: Path, name: str) -> None:
    """A GPU with DRM nodes, and two MIG devices of another, of which one has them; NVSDM, firmware."""
    node = bare_node(tmp_path)
    contents = {"mig-minors": recordedcdi.MINORS, nvmllibrary.NAME: tiny_so(nvmllibrary.SONAME)}
    write_tree(node, recordedcdi.tree(name), base="/", contents=contents)
    kind = "nvidia.com/gpu"  # nvidia-ctk's for each mode
    request = SpecRequest(mode=SpecMode(recordedcdi.mode_of(name)), kind=kind, roots=DriverRoots(driver="/"))
    found = make_spec(node.host, request, FakeNvml(nvmllibrary.GPUS))
    assert yaml.safe_load(write(found)) == yaml.safe_load(recordedcdi.recorded(name))
