"""How many compilers run at once: the machine's processors, and what a container's limit pays for.

Most cgroups here are files in the words of the kernel's documents; one is real.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts
from driverforge_core.osid import OsId
from driverforge_driver.compile.job import request_for
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.mounts import KernelMounts
from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Host
from driverforge_host.ports.mounts import Mount, parse_mountinfo
from support.fakes.fakehost import FakeCommands
from support.process import run

IMAGE = ImageFacts(
    os=OsId.parse("debian12"),
    arch="amd64",
    driver=DriverVersion("535.261.03"),
    payload="packages",
    module_types=("open",),
    variant="jit",
    kernels=(),
    sources={"open": "/usr/src/nvidia"},
    firmware="",
)
V2 = "31 23 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
POD = "/kubepods.slice/kubepods-pod1.slice"
V1 = "".join(
    f"3{n} 31 0:3{n} {POD}/c1 /sys/fs/cgroup/{name} ro,nosuid master:{n} - cgroup cgroup rw,{name}\n"
    for n, name in enumerate(("cpu,cpuacct", "memory"))
)


class Table(KernelMounts):
    """A mount table of somebody else's."""

    def __init__(self, text: str) -> None:
        self._table = parse_mountinfo(text)

    def table(self) -> tuple[Mount, ...]:
        return self._table


@dataclass
class Node:
    """A process on a machine of eight processors."""

    folder: Path

    def compilers(self, mounts: str, cgroup: str, limits: Mapping[str, str]) -> int:
        files = {"/etc/os-release": "ID=debian\n", "/proc/self/cgroup": cgroup, **limits}
        for name, text in files.items():
            path = Path(f"{self.folder}{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        host = replace(
            real_host(),
            files=RootedFiles("/", beneath=str(self.folder)),
            mounts=Table(mounts),
            commands=FakeCommands(programs={"nproc": lambda _: (0, "8\n", "")}),
        )
        return jobs(host)


def jobs(host: Host) -> int:
    return request_for(host, image=IMAGE, kernel="6.1.0-50-amd64", module_types=("open",)).jobs


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("limit", "compilers"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # a limit of 1500m
        ("10000 100000\n", 1),
        ("max 100000\n", 8),
        ("6400000 100000\n", 8),  # more than there are
        ("25000 50000\n", 1),
    ],
)
def test_a_container_with_a_cgroup_namespace(node: Node, limit: str, compilers: int) -> None:
    assert node.compilers(V2, "0::/\n", {"/sys/fs/cgroup/cpu.max": limit}) == compilers


def test_the_smallest_limit_of_all_cgroups_above_counts(node: Node) -> None:
    """A privileged container may see the node's whole tree; a pod's limit may be below its container's."""
    limits = {
        f"/sys/fs/cgroup{POD}/c1/cpu.max": "400000 100000\n",
        f"/sys/fs/cgroup{POD}/cpu.max": "300000 100000\n",
        "/sys/fs/cgroup/kubepods.slice/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/kubepods.slice/other/cpu.max": "100000 100000\n",
    }
    assert node.compilers(V2, f"0::{POD}/c1\n", limits) == 3


@pytest.mark.parametrize(("quota", "compilers"), [("250000", 3), ("-1", 8)])
def test_version_1(node: Node, quota: str, compilers: int) -> None:
    folder = "/sys/fs/cgroup/cpu,cpuacct"
    limits = {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    cgroup = f"5:memory:/elsewhere\n4:cpu,cpuacct:{POD}/c1\n1:name=systemd:{POD}/c1\n0::/\n"
    assert node.compilers(V1, cgroup, limits) == compilers


def test_a_mount_that_begins_in_the_middle_of_our_path(node: Node) -> None:
    mounts = V2.replace(" / /sys", f" {POD} /sys")
    limits = {"/sys/fs/cgroup/c1/cpu.max": "100000 100000\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert node.compilers(mounts, f"0::{POD}/c1\n", limits) == 1


def test_a_machine_without_cgroups(node: Node) -> None:
    assert node.compilers("1 0 0:1 / / rw - ext4 /dev/vda rw\n", "", {}) == 8


# --- a real one

ASK = """
from driverforge_driver.compile.job import processors
from driverforge_host.adapters.real import real_host
print(processors(real_host()))
"""


def processor_groups() -> Path | None:
    """The folder of a cgroup tree whose groups limit processors, None where we may not make one."""
    if Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists():
        return Path("/sys/fs/cgroup/cpu")
    with suppress(OSError):
        if "cpu" in Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split():
            return Path("/sys/fs/cgroup")
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of this machine with the time of one processor."""
    above = processor_groups()
    if above is None:
        pytest.skip("no cgroups here that limit processors")
    made = above / f"driverforge-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        if (made / "cpu.max").exists():
            (made / "cpu.max").write_text("100000 100000")
        else:
            (made / "cpu.cfs_quota_us").write_text("100000")
        yield made
    finally:
        made.rmdir()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor is one compiler, whatever the limit")
def test_a_real_cgroup_of_one_processor(group: Path) -> None:
    asked = run(
        "sh",
        "-c",
        'echo $$ >"$1/cgroup.procs" && exec "$2" -c "$3"',
        "sh",
        group,
        sys.executable,
        ASK,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "entrypoints")},
    )
    assert asked.stdout == "1\n"
