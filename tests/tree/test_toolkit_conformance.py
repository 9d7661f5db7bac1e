"""The recorded runs of NVIDIA's installer: what ours leaves on a node equals it, value by value.

The cases of the NRI plugin are declared differences: ours refuses what asks for it.

Wrappers are compared by running them (test_toolkit_wrappers); documents of the runtime, CDI specifications
and config.toml as values.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_toolkit.app.management_spec import write_management_spec
from driverforge_toolkit.commands import toolkit as command
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from driverforge_toolkit.toolkit import artifacts
from driverforge_toolkit.toolkit.install import WRITTEN, InstalledRelease, install_release
from driverforge_toolkit.toolkit.release_plan import layout_of, wanted_release
from driverforge_toolkit.toolkit.runtime_request import request_of
from driverforge_toolkit.toolkit.settings import ToolkitSettings
from driverforge_toolkit.toolkit.wrapper import Wrapper, render_wrapper
from support.fakes.driverroot import ROOT as DRIVER_ROOT
from support.fakes.driverroot import bare_node, write_tree
from support.fakes.fakehost import FakeNode
from support.samples.toolkitsource import write_source
from support.samples.wrappers import CLEAN, call, modules, same_everywhere, write_telling
from support.upstream import recordedcdi
from support.upstream.toolkitcases import (
    ROOT,
    Case,
    Compared,
    daemon,
    deviations,
    load,
    parsed,
    patched,
)

CASES = load("installer")
OPERATIONS = {
    "install": 5,
    "install-toolkit": 4,
    "install-plan": 1,
    "nri-parse-cdi-devices": 9,
    "render-wrapper": 3,
    "runtimes-table": 5,
}
DECLARED = {case: group for group in deviations() for case in group.cases}
# upstream's fixture rootfs-1; its device files are plain files, without numbers
DRIVER = """\
lib/x86_64-linux-gnu/libcuda.so.999.88.77 file
lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.999.88.77 file
dev/nvidia0 c c3:0 666
dev/nvidiactl c c3:ff 666
dev/nvidia-caps/nvidia-cap1 c 1fe:1 666
dev/nvidia-caps-imex-channels/channel0 c 1fd:0 666
dev/nvidia-caps-imex-channels/channel1 c 1fd:1 666
dev/nvidia-caps-imex-channels/channel2047 c 1fd:7ff 666
dev/nvidia-fs0 c 1fb:0 666
dev/nvidia-nvswitch0 c 1fc:0 666
"""


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = bare_node(tmp_path)
    write_source(Path(made.files.real("/artifacts/deb")))
    write_source(Path(made.files.real("/artifacts/rpm")), rpm=True)
    write_tree(made, DRIVER)
    # a container without mounts: all paths are the node's
    for path in (
        "/proc/self/mountinfo",
        "/proc/1/mountinfo",
    ):
        made.files.make_dirs(path.rpartition("/")[0])
        made.files.write_atomic(path, b"")
    return made


def settings_of(node: FakeNode, words: list[str]) -> ToolkitSettings:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.settings_from(parser.parse_args(["run", *words]), node.host)


def found_files(node: FakeNode, folder: str) -> tuple[dict[str, object], dict[str, str]]:
    """Contents (of links: where they lead) and modes below a folder of the node, less our own record of
    config.toml.
    """
    top = Path(node.host.node.real(folder))
    contents: dict[str, object] = {}
    modes = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            contents[name] = {"symlink": str(path.readlink())}
        elif path.is_file() and name != WRITTEN:
            contents[name] = path.read_text()
            modes[name] = f"{path.stat().st_mode & 0o7777:04o}"
    return contents, modes


def below(names: dict[str, Any], folder: str) -> dict[str, Any]:
    return {
        name.removeprefix(f"{folder}/"): value
        for name, value in names.items()
        if name.startswith(f"{folder}/")
    }


def check_files(node: FakeNode, settings: ToolkitSettings, case: Case, folder: str) -> None:
    """`folder` is where the recording has what we have in INSTALL_DIR/toolkit."""
    contents, modes = found_files(node, layout_of(settings).toolkit)
    theirs = below(case["expected"]["files_observed"], folder)
    assert contents.keys() == theirs.keys()
    assert modes == below(case["expected"]["modes_observed"], folder)
    for name, text in theirs.items():
        if isinstance(text, str) and name.endswith(".toml"):
            assert contents[name] == text.replace(f"{ROOT}/{folder}/", f"{layout_of(settings).toolkit}/"), (
                "byte for byte"
            )
        elif text is not None:  # a wrapper
            assert contents[name] == text


def check_spec(node: FakeNode, settings: ToolkitSettings, text: str, folder: str) -> None:
    write_management_spec(node.host, settings, layout_of(settings))
    (name,) = node.files.list_dir(settings.cdi_output_dir)
    assert name == f"{settings.cdi_kind.replace('/', '-')}.yaml"
    found = yaml.safe_load(node.text(f"{settings.cdi_output_dir}/{name}"))
    for device in found["devices"]:
        for item in device["containerEdits"]["deviceNodes"]:
            for key in ("major", "minor", "fileMode", "permissions"):
                item.pop(key, None)
    recorded = yaml.safe_load(text.replace(folder, layout_of(settings).toolkit))
    assert found == recordedcdi.with_void_mount(recorded)


def check_documents(case: Case, compared: Compared) -> None:
    """The runtime's files: equal, or with the declared difference, which is there."""
    declared = DECLARED.get(case["id"])
    keys = set(declared.differs) if declared else set()
    assert not {path for path in compared.differing if not keys & set(path)}
    assert bool(keys) == bool(compared.differing)


