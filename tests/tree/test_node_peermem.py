"""GPUDirect RDMA: nvidia-peermem is loaded where a node can use it, and keeps no node from its driver.

D3 is a defect of NVIDIA's container, by its name in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.image import ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_node.commands import init, unload
from driverforge_node.driver.build import cache
from driverforge_node.driver.build.publish import stage_modules
from driverforge_node.driver.choice import choose_modules
from driverforge_node.driver.converge import converge
from driverforge_node.driver.plan import next_steps
from driverforge_node.driver.state import network, paths
from driverforge_node.driver.state.facts import DriverFacts, Goal, WantedDriver
from driverforge_node.driver.state.network import NetworkBuildFiles
from driverforge_node.driver.state.observe import observe
from driverforge_node.driver.state.wanted_driver import read_wanted
from driverforge_node.reconcile.outcomes import Done
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.fakes.fakeimage import DRIVER, RELEASE
from support.samples.driverfacts import image

WITHOUT_SYMBOLS = [
    "$ modprobe -d / nvidia_peermem",
    "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
    (
        "kernel: nvidia-peermem nv_mem_client_init:556: ERROR module compiled without IB peer memory "
        "symbols present"
    ),
]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path)
    made.environ["GPU_DIRECT_RDMA_ENABLED"] = "true"
    return made


def add_network(node: FakeNode, *, loaded: bool = True) -> None:
    base = "/sys/bus/pci/devices/0000:5e:00.0"
    node.files.make_dirs(base)
    for name, text in (("vendor", "0x15b3\n"), ("device", "0x101d\n"), ("class", "0x020000\n")):
        node.files.write_atomic(f"{base}/{name}", text.encode())
    if loaded:
        node.files.make_dirs(network.INFINIBAND)


def add_build_files(
    node: FakeNode, folder: str, text: str = "0x0 ib_register_peer_memory_client ib_core EXPORT_SYMBOL\n"
) -> str:
    node.files.make_dirs(folder)
    node.files.write_atomic(f"{folder}/{network.SYMBOLS}", text.encode())
    return folder


def ready(node: FakeNode) -> Done:
    done = converge(node.host, read_wanted(node.host, Goal.SERVE))
    assert node.text(paths.DAEMONS_STATUS) == "Ready\n"
    return done


def seen(node: FakeNode, *, sources: bool = True) -> tuple[DriverFacts, WantedDriver]:
    """Facts and what is wanted, of an image that can compile."""
    wanted = read_wanted(node.host, Goal.SERVE)
    return replace(observe(node.host, wanted), image=image(sources=["open"] if sources else [])), wanted


def test_it_is_loaded_last_and_goes_before_the_module_it_depends_on(node: FakeNode) -> None:
    """D3: RHEL's script removes nvidia before nvidia-peermem."""
    add_network(node)
    assert ready(node).warnings == ()
    assert node.kernel.calls[-1] == "insert nvidia_peermem"
    node.kernel.calls.clear()
    unload.run(argparse.Namespace(plan=False, confirm=False), node.host)
    assert node.kernel.calls.index("remove nvidia_peermem") < node.kernel.calls.index("remove nvidia")
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]


