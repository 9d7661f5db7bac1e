"""`driverctl init`, `load` and `unload` on a fake node.

Files and module files are real; the kernel's module graph is in memory.
D1 and the like are defects of NVIDIA's container, by their names in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    InUse,
    NotPermitted,
    StorageFailed,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_driver.app.driver_life import driver_lock
from driverforge_driver.commands import init, load, status, unload
from driverforge_driver.commands.driver_options import ask_on
from driverforge_driver.driver import steps
from driverforge_driver.driver.converge import converge
from driverforge_driver.state import paths
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.module_sets import SourcePlace
from driverforge_driver.state.observe import lacks_label, observe
from driverforge_driver.state.records import RunningDaemon
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host import probe
from driverforge_host.ports import Metadata
from driverforge_host.reconcile.loop import Declined, gate_for
from driverforge_host.reconcile.outcomes import Step
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import CONTAINER_ID, POD, FakeNode, FakeProcess, fake_node
from support.fakes.fakeimage import DRIVER, RELEASE, write_image, write_modules
from support.heard import heard
from support.samples.arguments import arguments
from support.samples.tinyko import append_signature

UPSTREAM = "535.161.08"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path)
    made.clock.stop_at = made.clock.time + 20  # SIGTERM, some supervision rounds after it is ready
    return made


def trainer(pid: int = 812) -> FakeProcess:
    return FakeProcess(
        pid=pid, command="python3", holds=("/dev/nvidia-uvm",), container=CONTAINER_ID, pod=POD
    )


def ready(node: FakeNode) -> WantedDriver:
    """Bring the node to Ready, as `init` does before it waits."""
    wanted = read_wanted(node.host, Goal.SERVE)
    converge(node.host, wanted)
    return wanted


def left_in_run(node: FakeNode) -> list[str]:
    return sorted(
        str(p.relative_to(node.folder / "run-nvidia"))
        for p in (node.folder / "run-nvidia").rglob("*")
        if p.is_file()
    )


def test_init_goes_from_nothing_to_ready_and_back_to_nothing(node: FakeNode) -> None:
    seen: list[tuple[str, str]] = []

    def look(_: float) -> None:
        text = node.text(paths.STATUS)
        if text and probe.field(text, "phase") == "ready" and not seen:
            seen.append(("ready", json.loads(text)["module_source"]))
            assert node.text(paths.DAEMONS_STATUS) == "Ready\n"
            assert set(node.kernel.loaded_modules) >= {"nvidia", "nvidia_uvm", "nvidia_modeset"}
            assert node.text(paths.LOCK).strip().isdigit()

    node.clock.on_wait = look
    assert init.run(arguments(), node.host) == 0
    assert seen == [("ready", f"the image has open modules {DRIVER} for {RELEASE}")]
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]
    assert left_in_run(node) == []
    assert paths.ROOT not in node.places
    assert node.text(paths.FIRMWARE_SEARCH) == "\0"
    assert not node.files.exists(f"{paths.FIRMWARE}/{DRIVER}")


def test_the_load_tree_holds_our_modules_and_the_in_tree_ones_they_need(node: FakeNode) -> None:
    ready(node)
    tree = f"{paths.MODULES}/{RELEASE}"
    # D9: NVIDIA's sidecar loads it from the driver's root
    assert node.files.exists(f"{tree}/updates/driverforge/nvidia-peermem.ko")
    assert node.files.exists(f"{tree}/kernel/drivers/i2c-core.ko")
    assert not node.files.exists(f"{tree}/kernel/drivers/e1000.ko")
    assert node.files.exists(f"{tree}/modules.builtin")


def test_a_restart_in_a_new_container_reloads_nothing_and_fills_the_new_tree(node: FakeNode) -> None:
    ready(node)
    node.processes.add(trainer())
    node.kernel.calls.clear()
    node.new_container()
    ready(node)
    assert node.kernel.calls == []
    assert node.files.exists(f"{paths.MODULES}/{RELEASE}/updates/driverforge/nvidia.ko")
    assert node.text(paths.DAEMONS_STATUS) == "Ready\n"


# applied for its effect on a kernel that may lack it; a check itself
WITHOUT_A_CHECK = {"InsertHelpers", "VerifyModules"}
# not a part of every life: their checks are looked at one by one
LOOKED_AT_ALONE = {"Compile", "LabelDevices", "StartDaemon", "StopDaemons", "ClearStage", "MakeDevices"}


def test_every_step_of_a_life_fails_its_check_before_and_passes_after(node: FakeNode) -> None:
    """What proves a step has to be able to fail: it does right before the step is applied."""
    seen: set[str] = set()

    def gate(_: int, step: Step) -> None:
        seen.add(type(step).__name__)
        if type(step).__name__ not in WITHOUT_A_CHECK:
            assert step.problem(node.host), f"{step.describe()}: its check passes before it is done"

    node.files.write_atomic(paths.FIRMWARE_SEARCH, b"\n")
    node.files.make_dirs("/drivers")
    node.files.write_atomic("/drivers/nvidia.conf", b"NVreg_DeviceFileMode=0666\n")
    for goal in (Goal.SERVE, Goal.STOPPED):
        converge(node.host, read_wanted(node.host, goal), gate=gate)
    assert seen | WITHOUT_A_CHECK | LOOKED_AT_ALONE == set(steps.__all__)


def test_checks_of_steps_that_not_every_life_has(node: FakeNode) -> None:
    node.processes.add(FakeProcess(pid=900, command="nvidia-persistenced"))
    daemon = RunningDaemon(name="nvidia-persistenced", pid=900)
    node.host.files.make_dirs(paths.STAGE)
    node.host.mounts.rbind(paths.STAGE, paths.STAGE)
    undone: list[Step] = [
        steps.StopDaemons(daemons=(daemon,)),
        steps.ClearStage(),
        steps.MakeDevices(devices=(("/dev/nvidiactl", 195, 255),)),
    ]
    for step in undone:
        assert step.problem(node.host), step.describe()
        step.apply(node.host)
        assert step.problem(node.host) == "", step.describe()
    proprietary, there = (
        steps.Compile(release=RELEASE, driver=DRIVER, module_type=kind, jobs=1)
        for kind in ("proprietary", "open")
    )
    assert "no proprietary module set" in proprietary.problem(node.host)
    assert there.problem(node.host) == ""


def test_a_modprobe_that_inserts_nothing_points_to_its_configuration(node: FakeNode) -> None:
    """`install nvidia /bin/true` in modprobe.d: modprobe ends with 0 and the module is not there."""
    node.kernel.ignores.add("nvidia")
    with pytest.raises(CommandFailed, match="modprobe nvidia succeeded") as caught:
        init.run(arguments(), node.host)
    assert "/etc/modprobe.d" in caught.value.resolution


def test_a_signal_while_a_pod_trains_leaves_the_driver_and_names_the_pod(node: FakeNode) -> None:
    node.clock.on_wait = lambda _: node.processes.add(trainer())
    with heard() as said:
        assert init.run(arguments(), node.host) == 0
    assert said == [
        "the driver stays loaded: it is in use",
        f"process 812 (python3, container {CONTAINER_ID[:12]}, pod {POD}) holds /dev/nvidia-uvm",
    ]
    assert {"nvidia", "nvidia_uvm", "nvidia_modeset"} <= set(node.kernel.loaded_modules)
    assert paths.ROOT not in node.places
    assert node.text(paths.DAEMONS_STATUS) == "NotReady\n"
    assert node.text(paths.DIGEST)


@pytest.mark.parametrize("module", ["nvidia", "nvidia_uvm", "nvidia_modeset"])
def test_a_module_that_does_not_load_never_ends_in_ready(node: FakeNode, module: str) -> None:
    """D1: upstream writes Ready, mounts the root and waits after every modprobe failed."""
    node.kernel.refuses[module] = [
        "modprobe: ERROR: could not insert 'nvidia': Unknown symbol in module, or unknown parameter"
    ]
    said: list[str] = []
    node.clock.on_wait = lambda _: said.append(node.text(paths.DAEMONS_STATUS))
    with pytest.raises(Unsupported) as caught:
        init.run(arguments(), node.host)
    assert "Ready\n" not in said
    assert f"could not insert the module {module}" in caught.value.brief
    assert caught.value.details[-1] == "left on this node: nothing that was not there before"
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]
    assert left_in_run(node) == []
    assert paths.ROOT not in node.places
    assert node.text(paths.FIRMWARE_SEARCH).strip("\0\n") == ""


def test_a_failing_rmmod_is_an_error_and_nothing_is_loaded_over_the_old_driver(node: FakeNode) -> None:
    """D2: upstream reports success and installs over the old module."""
    ready(node)
    node.kernel.stuck["nvidia_uvm"] = "rmmod: ERROR: could not remove 'nvidia_uvm': Device or resource busy"
    node.environ["DRIVER_CONFIG_DIGEST"] = "another"
    node.kernel.calls.clear()
    with pytest.raises(CommandFailed) as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[0] == "rmmod: ERROR: could not remove 'nvidia_uvm': Device or resource busy"
    assert "left on this node: /run/nvidia/driver is absent and was ours" in caught.value.details
    assert not [call for call in node.kernel.calls if call.startswith("insert")]
    assert node.text(paths.DAEMONS_STATUS) == "NotReady\n"


@pytest.mark.parametrize("command", [init.run, load.run, unload.run])
def test_a_second_instance_leaves_all_files_alone(
    node: FakeNode, command: Callable[[argparse.Namespace, object], int]
) -> None:
    """D6: upstream's second start truncates the first one's PID file."""
    ready(node)
    with driver_lock(node.host, 4711):
        before = {path: (node.folder / "run-nvidia" / path).read_bytes() for path in left_in_run(node)}
        calls = list(node.kernel.calls)
        with pytest.raises(TemporaryFailure, match="PID 4711"):
            command(arguments(), node.host)
        assert {
            path: (node.folder / "run-nvidia" / path).read_bytes() for path in left_in_run(node)
        } == before
        assert node.kernel.calls == calls
        assert node.text(paths.LOCK) == "4711\n"


def test_without_a_gpu_nothing_is_touched(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    with pytest.raises(Unavailable, match="no NVIDIA GPU") as caught:
        init.run(arguments(), node.host)
    assert caught.value.exit_code == 69
    assert left_in_run(node) == []
    assert node.kernel.calls == []


def test_a_gpu_of_another_driver_is_named_with_its_owner(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    node.add_gpu("0000:3b:00.0", driver="vfio-pci")
    with pytest.raises(Unsupported, match="vfio-pci") as caught:
        init.run(arguments(), node.host)
    assert caught.value.details == ("0000:3b:00.0 [10de:20b0] is bound to vfio-pci",)


def test_unsigned_modules_are_refused_before_a_working_driver_is_unloaded(node: FakeNode) -> None:
    ready(node)
    node.environ["DRIVER_CONFIG_DIGEST"] = "another"
    security = "/proc/1/root/sys/kernel/security"  # a mount of its own, which no runtime gives to a container
    node.files.make_dirs(security)
    node.files.write_atomic(f"{security}/lockdown", b"none [integrity] confidentiality\n")
    calls = list(node.kernel.calls)
    with pytest.raises(NotPermitted, match="unsigned") as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[0] == "kernel lockdown is in mode 'integrity'"
    assert node.kernel.calls == calls


def test_a_signed_set_is_taken_and_its_key_judged_by_the_kernel(node: FakeNode) -> None:
    trailer = append_signature(b"", signer=b"Example", key_id=b"k", signature=b"s")
    write_modules(node.files, f"{paths.MODULE_SETS}/{RELEASE}/open", trailer=trailer)
    node.files.make_dirs("/sys/module/module/parameters")
    node.files.write_atomic("/sys/module/module/parameters/sig_enforce", b"Y\n")
    node.kernel.refuses["nvidia"] = [
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    ]
    with pytest.raises(NotPermitted, match="does not accept its signature"):
        init.run(arguments(), node.host)


# of a real kernel: its own key, and one of the firmware's
KEYS = b"""02b10f52 I------     1 perm 1f030000     0     0 keyring   .builtin_trusted_keys: 2
165c1b7a I------     1 perm 1f010000     0     0 asymmetri Debian Secure Boot CA: 6ccece7e: X509.rsa 419ea1 []
1eb4e4b2 I------     1 perm 1f010000     0     0 asymmetri Site: modules: 0a1b2c3d: X509.rsa 1b2c3d []
"""


def test_a_key_that_is_not_enrolled_is_named_before_a_working_driver_is_unloaded(node: FakeNode) -> None:
    ready(node)
    node.environ["DRIVER_CONFIG_DIGEST"] = "another"
    trailer = append_signature(b"", signer=b"Site", key_id=b"k", signature=b"s")
    write_modules(node.files, f"{paths.MODULE_SETS}/{RELEASE}/open", trailer=trailer, signer_key="ee")
    node.files.make_dirs("/sys/module/module/parameters")
    node.files.write_atomic("/sys/module/module/parameters/sig_enforce", b"Y\n")
    node.files.write_atomic("/proc/keys", KEYS)
    calls = list(node.kernel.calls)
    with pytest.raises(NotPermitted, match="does not have the key") as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[1].endswith(f"{RELEASE}/open is signed by Site ee")
    assert node.kernel.calls == calls
    write_modules(node.files, f"{paths.MODULE_SETS}/{RELEASE}/open", trailer=trailer, signer_key="0a1b2c3d")
    node.kernel.refuses["nvidia"] = [
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    ]
    with pytest.raises(NotPermitted, match="does not accept its signature"):
        init.run(arguments(), node.host)


def test_a_damaged_module_is_not_inserted(node: FakeNode) -> None:
    node.files.write_atomic(f"{paths.MODULE_SETS}/{RELEASE}/open/nvidia-uvm.ko", b"not what was built")
    with pytest.raises(DriverforgeError, match="is damaged"):
        init.run(arguments(), node.host)
    assert node.kernel.calls == []
    assert left_in_run(node) == []


@pytest.mark.parametrize("command", [init.run, load.run, unload.run])
def test_not_root(node: FakeNode, command: Callable[[argparse.Namespace, object], int]) -> None:
    node.processes.user = 1000
    with pytest.raises(NotPermitted, match="needs root"):
        command(arguments(), node.host)
    assert left_in_run(node) == []


def test_an_image_for_another_kernel_says_which_it_has(node: FakeNode) -> None:
    node.kernel.running = "6.12.94+deb13-cloud-amd64"
    with pytest.raises(Unsupported, match="running kernel 6") as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[0] == f"modules in the image: for {RELEASE}"


def test_modules_of_the_node_cache_are_used_and_an_unfinished_entry_is_not(node: FakeNode) -> None:
    node.files.remove_tree(paths.MODULE_SETS)
    cache = node.host.node
    folder = f"{paths.CACHE}/{DRIVER}/{RELEASE}/open"
    cache.make_dirs(folder)
    cache.write_atomic(f"{folder}/nvidia.ko", b"half")
    with pytest.raises(Unsupported):
        init.run(arguments(), node.host)
    write_modules(cache, folder)  # type: ignore[arg-type]
    wanted = ready(node)
    assert observe(node.host, wanted).sources[0].place is SourcePlace.CACHE
    assert "nvidia" in node.kernel.loaded_modules


def test_parameters_of_the_operator_reach_modprobe(node: FakeNode) -> None:
    node.files.make_dirs("/drivers")
    node.files.write_atomic(
        "/drivers/nvidia.conf",
        b"# from the ConfigMap\nNVreg_DeviceFileMode=0666\n\nNVreg_EnableGpuFirmware=0\n",
    )
    ready(node)
    assert (
        node.text("/etc/modprobe.d/nvidia.conf")
        == "options nvidia NVreg_DeviceFileMode=0666 NVreg_EnableGpuFirmware=0\n"
    )
    assert node.text(paths.FIRMWARE_SEARCH) == "\n"


def test_a_firmware_path_that_was_set_comes_back(node: FakeNode) -> None:
    node.files.write_atomic(paths.FIRMWARE_SEARCH, b"/srv/firmware\n")
    assert init.run(arguments(), node.host) == 0
    assert node.text(paths.FIRMWARE_SEARCH) == "/srv/firmware\n"


def test_in_use_refuses_to_unload_with_status_75(node: FakeNode) -> None:
    ready(node)
    node.processes.add(trainer())
    before = node.text(paths.DAEMONS_STATUS)
    with pytest.raises(InUse) as caught:
        unload.run(arguments(), node.host)
    assert caught.value.exit_code == 75
    assert POD in caught.value.details[0]
    assert node.text(paths.DAEMONS_STATUS) == before
    assert paths.ROOT in node.places


def test_load_loads_and_leaves(node: FakeNode) -> None:
    assert load.run(arguments(), node.host) == 0
    assert "nvidia_uvm" in node.kernel.loaded_modules
    assert paths.ROOT not in node.places
    assert node.text(paths.DAEMONS_STATUS) == ""
    node.kernel.calls.clear()
    ready(node)  # init after load
    assert node.kernel.calls == []


@pytest.mark.parametrize("command", [init, load])
def test_plan_prints_what_is_decidable_and_changes_nothing(
    node: FakeNode, capsys: pytest.CaptureFixture[str], command: init.__class__
) -> None:
    before = sorted(str(p) for p in node.folder.rglob("*"))
    assert command.run(arguments(plan=True), node.host) == 0
    out = capsys.readouterr().out
    assert f"because the image has open modules {DRIVER} for {RELEASE}" in out
    assert "load the module nvidia_uvm" in out
    assert "not known yet: device numbers" in out
    assert sorted(str(p) for p in node.folder.rglob("*")) == before


def test_confirm_asks_before_each_step_and_no_stops_there(node: FakeNode) -> None:
    wanted = read_wanted(node.host, Goal.SERVE)
    out = StringIO()
    with pytest.raises(Declined, match="not confirmed"):
        converge(node.host, wanted, gate=gate_for(node.host, ask=ask_on(StringIO("y\n\nn\n"), out)))
    assert [line.partition(":")[0] for line in out.getvalue().splitlines()] == ["step 1", "step 2", "step 3"]
    assert node.kernel.calls == []


def test_a_signal_between_two_steps_ends_in_a_clean_node(node: FakeNode) -> None:
    node.clock.stop_at = None

    def stop_when_loaded(_: float) -> None:
        if "nvidia_uvm" in node.kernel.loaded_modules and node.clock.stop_at is None:
            node.clock.stop_at = 0

    node.clock.on_wait = stop_when_loaded
    assert init.run(arguments(), node.host) == 0
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]
    assert "insert nvidia_modeset" not in node.kernel.calls
    assert left_in_run(node) == []


def test_a_signal_during_a_compilation_ends_it_and_leaves_a_clean_node(node: FakeNode) -> None:
    node.files.remove_tree("/opt")
    write_image(node.files, modules=False, sources={"open": "/usr/src/nvidia/kernel-open"})
    node.clock.stop_at = None

    def nproc(_: object) -> tuple[int, str, str]:
        node.clock.stop_at = 0
        raise TemporaryFailure("make stopped by SIGTERM")

    node.commands.programs["nproc"] = nproc
    node.files.make_dirs("/etc")
    node.files.write_atomic("/etc/os-release", b"ID=debian\nVERSION_ID=12\n")
    assert init.run(arguments(), node.host) == 0
    assert node.kernel.calls == []
    assert left_in_run(node) == []


def test_a_compilation_that_fails_leaves_the_old_driver_serving(node: FakeNode) -> None:
    ready(node)
    node.files.remove_tree("/opt")
    write_image(node.files, driver=UPSTREAM, modules=False, sources={"open": "/usr/src/nvidia/kernel-open"})
    node.files.make_dirs("/etc")
    node.files.write_atomic("/etc/os-release", b"ID=debian\nVERSION_ID=12\n")
    node.commands.programs["nproc"] = lambda _: (1, "", "nproc: broken")
    node.kernel.calls.clear()
    with pytest.raises(Unavailable) as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[-1] == "left on this node: nothing that was not there before"
    assert node.kernel.calls == []
    assert "nvidia" in node.kernel.loaded_modules


def test_a_separate_tree_is_used_where_lib_modules_is_the_nodes(node: FakeNode) -> None:
    node.mounts.made.append("/lib/modules")
    wanted = ready(node)
    assert observe(node.host, wanted).load_base == paths.SEPARATE_TREE
    assert node.files.exists(f"{paths.SEPARATE_TREE}/lib/modules/{RELEASE}/updates/driverforge/nvidia.ko")
    assert not node.files.exists(f"{paths.MODULES}/{RELEASE}/updates")


def test_status_tells_what_is_there(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    ready(node)
    node.processes.add(trainer())
    assert status.run(arguments(json=True), node.host) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["driver"] == DRIVER
    assert shown["root"] == "ours"
    assert shown["held_by"] == [
        f"process 812 (python3, container {CONTAINER_ID[:12]}, pod {POD}) holds /dev/nvidia-uvm"
    ]
    assert status.run(arguments(), node.host) == 0
    assert "probe          Ready" in capsys.readouterr().out


def test_disk_full_leaves_the_node_as_it_was(node: FakeNode) -> None:
    class Full(FakeFiles):
        """A container whose disk fills while the tree is written."""

        def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
            if path.endswith("nvidia-uvm.ko"):
                raise StorageFailed(f"no space left while writing {path}", resolution="free space")
            super().write_atomic(path, data, mode=mode)

    node.files = Full(node.places, node.files.fuse)
    with pytest.raises(StorageFailed, match="no space left") as caught:
        init.run(arguments(), node.host)
    assert caught.value.details[-1] == "left on this node: nothing that was not there before"
    assert node.kernel.calls == []
    assert left_in_run(node) == []


def test_a_fault_of_ours_in_a_step_is_rolled_back_like_any_error(node: FakeNode) -> None:
    class Broken(FakeFiles):
        """Files with a bug in them."""

        def make_char_device(self, path: str, major: int, minor: int) -> None:
            raise KeyError(path)

    node.files = Broken(node.places, node.files.fuse)
    with pytest.raises(KeyError):
        init.run(arguments(), node.host)
    with pytest.raises(KeyError):
        load.run(arguments(), node.host)
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]
    assert left_in_run(node) == []


def test_what_another_start_did_before_we_had_the_lock_is_not_taken_back(node: FakeNode) -> None:
    """The other one ends while we wait for its lock. Our start fails then, and goes back to its state."""

    class Late(FakeFiles):
        """Between our first look and the lock, the other start comes and goes."""

        def lock(self, path: str, *, text: str) -> AbstractContextManager[bool]:
            if not self.exists(paths.DIGEST):
                node.environ["DRIVER_CONFIG_DIGEST"] = "the other's"
                ready(node)
                node.environ["DRIVER_CONFIG_DIGEST"] = "ours"
                node.kernel.stuck["nvidia_uvm"] = "rmmod: ERROR: could not remove 'nvidia_uvm': busy"
            return super().lock(path, text=text)

    node.environ["DRIVER_CONFIG_DIGEST"] = "ours"
    node.files = Late(node.places, node.files.fuse)
    with pytest.raises(CommandFailed, match="could not remove"):
        init.run(arguments(), node.host)
    assert node.text(paths.DIGEST) == "the other's\n"
    assert {"nvidia", "nvidia_uvm"} <= set(node.kernel.loaded_modules)


@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda node: node.kernel.remove("nvidia_uvm"), "not loaded: nvidia_uvm"),
        (lambda node: node.mounts.unmount(paths.ROOT), f"{paths.ROOT} is not this container's root"),
    ],
)
def test_what_somebody_takes_away_from_a_ready_driver_ends_its_readiness(
    node: FakeNode, take: Callable[[FakeNode], None], told: str
) -> None:
    node.clock.stop_at = None
    statuses: list[str] = []

    def when_ready(_: float) -> None:
        text = node.text(paths.STATUS)
        if text and probe.field(text, "phase") == "ready" and not statuses:
            statuses.append(node.text(paths.DAEMONS_STATUS))
            take(node)

    node.clock.on_wait = when_ready
    with pytest.raises(CommandFailed, match=told):
        init.run(arguments(), node.host)
    assert statuses == ["Ready\n"]
    assert node.text(paths.DAEMONS_STATUS) != "Ready\n"
    assert probe.field(node.text(paths.STATUS), "phase") != "ready"


def test_a_refused_start_takes_back_the_readiness_of_a_killed_one_and_of_no_other(node: FakeNode) -> None:
    ready(node)
    node.environ["DRIVER_CONFIG_DIGEST"] = "another"
    node.processes.add(trainer())
    with driver_lock(node.host, 4711), pytest.raises(InUse):
        init.run(arguments(), node.host)
    assert node.text(paths.DAEMONS_STATUS) == "Ready\n"
    with pytest.raises(InUse):
        init.run(arguments(), node.host)
    assert node.text(paths.DAEMONS_STATUS) == "NotReady\n"


def under_selinux(node: FakeNode, *, fails: bool = False, seen_by_us: bool = False) -> list[Sequence[str]]:
    """A kernel with SELinux, played: files have labels, and chcon changes the driver root's.

    selinuxfs is a mount of its own below /sys, which runtimes give to few containers (`seen_by_us`).
    """
    called: list[Sequence[str]] = []

    class Labelled(FakeFiles):
        def metadata(self, path: str) -> Metadata | None:
            found = super().metadata(path)
            label = "container_file_t" if called and not fails else "device_t"
            return replace(found, label=f"system_u:object_r:{label}:s0") if found else None

    def chcon(words: Sequence[str]) -> tuple[int, str, str]:
        called.append(words)
        return (1, "", "chcon: failed to change context: Operation not supported") if fails else (0, "", "")

    node.files = Labelled(node.places, node.files.fuse)
    where = node.files if seen_by_us else node.host.node
    where.make_dirs("/sys/fs/selinux")
    where.write_atomic("/sys/fs/selinux/enforce", b"1")
    node.commands.programs["chcon"] = chcon
    return called


@pytest.mark.parametrize("seen_by_us", [False, True])
def test_device_files_of_the_root_are_labelled_for_containers_once(node: FakeNode, seen_by_us: bool) -> None:
    called = under_selinux(node, seen_by_us=seen_by_us)
    ready(node)
    ready(node)
    assert called == [["-R", "-t", "container_file_t", "/run/nvidia/driver/dev"]]


def test_a_root_that_is_not_ours_gets_no_label(node: FakeNode) -> None:
    called = under_selinux(node)
    node.files.make_dirs(f"{paths.ROOT}/dev")
    assert not lacks_label(node.host), "nothing is mounted there"
    ready(node)
    called.clear()
    assert lacks_label(node.host)
    node.files.remove_tree("/dev")
    assert not lacks_label(node.host)


def test_a_root_that_takes_no_labels_is_a_warning(node: FakeNode) -> None:
    called = under_selinux(node, fails=True)
    (warning,) = converge(node.host, read_wanted(node.host, Goal.SERVE)).warnings
    assert "/run/nvidia/driver/dev has no label for containers" in warning
    assert "Operation not supported" in warning
    assert len(called) == 1
    assert node.text(paths.DAEMONS_STATUS) == "Ready\n"


def test_without_selinux_nothing_is_labelled(node: FakeNode) -> None:
    ready(node)
    assert not [argv for argv in node.commands.calls if argv[0] == "chcon"]


def test_an_upgrade_removes_the_firmware_of_the_driver_before(node: FakeNode) -> None:
    ready(node)
    assert node.files.exists(f"{paths.FIRMWARE}/{DRIVER}/gsp_tu10x.bin")
    node.files.make_dirs(f"{paths.FIRMWARE}/470.1")
    node.files.write_atomic(f"{paths.FIRMWARE}/470.1/gsp.bin", b"a package's")
    node.files.remove_tree("/opt")
    write_image(node.files, driver=UPSTREAM)
    ready(node)
    assert node.files.exists(f"{paths.FIRMWARE}/{UPSTREAM}/gsp_tu10x.bin")
    assert not node.files.exists(f"{paths.FIRMWARE}/{DRIVER}")
    assert node.files.exists(f"{paths.FIRMWARE}/470.1/gsp.bin")
    converge(node.host, read_wanted(node.host, Goal.STOPPED))
    assert not node.files.exists(f"{paths.FIRMWARE}/{UPSTREAM}")
