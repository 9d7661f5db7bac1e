"""GPUDirect RDMA: nvidia-peermem is loaded where a node can use it, and keeps no node from its driver.

D3 is a defect of NVIDIA's container, by its name in docs/compatibility.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import Unsupported
from driverforge_core.image import ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_driver.app import peermem_sidecar
from driverforge_driver.compile import cache
from driverforge_driver.compile.publish import stage_modules
from driverforge_driver.driver.choice import choose_modules
from driverforge_driver.driver.converge import converge
from driverforge_driver.driver.plan import next_steps
from driverforge_driver.state import network, paths
from driverforge_driver.state.facts import DriverFacts, Goal, WantedDriver
from driverforge_driver.state.network import NetworkBuildFiles
from driverforge_driver.state.observe import observe
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host.ports import LoadedModule
from driverforge_host.reconcile.outcomes import Done
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.fakes.fakeimage import DRIVER, RELEASE
from support.heard import heard
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
    cli.run(["unload"], lambda: node.host)
    assert node.kernel.calls.index("remove nvidia_peermem") < node.kernel.calls.index("remove nvidia")
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]


def test_a_node_without_a_network_device_of_that_vendor_leaves_it_out_and_logs_so(node: FakeNode) -> None:
    """The operator sets the variable for all nodes."""
    node.kernel.refuses["nvidia_peermem"] = WITHOUT_SYMBOLS
    with heard(logging.INFO) as said:
        assert ready(node).warnings == ()
    assert "nvidia-peermem is left out: no network device of PCI vendor 15b3 on this node" in said
    assert "insert nvidia_peermem" not in node.kernel.calls


def test_it_waits_for_the_network_drivers_modules_and_says_so(node: FakeNode) -> None:
    """modprobe would load the kernel's own ib_core in the place of MOFED's."""
    add_network(node, loaded=False)
    with heard(logging.INFO) as said:
        (warning,) = ready(node).warnings
    assert "no InfiniBand yet" in warning
    assert warning in said
    assert not [line for line in said if "left out" in line or not line]
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
    assert cli.run(["init"], lambda: node.host) == 0
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
            sources="",
            headers="linux-headers=1",
            compiler="gcc",
            network=identity,
        )

    assert compiled(node, "one", "sha256:" + "1" * 64).network == "sha256:" + "1" * 64
    cache.store(node.host, key("sha256:" + "1" * 64), "/stage-one")
    assert cache.restore(node.host, key("sha256:" + "1" * 64), "/again")
    assert not cache.restore(node.host, key("sha256:" + "2" * 64), "/again")
    assert not cache.restore(node.host, key(""), "/again")


# --- the sidecar


def serve(node: FakeNode, *events: Callable[[], None]) -> list[str]:
    """Run the sidecar with one event at each of its looks, then SIGTERM. Returns what it waited for."""
    waited: list[str] = []
    coming = list(events)

    def next_look(_: float) -> None:
        waited.append(peermem_sidecar.waits_for(node.host, mofed_on_host=node.environ.get(MOFED) == "true"))
        if coming:
            coming.pop(0)()
        else:
            node.clock.stop_at = 0

    node.clock.on_wait = next_look
    node.clock.stop_at = None
    assert cli.run(["peermem", "serve"], lambda: node.host) == 0
    return waited


MOFED = "USE_HOST_MOFED"


def test_the_sidecar_waits_for_driver_and_network_driver_and_loads_with_parameters(node: FakeNode) -> None:
    node.environ["GPU_DIRECT_RDMA_ENABLED"] = "false"
    node.files.make_dirs("/drivers")
    node.files.write_atomic("/drivers/nvidia-peermem.conf", b"peerdirect_support=1\n")
    add_network(node, loaded=False)
    waited = serve(
        node,
        lambda: running(node),
        lambda: put(node, peermem_sidecar.NETWORK_READY),
        lambda: node.files.make_dirs(network.INFINIBAND),
    )
    assert [text.partition(":")[0] for text in waited] == [
        "the driver is not ready",
        "the network driver's container is not ready",
        "the kernel has no InfiniBand",
        "",
    ]
    assert "insert nvidia_peermem peerdirect_support=1" in node.kernel.calls
    assert cli.run(["peermem", "probe"], lambda: node.host) == 0


def test_the_sidecar_waits_for_a_network_driver_of_the_host(node: FakeNode) -> None:
    running(node)
    node.environ[MOFED] = "true"

    def load_network_driver() -> None:
        add_network(node)
        node.kernel.loaded_modules["mlx5_core"] = LoadedModule(
            name="mlx5_core", refcount=0, holders=(), version="", state="Live"
        )
        assert cli.run(["peermem", "probe"], lambda: node.host) == 1

    waited = serve(node, load_network_driver)
    assert waited[0] == "the host has not loaded its network driver: no module mlx5_core"
    assert "nvidia_peermem" in node.kernel.loaded_modules
    assert cli.run(["peermem", "probe"], lambda: node.host) == 0


def test_the_sidecar_loads_nothing_twice(node: FakeNode) -> None:
    add_network(node)
    running(node)
    assert "nvidia_peermem" in node.kernel.loaded_modules
    node.kernel.calls.clear()
    assert serve(node) == [""]
    assert node.kernel.calls == []


def test_the_sidecar_stops_while_it_waits(node: FakeNode) -> None:
    assert serve(node)[0].startswith("the driver is not ready")
    assert node.kernel.calls == []


def test_the_sidecar_says_what_keeps_the_module_out(node: FakeNode) -> None:
    running(node)
    add_network(node)
    put(node, peermem_sidecar.NETWORK_READY)
    node.kernel.refuses["nvidia_peermem"] = WITHOUT_SYMBOLS
    with pytest.raises(Unsupported, match="without the peer memory functions"):
        serve(node)


def running(node: FakeNode) -> None:
    """A driver that a running `init` serves."""
    converge(node.host, read_wanted(node.host, Goal.SERVE))
    put(node, paths.STATUS, '{\n  "phase": "ready",\n  "pid": 7\n}\n')
    put(node, "/proc/7/stat", "7 (driverctl) S 1\n")


def put(node: FakeNode, path: str, text: str = "") -> None:
    node.files.make_dirs(path.rpartition("/")[0])
    node.files.write_atomic(path, text.encode())
