"""Specs compared with the node: each thing that would stop a container is one line with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from driverforge_host.gpu.roots import DriverRoots
from driverforge_host.ports import Mig
from driverforge_toolkit.cdi import specfiles, stale
from driverforge_toolkit.cdi.generate import generate_management
from driverforge_toolkit.cdi.verify import verify
from support.fakes.driverroot import DEVICES, add_device, bare_node, write_tree
from support.fakes.fakehost import NODE, FakeNode

HOOK = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
FIXTURE = Path(__file__).parents[1] / "cases/toolkit/golden-cdi/fixture-tree.txt"
NAME = "/var/run/cdi/management.nvidia.com-gpu.yaml"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node whose own root has the driver and its devices, with a spec that its toolkit pod wrote."""
    made = bare_node(tmp_path)
    write_tree(made, FIXTURE.read_text(), base=NODE)
    write_tree(made, f"{HOOK.lstrip('/')} file\nvar/run/cdi dir\nproc dir", base=NODE)
    made.places["/var/run/cdi"] = Path(made.files.real(f"{NODE}/var/run/cdi"))
    made.files.write_atomic("/proc/devices", DEVICES.encode())
    made.files.make_dirs("/sys/module/nvidia")
    made.files.write_atomic("/sys/module/nvidia/version", b"580.65.06\n")
    write(made)
    return made


def write(node: FakeNode) -> None:
    roots = {"driver_root": "/", "driver_root_ctr": NODE, "dev_root": "/", "dev_root_ctr": NODE}
    generate_management(
        node.host, **roots, output_dir="/var/run/cdi", kind="management.nvidia.com/gpu", hook_path=HOOK
    )


def lines(node: FakeNode, folder: str = "/var/run/cdi") -> list[str]:
    return [
        finding.line().removeprefix(f"{NAME}: ")
        for finding in verify(node.host, specfiles.load(node.host.node, [folder]))
    ]


def test_a_fresh_spec_agrees_with_its_node(node: FakeNode) -> None:
    assert lines(node) == []


def test_a_missing_file_is_named(node: FakeNode) -> None:
    node.files.remove(f"{NODE}/usr/bin/nvidia-smi")
    assert lines(node) == ["/usr/bin/nvidia-smi is not there; write it again: driverctl cdi generate"]


def test_a_spec_of_another_tool_is_not_for_our_generator(node: FakeNode) -> None:
    path = "/etc/cdi/intel.com-gpu.yaml"
    text = (
        "cdiVersion: 0.5.0\nkind: intel.com/gpu\ndevices: [{name: a, containerEdits: {deviceNodes: [{path: "
        "/dev/dri/card7}]}}]\n"
    )
    node.files.make_dirs(f"{NODE}/etc/cdi")
    node.files.write_atomic(f"{NODE}{path}", text.encode())
    assert lines(node, "/etc/cdi") == [
        f"{path}: /dev/dri/card7 is not there; let the tool that wrote it write it again"
    ]


def test_a_device_with_other_numbers_is_named(node: FakeNode) -> None:
    """nvidia-uvm gets its major from the kernel at each load."""
    add_device(node, f"{NODE}/dev/nvidia-uvm", 236, 0)
    assert lines(node) == [
        "/dev/nvidia-uvm is 236:0, the spec says 511:0; write it again: driverctl cdi generate",
        (
            "/dev/nvidia-uvm has the major 236, /proc/devices says 511; correct the node "
            "(driverctl devices nodes), then write the spec again"
        ),
    ]


def test_a_device_that_is_gone_or_something_else_is_named(node: FakeNode) -> None:
    node.files.remove(f"{NODE}/dev/nvidia1")
    node.files.write_atomic(f"{NODE}/dev/nvidiactl", b"text")
    found = "\n".join(lines(node))
    assert "/dev/nvidia1 is not there; make it (driverctl devices nodes)" in found
    assert "/dev/nvidiactl is not a character device" in found


def test_an_unloaded_module_is_named(node: FakeNode) -> None:
    node.files.write_atomic("/proc/devices", DEVICES.replace("511 nvidia-uvm\n", "").encode())
    text = "no loaded module serves /dev/{} (/proc/devices has no nvidia-uvm); load the driver"
    assert lines(node) == [text.format(name) for name in ("nvidia-uvm", "nvidia-uvm-tools")]


def test_a_spec_for_another_driver_version_is_named(node: FakeNode) -> None:
    node.files.write_atomic("/sys/module/nvidia/version", b"590.44.01\n")
    assert lines(node) == [
        "it is for driver 580.65.06, the loaded one is 590.44.01; write it again: driverctl cdi generate"
    ]


