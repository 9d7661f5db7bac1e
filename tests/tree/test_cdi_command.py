"""driverctl cdi on a fake node: options and upstream's variables, written files, and what people read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from driverctl.cli import run
from driverforge_core.errors import InputError, Unavailable, UsageError
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.cdi.generate import generate_management
from support.fakes.driverroot import DEVICES, ROOT, bare_node, write_tree
from support.fakes.fakehost import NODE, FakeNode

FIXTURE = Path(__file__).parents[1] / "cases/toolkit/golden-cdi/fixture-tree.txt"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = bare_node(tmp_path)
    write_tree(made, FIXTURE.read_text())
    made.environ["NVIDIA_CTK_DRIVER_ROOT"] = ROOT
    return made


def cdi(node: FakeNode, *words: str) -> int:
    return run(["cdi", *words], lambda: node.host)


def test_generate_prints_yaml_and_takes_options_before_variables(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.environ["NVIDIA_CTK_CDI_GENERATE_MODE"] = "imex"
    assert (
        cdi(node, "generate", "--mode", "management", "--disable-hook", "update-ldcache,enable-cuda-compat")
        == 0
    )
    spec = specfiles.read(capsys.readouterr().out, "out.yaml")
    assert spec.kind == "management.nvidia.com/gpu"
    assert [hook.args[1] for hook in spec.edits.hooks] == ["create-symlinks"]
    assert cdi(node, "generate") == 0
    assert specfiles.read(capsys.readouterr().out, "out.yaml").kind == "nvidia.com/imex-channel"


def test_generate_writes_a_file_once(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    kind = ("--vendor", "example.com", "--class", "device", "--device-name-strategy", "type-index")
    words = ("generate", "--mode", "static", "--output", "/etc/cdi/nvidia.yaml", *kind)
    assert cdi(node, *words) == 0
    assert capsys.readouterr().out == "wrote /etc/cdi/nvidia.yaml\n"
    found = yaml.safe_load(node.host.node.read_text("/etc/cdi/nvidia.yaml"))
    assert (found["kind"], [device["name"] for device in found["devices"]]) == (
        "example.com/device",
        ["all", "gpu0", "gpu1"],
    )
    assert cdi(node, *words) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_generate_writes_json_by_name_or_on_request(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    cdi(node, "generate", "--mode", "gds", "--output", "/etc/cdi/gds.json")
    assert json.loads(node.host.node.read_text("/etc/cdi/gds.json"))["kind"] == "nvidia.com/gds"
    capsys.readouterr()
    cdi(node, "generate", "--mode", "gds", "--format", "json", "--no-all-device")
    assert json.loads(capsys.readouterr().out)["devices"][0]["name"] == "all"


def test_host_paths_are_the_hosts(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    """The toolkit pod sees the driver root elsewhere than the host does."""
    node.environ.update(
        NVIDIA_CTK_DRIVER_ROOT="/run/nvidia/driver",
        DRIVER_ROOT_CTR_PATH=ROOT,
        DEV_ROOT="/",
        DEV_ROOT_CTR_PATH=ROOT,
    )
    cdi(node, "generate", "--mode", "management")
    spec = specfiles.read(capsys.readouterr().out, "out.yaml")
    theirs = [mount for mount in spec.edits.mounts if mount.host_path != "/dev/null"]
    assert len(theirs) == len(spec.edits.mounts) - 1
    assert {mount.host_path.startswith("/run/nvidia/driver/") for mount in theirs} == {True}
    assert {item.host_path.startswith("/dev/") for item in spec.devices[0].edits.device_nodes} == {True}
    assert {hook.path for hook in spec.edits.hooks} == {"/usr/bin/nvidia-cdi-hook"}


def test_a_failed_generation_writes_nothing(node: FakeNode) -> None:
    with pytest.raises(Unavailable, match="no GDRCopy device nodes found"):
        cdi(node, "generate", "--mode", "gdrcopy", "--output", "/etc/cdi/x.yaml")
    with pytest.raises(InputError, match="is not a CDI kind"):
        cdi(node, "generate", "--mode", "gds", "--class", "a/b", "--output", "/etc/cdi/x.yaml")
    assert not node.host.node.exists("/etc/cdi")


def test_every_wrong_name_is_told_at_once(node: FakeNode) -> None:
    with pytest.raises(UsageError) as caught:
        cdi(
            node,
            "generate",
            "--device-name-strategy",
            "index,name",
            "--disable-hook",
            "ldcache",
            "--enable-hook",
            "all",
        )
    assert [line.split(":")[0] for line in caught.value.details] == [
        "--device-name-strategy name",
        "--disable-hook ldcache",
        "--enable-hook all",
    ]


def test_list_names_devices_and_files_and_what_cannot_be_read(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.files.make_dirs(f"{NODE}/etc/cdi")
    node.files.write_atomic(f"{NODE}/etc/cdi/b.yaml", b"kind: [")
    cdi(node, "generate", "--mode", "nvswitch", "--output", f"{NODE}/etc/cdi/a.json")
    capsys.readouterr()
    assert cdi(node, "list") == 0
    said = capsys.readouterr()
    assert said.out == "nvidia.com/nvswitch=all\t/etc/cdi/a.json\n"
    assert said.err.startswith("/etc/cdi/b.yaml:1: ")


def test_a_node_without_specs_is_said_to_have_none(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cdi(node, "list", "--spec-dir", "/srv/cdi") == 0
    assert capsys.readouterr().err == "there are no spec files in /srv/cdi\n"
    assert cdi(node, "verify") == 0
    assert (
        capsys.readouterr().out == "nothing to verify: there are no spec files in /etc/cdi and /var/run/cdi\n"
    )


def test_verify_exits_1_and_says_what_to_do(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(node, FIXTURE.read_text(), base=NODE)
    node.files.make_dirs(f"{NODE}/etc/cdi")
    node.files.write_atomic("/proc/devices", DEVICES.encode())
    cdi(
        node,
        "generate",
        "--mode",
        "imex",
        "--driver-root",
        "/",
        "--driver-root-ctr-path",
        NODE,
        "--output",
        f"{NODE}/etc/cdi/imex.yaml",
    )
    capsys.readouterr()
    assert cdi(node, "verify") == 0
    assert capsys.readouterr().out == "1 spec file agrees with the node\n"
    node.files.remove(f"{NODE}/dev/nvidia-caps-imex-channels/channel0")
    assert cdi(node, "verify", "/etc/cdi/imex.yaml", "/etc/cdi/none.yaml") == 1
    said = capsys.readouterr().out
    assert "/etc/cdi/imex.yaml: /dev/nvidia-caps-imex-channels/channel0 is not there" in said
    assert "/etc/cdi/none.yaml: there is no such file" in said


def test_transform_moves_host_paths_and_keeps_the_containers(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    cdi(node, "generate", "--mode", "management", "--output", "/etc/cdi/a.yaml")
    assert (
        cdi(
            node,
            "transform",
            "root",
            "--from",
            ROOT,
            "--to",
            "/",
            "--input",
            "/etc/cdi/a.yaml",
            "--output",
            "/etc/cdi/b.json",
        )
        == 0
    )
    moved = specfiles.read(node.host.node.read_text("/etc/cdi/b.json"), "b.json")
    assert {mount.host_path for mount in moved.edits.mounts if mount.host_path != mount.container_path} == {
        "/dev/null"
    }
    capsys.readouterr()
    cdi(
        node,
        "transform",
        "--from",
        "/usr/bin",
        "--to",
        "/opt",
        "--relative-to",
        "container",
        "--input",
        "/etc/cdi/a.yaml",
    )
    spec = specfiles.read(capsys.readouterr().out, "out.yaml")
    assert {mount.container_path for mount in spec.edits.mounts if "nvidia-smi" in mount.host_path} == {
        "/opt/nvidia-smi"
    }


def test_transform_reads_standard_input(
    node: FakeNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin",
        io.StringIO("cdiVersion: 0.5.0\nkind: a.b/c\ndevices: [{name: x, containerEdits: {env: [A=b]}}]\n"),
    )
    cdi(node, "transform", "--from", "/a", "--to", "/b")
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "a.b/c"
    with pytest.raises(InputError, match="there is no file /none"):
        cdi(node, "transform", "--input", "/none")


def test_the_installer_fails_as_upstreams_where_there_is_no_device(node: FakeNode) -> None:
    write_tree(node, "lib64/libcuda.so.580.65.06 file", base="/empty")
    roots = {"driver_root": "/empty", "driver_root_ctr": "", "dev_root": "", "dev_root_ctr": ""}
    with pytest.raises(Unavailable, match="no NVIDIA device nodes found"):
        generate_management(node.host, **roots, output_dir="/out", kind="a.b/c", hook_path="/h")
    assert not node.files.exists("/out")


def test_modes_and_formats_are_taken_in_upper_case_as_nvidia_ctk_takes_them(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.environ["NVIDIA_CTK_CDI_GENERATE_MODE"] = "IMEX "
    node.environ["NVIDIA_CTK_CDI_OUTPUT_FORMAT"] = "JSON"
    assert cdi(node, "generate") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "nvidia.com/imex-channel"
    assert cdi(node, "generate", "--mode", "Management", "--format", "Json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "management.nvidia.com/gpu"


def test_a_variable_with_an_unknown_mode_or_format_is_refused(node: FakeNode) -> None:
    """An option with such a word never gets past the parser; a variable did, and counted as auto and yaml."""
    node.environ["NVIDIA_CTK_CDI_GENERATE_MODE"] = "menagement"
    node.environ["NVIDIA_CTK_CDI_OUTPUT_FORMAT"] = "toml"
    with pytest.raises(UsageError) as caught:
        cdi(node, "generate")
    assert [line.partition(":")[0] for line in caught.value.details] == [
        "NVIDIA_CTK_CDI_GENERATE_MODE menagement",
        "NVIDIA_CTK_CDI_OUTPUT_FORMAT toml",
    ]
