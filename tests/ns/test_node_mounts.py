"""The driver's root on real mounts in a namespace: propagation, busy targets, a kill in the middle."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# a container of our own: its root is shared, as in a pod with Bidirectional mounts; /run/peer stands for the
# host's side of /run/nvidia. /proc is real, /sys is not: mounts that were there before a user namespace
# cannot be taken apart in it
SETUP = """
import os, sys
from dataclasses import replace

def mount(*words):
    assert os.spawnvp(os.P_WAIT, "mount", ["mount", *words]) == 0, words

mount("-t", "tmpfs", "tmpfs", BOX)
for path in sorted({"/usr", "/etc", sys.base_prefix, sys.prefix, TOP}):
    if not os.path.exists(BOX + path):
        os.makedirs(BOX + path)
        mount("--bind", path, BOX + path)
for name in ("bin", "sbin", "lib", "lib64"):
    if os.path.islink("/" + name):
        os.symlink(os.readlink("/" + name), BOX + "/" + name)
for name in ("proc", "sys", "dev", "run", "opt"):
    os.makedirs(BOX + "/" + name, exist_ok=True)
mount("--rbind", "/proc", BOX + "/proc")
mount("-t", "tmpfs", "tmpfs", BOX + "/sys")
os.makedirs(BOX + "/sys/fs/cgroup")
mount("-t", "tmpfs", "tmpfs", BOX + "/sys/fs/cgroup")
open(BOX + "/dev/null", "w").close()
mount("--bind", "/dev/null", BOX + "/dev/null")
mount("--make-rshared", BOX)
os.chroot(BOX)
os.chdir("/")

from driverforge_driver.driver import steps
from driverforge_driver.state import paths
from driverforge_driver.state.facts import RootState
from driverforge_driver.state.observe import root_shared, root_state
from driverforge_host.adapters.mounts import KernelMounts
from driverforge_host.adapters.real import real_host

for place in (paths.RUN, "/run/peer"):
    os.makedirs(place)