def test_a_hook_program_that_cannot_run_is_named(node: FakeNode) -> None:
    Path(node.files.real(f"{NODE}{HOOK}")).chmod(0o644)
    assert lines(node) == [f"the hook program {HOOK} cannot be executed; install the toolkit again"]
    node.files.remove(f"{NODE}{HOOK}")
    (line,) = lines(node)
    assert "is not there: no container with this device starts; install the toolkit" in line


def test_one_name_in_two_files_of_a_folder_is_a_conflict_and_in_two_folders_a_note(node: FakeNode) -> None:
    """CDI specification: of one folder neither is used; a later folder beats an earlier one."""
    node.files.copy(NAME, "/var/run/cdi/other.yaml")
    (line,) = lines(node)
    assert (
        "management.nvidia.com/gpu=all is in /var/run/cdi/management.nvidia.com-gpu.yaml too: "
        "runtimes resolve neither" in line
    )
    node.files.make_dirs(f"{NODE}/etc/cdi")
    node.files.copy(NAME, f"{NODE}/etc/cdi/x.yaml")
    node.files.remove("/var/run/cdi/other.yaml")
    findings = verify(node.host, specfiles.load(node.host.node))
    assert [(finding.path, finding.note) for finding in findings] == [("/etc/cdi/x.yaml", True)]


def test_files_that_are_no_specs_are_named_with_their_problems(node: FakeNode) -> None:
    node.files.write_atomic("/var/run/cdi/broken.yaml", b"kind: [")
    node.files.write_atomic("/var/run/cdi/empty.json", b"{}")
    node.files.write_atomic("/var/run/cdi/notes.txt", b"no spec, and nobody's business")
    found = "\n".join(lines(node))
    assert "/var/run/cdi/broken.yaml:1: " in found
    assert "/var/run/cdi/empty.json: cdiVersion: missing; correct or remove it" in found
    assert "notes.txt" not in found


def reasons(node: FakeNode, path: str = NAME) -> tuple[str, ...]:
    return stale.needs_regeneration(
        node.files, path, stale.observe(node.host, DriverRoots(driver="/", driver_here=NODE))
    )


def test_a_fresh_spec_needs_no_regeneration_and_is_not_written_again(node: FakeNode) -> None:
    before = node.files.identity(NAME)
    write(node)
    assert reasons(node) == ()
    assert node.files.identity(NAME) == before


def test_what_a_spec_depends_on_is_noticed(node: FakeNode) -> None:
    add_device(node, f"{NODE}/dev/nvidia2", 195, 2)
    assert reasons(node) == ("the device files changed",)
    write(node)
    write_tree(node, "lib/x86_64-linux-gnu/libcuda.so.590.44.01 file", base=NODE)
    node.files.write_atomic("/sys/module/nvidia/version", b"590.44.01\n")
    assert reasons(node) == ("the driver's version changed from 580.65.06 to 590.44.01",)
    write(node)
    node.files.make_dirs("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0")
    assert reasons(node) == ("the MIG layout changed",)
    write(node)
    assert reasons(node) == ()


def test_the_mark_of_a_mig_layout_stays_as_earlier_releases_wrote_it() -> None:
    """It is a hash of these texts: another one makes every spec with MIG stale."""
    text = "Mig(gpu_instance=1, compute_instance=0, index=None, uuid='')"
    assert repr(Mig(gpu_instance=1, compute_instance=0)) == text
    assert repr(Mig(gpu_instance=1, compute_instance=0, graphics=True)) == text


def test_another_driver_root_at_the_same_place_is_noticed(node: FakeNode) -> None:
    """A driver pod that was replaced: same version, another container."""
    other = node.folder / "another"
    shutil.copytree(node.places[NODE], other)
    node.places[NODE] = other
    assert reasons(node) == ("the driver root changed",)


def test_missing_and_broken_files_need_regeneration(node: FakeNode) -> None:
    assert reasons(node, "/var/run/cdi/none.yaml") == ("/var/run/cdi/none.yaml is missing or empty",)
    node.files.write_atomic(NAME, b"kind: [")
    assert reasons(node) == (f"{NAME} cannot be read",)


def test_a_spec_of_another_tool_is_judged_by_its_content(node: FakeNode) -> None:
    text = node.text(NAME)
    foreign = text[text.index("---") :]
    node.files.write_atomic(NAME, foreign.encode())
    assert reasons(node) == ()
    node.files.remove(f"{NODE}/dev/nvidia1")
    add_device(node, f"{NODE}/dev/nvidia0", 195, 7)
    add_device(node, f"{NODE}/dev/nvidia3", 195, 3)
    node.files.write_atomic(NAME, foreign.replace("580.65.06", "570.10.01").encode())
    assert set(reasons(node)) == {
        "the driver's version changed from 570.10.01 to 580.65.06",
        "/dev/nvidia1 is gone",
        "/dev/nvidia0 has other numbers now",
        "/dev/nvidia3 is new",
    }
