"""What a real kernel never gets done with, and what a real cgroup of version 2 pays for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.machines import drivernode, kmods, rootfs
from support.machines.guest import Guest
from support.machines.kernels import Image, Kernel
from support.skipping import provided

LIBRARY = "/payload/opt/driverforge/lib"
MODULE = "/modules/stuck.ko"
INSERT = """
import os
from driverforge_core.errors import TemporaryFailure
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.modules import KernelModules
from driverforge_host.adapters.subprocesses import SystemCommands
try:
    KernelModules(SystemCommands(os.environ), RootedFiles(), limit=2).insert("stuck", base="/tree")
except TemporaryFailure as error:
    print(error.render())
"""
FOLLOW = """
import os
from driverforge_core.errors import TemporaryFailure
from driverforge_host.adapters.subprocesses import SystemCommands
try:
    SystemCommands(os.environ).run(["modprobe", "--dirname", "/tree", "stuck"], stream=True, timeout=2)
except TemporaryFailure as error:
    print(error.render())
"""
COMPILERS = """
from driverforge_driver.compile.job import cgroup_folders, processor_limit
from driverforge_host.adapters.real import real_host
host = real_host()
print([processor_limit(host.files, folder) for folder in cgroup_folders(host)])
"""


@pytest.fixture
def guest(kernel: Kernel, image: Image) -> Iterator[Guest]:
    machine = provided(lambda: rootfs.agent_machine(image, append=kmods.GPU_MEMORY, memory=1280))
    with Guest.start(machine) as started:
        files = drivernode.container_files(kmods.mock(kernel), kernel.release)
        started.put({**files, MODULE: kmods.build(kmods.SOURCES / "stuck", kernel) / "stuck.ko"})
        yield started


def python(code: str) -> str:
    return f"PYTHONPATH={LIBRARY} python3 - <<'X'\n{code}\nX\n"


def with_stuck_module(code: str) -> str:
    tree = f"mkdir -p /tree/lib/modules/$(uname -r) && cp {MODULE} /tree/lib/modules/$(uname -r)/"
    return f"export LC_ALL=C\n{tree} && depmod -b /tree || exit 1\n{python(code)}"


def test_a_module_whose_init_never_ends_is_reported_with_the_kernels_words(guest: Guest) -> None:
    """Not even SIGKILL ends such a modprobe."""
    out = guest.run(with_stuck_module(INSERT), timeout=120).ok()
    assert "error: could not insert the module stuck: modprobe has not ended after 2 s\n" in out
    assert "still in the kernel, after SIGKILL" in out
    assert "kernel: stuck: waiting for a device that never answers" in out
    assert "reboot" in out


def test_a_program_whose_output_is_followed_is_not_waited_for_without_end(guest: Guest) -> None:
    out = guest.run(with_stuck_module(FOLLOW), timeout=120).ok()
    assert "error: modprobe took longer than 2 s\n" in out


def test_compilers_follow_a_cgroup_of_version_2(guest: Guest) -> None:
    script = """
set -e
top=/sys/fs/cgroup
grep -q cgroup2 /proc/mounts || mount -t cgroup2 none $top
echo +cpu >$top/cgroup.subtree_control
mkdir -p $top/pod
echo +cpu >$top/pod/cgroup.subtree_control
mkdir $top/pod/container
echo "250000 100000" >$top/pod/cpu.max
echo "400000 100000" >$top/pod/container/cpu.max
echo $BASHPID >$top/pod/container/cgroup.procs
"""
    assert guest.run(f"{script}{python(COMPILERS)}", timeout=60).ok() == "[4, 3, None]\n"