def installed(node: FakeNode, settings: ToolkitSettings) -> InstalledRelease:
    return install_release(node.host, wanted_release(node.host, settings))


def play_install(case: Case, node: FakeNode) -> None:
    replaced = {"<fixture rootfs-1>": DRIVER_ROOT, "<fixture artifacts/deb>": "/artifacts/deb"}
    words = case["options"]["args"]
    for name, path in replaced.items():
        words = [word.replace(name, path) for word in words]
    settings = settings_of(node, words)
    installed(node, settings)
    check_files(node, settings, case, "toolkit-test/toolkit")
    expected = case["expected"]
    if settings.cdi_enabled:
        check_spec(
            node,
            settings,
            expected["files_observed"]["var/run/cdi/management.nvidia.com-gpu.yaml"],
            layout_of(settings).toolkit,
        )
    request = request_of(node.host, settings, layout_of(settings))
    where = (
        daemon("containerd", request.config, request.drop_in, {})
        if settings.runtime == "containerd"
        else daemon("docker", f"{request.config}.json", "", {})
    )
    theirs = {
        where.config: expected["runtime_config_text"].encode(),
        where.drop_in: expected["drop_in_text"].encode(),
    }
    theirs = {
        path: data.replace(b"{{ .toolkitRoot }}", f"{ROOT}/toolkit-test".encode())
        for path, data in theirs.items()
        if path
    }
    ours = parsed(patched(where, {}, request.wanted))
    check_documents(case, Compared(what="runtime apply", ours=ours, upstream=parsed(dict(theirs))))


def play_install_toolkit(case: Case, node: FakeNode) -> None:
    options = case["options"]
    seen = DRIVER_ROOT if "rootfs-1" in options["driver_root_ctr_path"] else "/empty"
    settings = settings_of(
        node,
        [
            f"--toolkit-install-dir={ROOT}/toolkit-test",
            f"--toolkit-package-type={options['package_type']}",
            f"--driver-root={options['driver_root']}",
            f"--driver-root-ctr-path={seen}",
            f"--cdi-enabled={options['cdi_enabled']}",
            f"--cdi-kind={options['cdi_kind']}",
            f"--cdi-output-dir={ROOT}/cdi",
            "--create-device-nodes=none",
            # upstream's test gives these structures their zero values
            "--nvidia-container-runtime-hook.skip-mode-detection=false",
            "--accept-nvidia-visible-devices-envvar-when-unprivileged=false",
        ],
    )
    node.files.make_dirs("/empty")
    installed(node, settings)
    check_files(node, settings, case, "toolkit-test")
    if error := case["expected"]["error_contains"]:
        with pytest.raises(Unavailable, match=error["error"]):
            write_management_spec(node.host, settings, layout_of(settings))
    elif settings.cdi_enabled:
        check_spec(node, settings, case["expected"]["cdi_spec_yaml"], "{{ .toolkitRoot }}")