mount("--bind", paths.RUN, paths.RUN)
mount("--bind", paths.RUN, "/run/peer")
host = real_host()
targets = lambda: sorted(m.target for m in host.mounts.table())
before = targets()
driver_mounts = lambda place: [t for t in targets() if t == place or t.startswith(place + "/")]
"""
NEEDS = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]


@cache
def why_not() -> str:
    """Why namespaces cannot be had here; '' when they can."""
    try:
        tried = subprocess.run([*NEEDS, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unshare is not installed"
    return "" if tried.returncode == 0 else f"no user namespaces: {tried.stderr.strip()}"


def in_namespace(code: str) -> str:
    """What `code` prints after SETUP, as root of fresh user, mount and PID namespaces."""
    if reason := why_not():
        pytest.skip(reason)
    # a folder of its own: a file system mounted over a whole /tmp would hide a checkout that lies there
    with tempfile.TemporaryDirectory() as box:
        start = f"import sys; TOP, BOX = {str(TOP)!r}, {box!r}; sys.path[:0] = [TOP + '/entrypoints']"
        whole = f"{start}\n{SETUP}\n{textwrap.dedent(code)}"
        done = subprocess.run(
            [*NEEDS, sys.executable, "-c", whole], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_root_is_published_to_the_host_and_goes_without_taking_the_containers_own_mounts() -> None:
    out = in_namespace("""
        assert root_state(host) is RootState.ABSENT
        steps.PublishRoot().apply(host)
        assert root_state(host) is RootState.OURS
        assert root_shared(host)
        for place in (paths.ROOT, "/run/peer/driver"):
            assert os.path.exists(place + "/proc/self"), place
            assert os.path.samefile(place + "/bin", "/bin")
            assert not [t for t in driver_mounts(place) if t.startswith(place + "/sys/")]
        assert not [t for t in targets() if t.startswith(paths.STAGE)]
        steps.UnmountRoot().apply(host)
        assert root_state(host) is RootState.ABSENT
        assert targets() == before, (set(targets()) ^ set(before))
        assert os.path.exists("/proc/self") and os.path.exists("/sys") and os.path.exists("/dev/null")
        print("held")
    """)
    assert out == "held\n"


def test_why_it_goes_by_a_private_place() -> None:
    """Upstream binds once: the root is a peer, and its unmount takes /proc from the container."""
    out = in_namespace("""
        os.makedirs(paths.ROOT)
        host.mounts.rbind("/", paths.ROOT)
        host.mounts.unmount(paths.ROOT, lazy=True)
        print(os.path.exists("/proc/self"))
    """)
    assert out == "False\n"


def test_a_stale_root_under_several_mounts_is_unmounted_wholly() -> None:
    out = in_namespace("""
        os.makedirs(paths.ROOT)
        for _ in range(3):
            mount("-t", "tmpfs", "tmpfs", paths.ROOT)
        assert root_state(host) is RootState.OTHER
        steps.UnmountRoot().apply(host)
        print(root_state(host).value, targets() == before)
    """)
    assert out == "absent True\n"


def test_publishing_killed_before_any_of_its_mounts_and_run_again_gives_the_same_mounts() -> None:
    out = in_namespace("""
        class Killed(BaseException):
            pass

        class Cut(KernelMounts):
            def __init__(self, left):
                super().__init__()
                self.left = left

            def burn(self):
                if self.left == 0:
                    raise Killed
                self.left -= 1

            def rbind(self, source, target):
                self.burn()
                super().rbind(source, target)

            def set_propagation(self, target, kind, *, recursive=False):
                self.burn()
                super().set_propagation(target, kind, recursive=recursive)

            def unmount(self, target, *, lazy=False):
                self.burn()
                super().unmount(target, lazy=lazy)

        steps.PublishRoot().apply(host)
        published = targets()
        steps.UnmountRoot().apply(host)
        killed = 0
        while True:
            try:
                steps.PublishRoot().apply(replace(host, mounts=Cut(killed)))
            except Killed:
                killed += 1
            else:
                break
            if root_state(host) is RootState.OURS:
                steps.ClearStage().apply(host)
            else:
                steps.PublishRoot().apply(host)
            assert targets() == published, (killed, set(targets()) ^ set(published))
            steps.UnmountRoot().apply(host)
            assert targets() == before, (killed, set(targets()) ^ set(before))
            assert os.path.exists("/proc/self")
        print(killed)
    """)
    assert int(out) >= 9


def test_a_busy_mount_is_in_use_and_says_how_to_see_by_whom() -> None:
    out = in_namespace("""
        from driverforge_core.errors import CommandFailed, InUse

        os.makedirs("/run/busy")
        mount("-t", "tmpfs", "tmpfs", "/run/busy")
        held = open("/run/busy/file", "w")
        try:
            host.mounts.unmount("/run/busy")
        except InUse as error:
            print(error.details[-1], "|", error.resolution)
        host.mounts.unmount("/run/busy", lazy=True)
        print("/run/busy" in targets())
        try:
            host.mounts.unmount("/run/busy")
        except CommandFailed as error:
            print(error.details[-1])
    """)
    assert out.splitlines() == [
        "Device or resource busy (errno EBUSY) | see who uses it: fuser -vm /run/busy",
        "False",
        "Invalid argument (errno EINVAL)",
    ]


def test_a_full_file_system_leaves_the_old_file_and_no_half_one() -> None:
    out = in_namespace("""
        from driverforge_core.errors import StorageFailed

        os.makedirs("/run/small")
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", "/run/small")
        host.files.write_atomic("/run/small/file", b"old")
        host.files.write_atomic("/run/large", bytes(1 << 20))
        for attempt in (
            lambda: host.files.write_atomic("/run/small/file", bytes(1 << 20)),
            lambda: host.files.copy("/run/large", "/run/small/copy"),
        ):
            try:
                attempt()
            except StorageFailed as error:
                print(error.brief.split(" while ")[0], error.details[0])
        print(open("/run/small/file").read(), os.listdir("/run/small"))
        print(host.files.free_bytes("/run/small/deep/er") <= 65536)
    """)
    assert out.splitlines() == [
        *["no space left No space left on device (errno ENOSPC)"] * 2,
        "old ['file']",
        "True",
    ]


def test_removing_a_tree_never_crosses_a_mount() -> None:
    out = in_namespace("""
        from driverforge_core.errors import StorageFailed

        os.makedirs("/run/tree/a/inner")
        mount("-t", "tmpfs", "tmpfs", "/run/tree/a/inner")
        open("/run/tree/a/inner/precious", "w").close()
        try:
            host.files.remove_tree("/run/tree")
        except StorageFailed as error:
            print(error.details[0])
        print(os.path.exists("/run/tree/a/inner/precious"))
        host.mounts.unmount("/run/tree/a/inner")
        host.files.remove_tree("/run/tree")
        print(os.path.exists("/run/tree"))
    """)
    assert out.splitlines() == ["a mount point is in the way (errno EBUSY)", "True", "False"]


def test_removing_a_tree_of_an_overlay_of_several_file_systems() -> None:
    """Its files have other device numbers than its folders, and nothing is mounted on them."""
    out = in_namespace("""
        for name in ("lower", "upper"):
            os.makedirs(f"/run/{name}")
            mount("-t", "tmpfs", "tmpfs", f"/run/{name}")
        for name in ("lower/tree", "upper/files", "upper/work", "merged"):
            os.makedirs(f"/run/{name}")
        open("/run/lower/tree/old", "w").close()
        options = "lowerdir=/run/lower,upperdir=/run/upper/files,workdir=/run/upper/work,xino=off,userxattr"
        mount("-t", "overlay", "-o", options, "overlay", "/run/merged")
        open("/run/merged/tree/new", "w").close()
        tree = "/run/merged/tree"
        print(len({os.stat(path).st_dev for path in (tree, f"{tree}/old", f"{tree}/new")}))
        host.files.remove_tree(tree)
        print(os.path.exists(tree))
    """)
    assert out == "3\nFalse\n"


def test_removing_a_tree_leaves_a_file_with_a_mount_on_it() -> None:
    out = in_namespace("""
        from driverforge_core.errors import StorageFailed

        os.makedirs("/run/tree")
        for path in ("/run/tree/file", "/run/precious"):
            open(path, "w").close()
        mount("--bind", "/run/precious", "/run/tree/file")
        try:
            host.files.remove_tree("/run/tree")
        except StorageFailed as error:
            print(error.details[0])
        print(os.path.exists("/run/precious"))
    """)
    assert out == "Device or resource busy (errno EBUSY)\nTrue\n"


def test_a_read_only_mount_is_not_permitted() -> None:
    out = in_namespace("""
        from driverforge_core.errors import NotPermitted

        os.makedirs("/run/ro")
        mount("-t", "tmpfs", "-o", "ro", "tmpfs", "/run/ro")
        try:
            host.files.write_atomic("/run/ro/file", b"")
        except NotPermitted as error:
            print(error.details[0])
    """)
    assert out == "Read-only file system (errno EROFS)\n"


def test_a_file_with_a_devices_name_holds_no_driver() -> None:
    """Any pod can have one."""
    out = in_namespace("""
        from driverforge_driver.state.observe import device_holders
        mine = open("/dev/nvidia-mine", "w")
        open("/dev/nvidia0", "w").close()
        mount("--bind", "/dev/null", "/dev/nvidia0")
        device = open("/dev/nvidia0", "w")
        for majors in ({"nvidia-frontend": 1}, {}):
            print([holder.path for holder in device_holders(host, majors, ()) if "nvidia" in holder.path])
    """)
    assert out == "['/dev/nvidia0']\n[]\n"