def test_a_node_without_a_network_device_of_that_vendor_leaves_it_out(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator sets the variable for all nodes."""
    node.kernel.refuses["nvidia_peermem"] = WITHOUT_SYMBOLS
    assert ready(node).warnings == ()
    assert "insert nvidia_peermem" not in node.kernel.calls


def test_it_waits_for_the_network_drivers_modules_and_says_so(node: FakeNode) -> None:
    """modprobe would load the kernel's own ib_core in the place of MOFED's."""
    add_network(node, loaded=False)
    (warning,) = ready(node).warnings
    assert "no InfiniBand yet" in warning
    assert "insert nvidia_peermem" not in node.kernel.calls
    node.files.make_dirs(network.INFINIBAND)
    assert ready(node).warnings == ()
    assert "nvidia_peermem" in node.kernel.loaded_modules


def test_a_node_whose_peermem_is_refused_is_ready_and_names_the_cause(node: FakeNode) -> None:
    add_network(node)
    node.kernel.refuses["nvidia_peermem"] = WITHOUT_SYMBOLS
    written: list[object] = []

    def look(_: float) -> None:
        if node.text(paths.DAEMONS_STATUS) == "Ready\n":
            written.append(json.loads(node.text(paths.STATUS))["warnings"])

    node.clock.stop_at = node.clock.time + 20
    node.clock.on_wait = look
    assert (
        init.run(
            argparse.Namespace(plan=False, confirm=False, no_build=False, jobs=0, headers="", work_dir=""),
            node.host,
        )
        == 0
    )
    ((warning,),) = [list(found) for found in written[-1:] if isinstance(found, list)]
    assert "compiled without the peer memory functions" in warning
    assert "module compiled without IB peer memory symbols present" in warning
    assert "next: install MOFED" in warning
    assert node.kernel.calls.count("insert nvidia_peermem") == 1


def test_the_next_start_tries_again_and_reloads_nothing_else(node: FakeNode) -> None:
    add_network(node)
    node.kernel.refuses["nvidia_peermem"] = WITHOUT_SYMBOLS
    ready(node)
    node.kernel.refuses.clear()
    node.kernel.calls.clear()
    node.new_container()
    assert ready(node).warnings == ()
    assert [call for call in node.kernel.calls if "nvidia" in call] == ["insert nvidia_peermem"]


def test_a_module_that_the_driver_needs_still_ends_the_start(node: FakeNode) -> None:
    add_network(node)
    node.kernel.refuses["nvidia_uvm"] = WITHOUT_SYMBOLS
    with pytest.raises(Exception, match="nvidia_uvm"):
        ready(node)


@pytest.mark.parametrize(
    ("folder", "on_host", "found"),
    [
        (f"{network.MOUNTED}/x86_64/{RELEASE}", False, True),
        (f"{network.MOUNTED}/{RELEASE}", False, True),
        (f"{network.MOUNTED}/default", True, True),
        (f"{NODE}{network.OFED}/x86_64/{RELEASE}", True, True),
        (f"{NODE}{network.OFED}/x86_64/{RELEASE}", False, False),
        (f"{network.MOUNTED}/x86_64/6.1.0-49-cloud-amd64", True, False),
    ],
)
def test_the_network_drivers_build_files_are_found_where_its_container_or_the_host_has_them(
    node: FakeNode, folder: str, on_host: bool, found: bool
) -> None:
    add_build_files(node, folder)
    files = network.find_build_files(node.host, RELEASE, on_host=on_host)
    assert (files.folder if files else "") == (folder if found else "")


def test_nvidias_build_finds_them_and_nothing_is_written_among_them(node: FakeNode) -> None:
    folder = add_build_files(node, f"{network.MOUNTED}/x86_64/{RELEASE}")
    before = node.files.list_dir(network.MOUNTED)
    for text in ("one\n", "another\n"):
        add_build_files(node, folder, text)
        files = network.find_build_files(node.host, RELEASE, on_host=False)
        assert files is not None
        network.link_build_files(node.host, files, RELEASE)
        assert node.text(f"{network.OFED}/{RELEASE}/{network.SYMBOLS}") == text
    assert node.files.list_dir(network.MOUNTED) == before


def test_modules_that_were_compiled_without_this_network_driver_are_compiled_again(node: FakeNode) -> None:
    add_network(node)
    add_build_files(node, f"{network.MOUNTED}/x86_64/{RELEASE}")
    facts, wanted = seen(node)
    choice = choose_modules(facts, wanted)
    assert choice.source is None
    assert "against this node's network driver" in choice.reason
    files = facts.network.build_files
    assert isinstance(files, NetworkBuildFiles)
    described = ModuleSet.from_json(node.text(f"{paths.MODULE_SETS}/{RELEASE}/open/{paths.MODULE_SET}"))
    made = replace(described, network=files.identity).to_json()
    node.files.write_atomic(f"{paths.MODULE_SETS}/{RELEASE}/open/{paths.MODULE_SET}", made.encode())
    assert choose_modules(*seen(node)).source is not None


def test_an_image_that_cannot_compile_uses_what_it_has(node: FakeNode) -> None:
    add_network(node)
    add_build_files(node, f"{network.MOUNTED}/x86_64/{RELEASE}")
    assert choose_modules(*seen(node, sources=False)).source is not None
    node.environ["GPU_DIRECT_RDMA_ENABLED"] = "false"
    assert choose_modules(*seen(node)).source is not None  # nobody asked


def test_the_plan_compiles_against_the_network_driver(node: FakeNode) -> None:
    add_network(node)
    folder = add_build_files(node, f"{network.MOUNTED}/x86_64/{RELEASE}")
    plan = next_steps(*seen(node))
    compile_ = getattr(plan, "steps", ())[-1]
    assert compile_.network.folder == folder


def compiled(node: FakeNode, kind: str, identity: str) -> ModuleSet:
    """A module set as a compilation stages it, out of the image's modules; strip is played."""
    work = "/work"
    for name in ("nvidia", "nvidia-peermem"):
        node.files.make_dirs(f"{work}/{name}")
        node.files.copy(f"{paths.MODULE_SETS}/{RELEASE}/open/{name}.ko", f"{work}/{name}.ko")

    def strip(arguments: Sequence[str]) -> tuple[int, str, str]:
        node.files.copy(arguments[3], arguments[2])
        return 0, "", ""

    node.commands.programs["strip"] = strip
    return stage_modules(
        node.host,
        work,
        f"/stage-{kind}",
        image=image(),
        module_type="open",
        kernel=KernelRelease.parse(RELEASE),
        compiler="gcc",
        network=identity,
    )


def test_what_was_compiled_against_one_network_driver_is_not_taken_for_another(node: FakeNode) -> None:
    def key(identity: str) -> cache.CacheKey:
        return cache.CacheKey(
            driver=DRIVER,
            module_type="open",
            kernel=RELEASE,
            headers="linux-headers=1",
            compiler="gcc",
            network=identity,
        )

    assert compiled(node, "one", "sha256:" + "1" * 64).network == "sha256:" + "1" * 64
    cache.store(node.host, key("sha256:" + "1" * 64), "/stage-one")
    assert cache.restore(node.host, key("sha256:" + "1" * 64), "/again")
    assert not cache.restore(node.host, key("sha256:" + "2" * 64), "/again")
    assert not cache.restore(node.host, key(""), "/again")
