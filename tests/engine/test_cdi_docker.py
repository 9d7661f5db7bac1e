"""A CDI-enabled dockerd starts containers from our spec.

The GPU is a fake: /dev/nvidia0 of the container is a character device with the numbers of /dev/null, made in
a folder of the test. The user space is Debian's nvidia-smi and libnvidia-ml; the hooks are NVIDIA's
nvidia-cdi-hook, compiled here.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Host
from driverforge_toolkit.cdi.generate import generate_management
from support import aptfetch
from support.machines.engine import Engine
from support.process import Finished
from support.skipping import provided
from support.upstream import gotools

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making a device file needs root")

KIND = "driverforge.test/gpu"  # nobody else's: the spec folder is the machine's
NULL = (1, 3)
CONTROL = (
    195,
    255,
    # the real ones: opening it says that there is no driver, while a container that may not open it gets
    # 'Unknown Error'
)


@dataclass(frozen=True)
class Made:
    """A spec that the engine sees."""

    engine: Engine
    image: str
    root: Path
    path: Path

    def run(self, *words: str) -> Finished:
        base = ("run", "--rm", "--network", self.engine.network, "--device", f"{KIND}=all", self.image)
        return self.engine.docker(*base, *words, check=False, timeout=120)


@pytest.fixture
def made(engine: Engine, bookworm: str, tmp_path: Path) -> Iterator[Made]:
    folders = json.loads(engine.docker("info", "--format", "{{json .CDISpecDirs}}").stdout) or []
    if not folders:
        pytest.skip("this engine has CDI off (features.cdi in daemon.json)")
    root = tmp_path / "driver"
    userspace(root)
    hook = tmp_path / "nvidia-cdi-hook"
    shutil.copy(provided(gotools.programs) / "nvidia-cdi-hook", hook)
    folder = Path(folders[-1])
    before = folder.exists()
    where = {"driver_root": str(root), "driver_root_ctr": "", "dev_root": "", "dev_root_ctr": ""}
    path = Path(generate_management(host(), **where, output_dir=str(folder), kind=KIND, hook_path=str(hook)))
    yield Made(engine, bookworm, root, path)
    path.unlink()
    if not before:
        folder.rmdir()


def host() -> Host:
    """This machine, but for the driver that it may have loaded."""
    return replace(real_host(), environ={})


def userspace(root: Path) -> None:
    """Debian's packages, the link that update-alternatives would make, and the fake device."""
    archive = provided(aptfetch.archive)
    packages = [archive.newest(name, suite="bookworm") for name in ("nvidia-smi", "libnvidia-ml1")]
    shutil.copytree(archive.unpacked(packages), root, symlinks=True)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    (root / "dev").mkdir()
    for name, numbers in (("nvidia0", NULL), ("nvidiactl", CONTROL)):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        (root / "dev" / name).chmod(0o666)


def test_a_container_gets_device_mounts_environment_and_library_links(made: Made) -> None:
    done = made.run(
        "sh",
        "-c",
        "stat -c '%t:%T' /dev/nvidia0; env; grep nvidia-smi /proc/self/mountinfo; ldconfig -p; "
        "echo x >/dev/nvidia0",
    )
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("1:3\n")
    assert "NVIDIA_VISIBLE_DEVICES=void" in done.stdout
    assert " ro," in next(line for line in done.stdout.splitlines() if " /usr/bin/nvidia-smi " in line)
    # the hooks' link, in the container's library cache
    assert "/nvidia/current/libnvidia-ml.so.1" in done.stdout


def test_nvidia_smi_runs_as_far_as_no_gpu_allows(made: Made) -> None:
    """9: it found its library, which found no driver; 6: the library found no device."""
    done = made.run("nvidia-smi", "-L")
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver, which the fake device hides")
    assert done.status in (6, 9), done.stdout + done.stderr
    assert "NVIDIA-SMI has failed" in done.stdout or "No devices" in done.stdout


def test_a_spec_that_lost_a_file_keeps_containers_from_starting(made: Made) -> None:
    """What `driverctl cdi verify` says before anybody starts a container."""
    (made.root / "usr/lib/nvidia/current/nvidia-smi").unlink()
    assert made.run("true").status != 0
