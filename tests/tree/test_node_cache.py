"""The node's cache of module sets: what is taken, what is made anew, what is removed."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from driverforge_core.errors import DriverforgeError, Unsupported
from driverforge_driver.compile import cache
from driverforge_driver.driver import steps
from driverforge_driver.driver.converge import converge
from driverforge_driver.driver.plan import next_steps
from driverforge_driver.state import paths
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.module_sets import SourcePlace
from driverforge_driver.state.observe import observe
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host.reconcile.outcomes import Blocked, Steps
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.fakes.fakeimage import DRIVER, RELEASE, write_image, write_modules

ENTRY = f"{NODE}{paths.CACHE}/{DRIVER}/{RELEASE}/open"
SOURCES = {"open": "sha256:" + "5" * 64}


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node whose image has sources only, and whose cache has the modules."""
    made = fake_node(tmp_path)
    made.files.remove_tree("/opt")
    write_image(
        made.files,
        modules=False,
        sources={"open": "/usr/src/nvidia/kernel-open"},
        source_digests=SOURCES,
    )
    write_modules(made.files, ENTRY)
    made.files.write_atomic(f"{ENTRY}/{paths.BUILT_WITH}", json.dumps({"sources": SOURCES["open"]}).encode())
    return made


def wanted(node: FakeNode) -> WantedDriver:
    return read_wanted(node.host, Goal.SERVE)


def next_kinds(node: FakeNode) -> list[str]:
    plan = next_steps(observe(node.host, wanted(node)), wanted(node))
    assert isinstance(plan, Steps)
    return [type(step).__name__ for step in plan.steps]


def test_a_whole_entry_is_taken(node: FakeNode) -> None:
    assert [source.place for source in observe(node.host, wanted(node)).sources] == [SourcePlace.CACHE]
    converge(node.host, wanted(node))
    assert "nvidia_uvm" in node.kernel.loaded_modules


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("nvidia-uvm.ko", b"another module", "nvidia-uvm.ko: not a kernel module"),
        ("nvidia-modeset.ko", None, "nvidia-modeset.ko is missing"),
        ("nvidia.ko", None, "nvidia.ko is missing"),
        ("nvidia.ko", b"", "nvidia.ko: not a kernel module"),
        (paths.MODULE_SET, b"[]", "module-set.json is no JSON object"),
        (paths.BUILT_WITH, b"{", f"{paths.BUILT_WITH} is not JSON"),
        (paths.BUILT_WITH, b"[]", "compiled from other sources"),
        (paths.BUILT_WITH, None, "compiled from other sources"),
        (paths.BUILT_WITH, b'{"sources": "sha256:other"}', "compiled from other sources"),
    ],
)
def test_an_entry_that_is_not_whole_or_of_other_sources_is_compiled_anew(
    node: FakeNode, name: str, content: bytes | None, told: str
) -> None:
    node.files.remove(f"{ENTRY}/{name}")
    if content is not None:
        node.files.write_atomic(f"{ENTRY}/{name}", content)
    facts = observe(node.host, wanted(node))
    assert facts.sources == ()
    (line,) = facts.unusable_sets
    assert line.startswith(f"{ENTRY}: ")
    assert told in line
    plan = next_steps(facts, wanted(node))
    assert isinstance(plan, Steps)
    assert isinstance(plan.steps[-1], steps.Compile)
    assert line in plan.reason
    never = next_steps(facts, read_wanted(node.host, Goal.SERVE, may_build=False))
    assert isinstance(never, Blocked)
    assert f"modules in the node's cache: {line}" in never.error.details


def test_a_module_whose_bytes_changed_is_damaged(node: FakeNode) -> None:
    """As a module it is whole; its digest tells."""
    path = f"{ENTRY}/nvidia-uvm.ko"
    node.files.write_atomic(path, node.files.read_bytes(path) + b"\0")
    (line,) = observe(node.host, wanted(node)).unusable_sets
    assert line == f"{ENTRY}: {path} is damaged"
    assert next_kinds(node)[-1] == "Compile"


def test_a_set_that_the_load_tree_has_is_not_read_again(node: FakeNode) -> None:
    converge(node.host, wanted(node))
    node.files.write_atomic(f"{ENTRY}/nvidia-uvm.ko", b"damaged since")
    facts = observe(node.host, wanted(node))
    assert [source.place for source in facts.sources] == [SourcePlace.CACHE]


@pytest.mark.parametrize(
    "said",
    [
        "modprobe: ERROR: could not insert 'nvidia_uvm': Exec format error",
        "kernel: nvidia_uvm: disagrees about version of symbol module_layout",
        "kernel: nvidia_uvm: Unknown symbol drm_gem_object_free (err -2)",
    ],
)
def test_an_entry_that_the_kernel_refuses_is_removed_and_made_anew(node: FakeNode, said: str) -> None:
    node.kernel.refuses["nvidia_uvm"] = [said]
    with pytest.raises(Unsupported) as caught:
        converge(node.host, wanted(node))
    assert caught.value.details[-1] == f"removed from the node's cache: {ENTRY}"
    assert caught.value.resolution.startswith("start again: they are compiled anew")
    assert not node.files.exists(ENTRY)
    assert next_kinds(node)[-1] == "Compile"