def play_plan(case: Case, _: FakeNode) -> None:
    """Upstream does not compare the lists' order."""
    target, names = case["options"]["dest_dir"], case["input"]["libraries"]
    libraries = dict(zip(artifacts.LIBRARIES, (f"/artifacts/test/{name}" for name in names), strict=True))
    found = artifacts.copy_plan(
        "/artifacts/test", libraries, folder=target, default_runtime=case["options"]["default_runtime"]
    )
    expected = case["expected"]
    assert {(path, f"{target}/{name}") for path, name in found.copies} == {
        (item["S1"], item["S2"]) for item in expected["copies"]
    }
    links = {(goal, f"{target}/{name}") for name, goal in found.links}
    assert links == {(item["S1"], item["S2"]) for item in expected["symlinks_target_link"]}
    assert {f"{target}/{name}" for name, _ in found.wrappers} == {
        item["path"] for item in expected["wrappers"]
    }


def play_nri(case: Case, node: FakeNode) -> None:
    """Upstream's plugin answers here, also with no device: without the plugin, ours says so and ends."""
    namespaces = ",".join(case["options"]["allowed_management_namespaces"])
    words = ["--enable-nri-plugin", f"--nri-management-cdi-device-namespaces={namespaces}"]
    with pytest.raises(Unsupported) as caught:
        settings_of(node, words)
    assert DECLARED[case["id"]].refused == caught.value.brief


def play_table(case: Case, node: FakeNode) -> None:
    options = case["options"]
    name = [f"--runtime-name={options['runtime_name']}"] if options["runtime_name"] else []
    settings = settings_of(node, [*name, f"--set-as-default={options['set_as_default']}"])
    request = request_of(node.host, settings, layout_of(settings))
    assert request.wanted.default == case["expected"]["default"]
    found = {
        handler.name: handler.binary for handler in nvidia_handlers(options["root"], settings.runtime_name)
    }
    assert found == {key: item["Path"] for key, item in case["expected"]["runtimes"].items()}
    assert [handler.name for handler in request.wanted.handlers] == list(found)


def play_wrapper(case: Case, node: FakeNode) -> None:
    """What the program told under upstream's wrapper is recorded, with and without the driver.

    The recorded PATH has no commands, which the program here needs.
    """
    options, folder = case["options"], node.folder / "bin"
    folder.mkdir()
    write_telling(folder, options["wrapped_executable"], options["default_runtime"])
    commands = {name: f"{value}:{CLEAN['PATH']}" for name, value in (options["env"] or {}).items()}
    ours = Wrapper(
        program=f"{folder}/{options['wrapped_executable']}",
        environment=tuple(commands.items()),
        default_runtime=options["default_runtime"] if options["check_modules"] else "",
    )
    here = {"PATH": f"{folder}:{CLEAN['PATH']}"}
    for loaded in (True, False):
        listed = modules(node.folder, loaded=loaded)
        told = call(["sh"], render_wrapper(ours, modules=listed), ["x"], environ=here, cwd=folder)
        recorded = case["expected"]["told"]["loaded" if loaded else "not loaded"]
        assert same_everywhere(told, folder) == recorded
        program = "default_runtime" if options["check_modules"] and not loaded else "wrapped_executable"
        assert told[0] == f"program={options[program]}"


PLAYERS: dict[str, Callable[[Case, FakeNode], None]] = {
    "install": play_install,
    "install-toolkit": play_install_toolkit,
    "install-plan": play_plan,
    "nri-parse-cdi-devices": play_nri,
    "render-wrapper": play_wrapper,
    "runtimes-table": play_table,
}


def test_every_recorded_case_is_here_once() -> None:
    assert Counter(case["operation"] for case in CASES) == OPERATIONS
    assert len({case["id"] for case in CASES}) == sum(OPERATIONS.values()) == 27


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_run_leaves_what_upstreams_leaves_or_the_difference_is_declared(case: Case, node: FakeNode) -> None:
    assert case["id"] not in DECLARED or case["operation"] in ("install", "nri-parse-cdi-devices")
    PLAYERS[case["operation"]](case, node)