def test_an_entry_stays_where_the_modules_are_not_what_is_wrong(node: FakeNode) -> None:
    node.kernel.refuses["nvidia"] = ["modprobe: ERROR: could not insert 'nvidia': No such device"]
    with pytest.raises(DriverforgeError) as caught:
        converge(node.host, wanted(node))
    assert node.files.exists(f"{ENTRY}/nvidia.ko")
    assert "cache" not in caught.value.render()


def test_modules_of_the_image_that_the_kernel_refuses_are_not_the_caches(node: FakeNode) -> None:
    write_modules(node.files, f"{paths.MODULE_SETS}/{RELEASE}/open")
    node.kernel.refuses["nvidia"] = ["modprobe: ERROR: could not insert 'nvidia': Exec format error"]
    with pytest.raises(Unsupported):
        converge(node.host, wanted(node))
    assert node.files.exists(ENTRY)
    assert node.files.exists(f"{paths.MODULE_SETS}/{RELEASE}/open/nvidia.ko")


# --- its bounds


def key(kernel: str, *, driver: str = DRIVER) -> cache.CacheKey:
    return cache.CacheKey(
        driver=driver,
        module_type="open",
        kernel=kernel,
        sources="",
        headers="linux-headers=1",
        compiler="gcc",
        network="",
    )


def kept(node: FakeNode) -> list[str]:
    folder = Path(node.files.real(f"{NODE}{paths.CACHE}"))
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob(paths.MODULE_SET))


TIMES = itertools.count(1)


def keep(node: FakeNode, kernel: str, *, driver: str = DRIVER) -> None:
    """Keep a set, as a compilation for `kernel` does; each call is a second later than the one before."""
    write_modules(node.files, f"/built/{kernel}", release=kernel)
    cache.store(node.host, key(kernel, driver=driver), f"/built/{kernel}")
    finished = node.files.real(f"{NODE}{key(kernel, driver=driver).folder}/{paths.MODULE_SET}")
    os.utime(finished, (next(TIMES),) * 2)


def test_the_oldest_kernels_are_removed(node: FakeNode) -> None:
    node.files.remove_tree(f"{NODE}{paths.CACHE}/{DRIVER}")
    kernels = [f"6.1.0-{number}-amd64" for number in range(10, 15)]
    for kernel in kernels:
        keep(node, kernel)
    assert kept(node) == [f"{DRIVER}/{kernel}/open" for kernel in kernels[-cache.MAX_KERNELS :]]
    # an older kernel that is booted again is as good as new
    keep(node, kernels[2])
    keep(node, "6.1.0-15-amd64")
    assert kept(node) == [f"{DRIVER}/6.1.0-{number}-amd64/open" for number in (12, 14, 15)]
    # several drivers for one kernel count as one
    keep(node, "6.1.0-15-amd64", driver="550.163.01")
    assert len(kept(node)) == 4
    # a folder without anything in it does not stay
    left = Path(node.files.real(f"{NODE}{paths.CACHE}/{DRIVER}"))
    assert sorted(path.name for path in left.iterdir()) == [
        f"6.1.0-{number}-amd64" for number in (12, 14, 15)
    ]


def test_the_oldest_sets_are_removed_where_they_are_too_large_together(node: FakeNode) -> None:
    """With a file of no bytes on the disk that is as large as the whole cache may be."""
    with Path(node.files.real(f"{ENTRY}/large")).open("wb") as large:
        large.truncate(cache.MAX_BYTES)
    keep(node, "6.1.0-51-amd64")
    assert kept(node) == [f"{DRIVER}/6.1.0-51-amd64/open"]


def test_the_set_that_was_just_kept_stays_though_it_is_too_large_alone(node: FakeNode) -> None:
    with Path(node.files.real(f"{ENTRY}/large")).open("wb") as large:
        large.truncate(cache.MAX_BYTES + 1)
    cache.trim(node.host.node, keep=key(RELEASE).folder)
    assert kept(node) == [f"{DRIVER}/{RELEASE}/open"]
    cache.trim(node.host.node, keep="")
    assert kept(node) == []


def test_an_unfinished_entry_goes_first(node: FakeNode) -> None:
    node.files.make_dirs(f"{NODE}{paths.CACHE}/{DRIVER}/6.1.0-9-amd64/open")
    node.files.write_atomic(f"{NODE}{paths.CACHE}/{DRIVER}/6.1.0-9-amd64/open/nvidia.ko", b"half")
    for number in range(51, 50 + cache.MAX_KERNELS):
        keep(node, f"6.1.0-{number}-amd64")
    assert f"{DRIVER}/{RELEASE}/open" in kept(node)
    assert not node.files.exists(f"{NODE}{paths.CACHE}/{DRIVER}/6.1.0-9-amd64")
