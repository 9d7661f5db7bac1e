"""docs/air-gapped.md, its commands as they stand there: the site's in a network without a way out.

Small images stand in for the vendors', and a registry of our own for theirs; with --full the driver is an
image that `driverforge build` made. What needs a cluster is not run: helm and kubectl are scripts, and in the
kubelet's place this asks containerd for the driver's pod, in which the image's own program says its version.
"""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import socket
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from driverforge_build import resources
from driverforge_core.errors import DriverforgeError
from support.fakes.mockpath import MockPath
from support.machines import containerd, cripods, jitimage, ociarchive, registry
from support.machines.builderbench import PACKAGES
from support.machines.closednet import ClosedNetwork, closed_network
from support.process import Finished, missing, run
from support.samples.chartsite import BESIDE_THE_DRIVER
from support.samples.clusternodes import node, write_nodes
from support.skipping import provided

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="containerd and network namespaces need root")

PAGE = Path(__file__).resolve().parents[2] / "docs/air-gapped.md"
STEP = re.compile(r"^### (\d+)\. (Site|Connected): ", re.MULTILINE)
# jq and crictl may not be here; prune asks a person
NOT_RUN = ("jq ", "crictl ", "driverforge mirror prune ")
DRIVER = "nvcr.io/nvidia/driver:580-5.15.0-{}-generic-ubuntu22.04"
IMAGES = (DRIVER.format(131), DRIVER.format(139), *BESIDE_THE_DRIVER)
STAND_IN = b"#!/bin/busybox sh\n[ $1 = --version ] && exit 7\n"
CONTAINERD = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "site.test/pause:1"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{certs}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{runc}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Both places, their common disk in `work`, and the steps of the page."""

    home: Path
    network: ClosedNetwork
    vendor: str
    mirror: str
    daemon: containerd.Containerd
    commands: MockPath
    built: bool

    @property
    def work(self) -> Path:
        return self.home / "work"

    def step(self, number: int) -> str:
        """Run a step's commands where it belongs, and return what they print."""
        place, blocks = steps()[number]
        text = "\n".join(one for one in blocks if not one.startswith(NOT_RUN))
        script = text.replace("registry.site/", f"http://{self.mirror}/").replace("4G", "1M")
        if place == "Connected":
            return self._sh(script, {"VENDOR": self.vendor}).stdout
        with self.network.inside():
            return self._sh(script, {}).stdout

    def _sh(self, script: str, environment: dict[str, str]) -> Finished:
        cache = {"DRIVERFORGE_CACHE": str(self.home / "cache")}
        return run(
            "sh",
            "-eu",
            "-c",
            script,
            cwd=self.work,
            env=self.commands.environ({**PACKAGES, **cache, **environment}),
        )

    def pod(self, image: str) -> int:
        """The exit status of a driver's pod, its image pulled first."""
        pods = cripods.Pods(str(self.daemon.address), image)
        pods.pull()
        return pods.run("", ["driverctl", "--version"])


def steps() -> dict[int, tuple[str, list[str]]]:
    """Each step of the page: where it is done, and its blocks of commands."""
    day = PAGE.read_text(encoding="utf-8").partition("\n## Carry images")[0]
    _, *parts = STEP.split(day)
    found = {}
    for number, place, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        blocks = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
        found[int(number)] = (place, [textwrap.dedent(block) for block in blocks])
    return found


@pytest.fixture(params=["stand-in", pytest.param("built", marks=pytest.mark.full)])
def day(request: pytest.FixtureRequest) -> Iterator[Day]:
    if gone := missing("docker-registry", "setpriv", "sha256sum"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    built = None
    if request.param == "built":
        built = provided(lambda: jitimage.build(request.getfixturevalue("engine")))
    prefix = provided(containerd.programs)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    (home / "work").mkdir()
    cripods.fake_toolkit(home / "bin", prefix / "usr/sbin/runc", home / "calls", ("runc",))
    config = CONTAINERD.format(certs=home / "certs.d", runc=home / "bin/runc")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        network = provided(lambda: stack.enter_context(closed_network()))
        vendor = stack.enter_context(registry.serve(home / "vendor"))
        with network.inside():
            mirror = stack.enter_context(registry.serve(home / "mirror"))
            daemon = stack.enter_context(containerd.launch(home / "c", config=config))
        publish(home, vendor.address, built)
        pause = cripods.image_archive(home / "pause.tar")
        daemon.ctr("images", "import", "--index-name", "site.test/pause:1", pause)
        yield Day(
            home=home,
            network=network,
            vendor=vendor.address,
            mirror=mirror.address,
            daemon=daemon,
            commands=commands_of(home),
            built=built is not None,
        )


def publish(home: Path, vendor: str, first: Path | None) -> None:
    """The vendors' images: each has busybox, which they share, and something of its own.

    `first` is an archive of the first one, where it is no such stand-in.
    """
    shell = {"bin/busybox": cripods.busybox() / "bin/busybox", "bin/driverctl": STAND_IN}
    for number, image in enumerate(IMAGES):
        name, _, tag = image.rpartition(":")
        if first and not number:
            ociarchive.push(first, vendor, name, tag)
            continue
        archive = home / "image.tar"
        own = random.Random(number).randbytes(400_000)
        # the update's busybox is in the mirror then, and not in the drivers' repository
        layers = [shell, {"own": own}] if number else [{**shell, "own": own}]
        ociarchive.write(archive, layers, config={"Env": ["PATH=/bin"]})
        ociarchive.push(archive, vendor, name, tag)


def commands_of(home: Path) -> MockPath:
    """driverforge, which asks our registry in the vendors' place; helm and kubectl as far as files go."""
    commands = MockPath(home / "commands")
    asked = " ".join(f"--registry {host}=$VENDOR/{host}" for host in ("nvcr.io", "registry.k8s.io"))
    commands.add(
        "driverforge",
        f'case "${{VENDOR:+$1 $2}}" in "mirror lock"|"mirror copy") set -- "$@" {asked};; esac\n'
        f'exec {sys.executable} -m driverforge_build "$@"',
    )
    commands.add("helm", f'[ "$1" != pull ] || cp {chart(home)} .')
    write_nodes(home, node("gpu-0"), node("gpu-1"))
    commands.add("kubectl", f'[ "$1 $2" != "get nodes" ] || cat {home}/nodes.json')
    return commands


def chart(home: Path) -> Path:
    """NVIDIA's chart as `helm pull` would bring it, as far as it is known here."""
    known = yaml.safe_load(resources.charts()["gpu-operator-v26.7.0"].read_text(encoding="utf-8"))
    path = home / "gpu-operator-v26.7.0.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, document in (("values.yaml", known.pop("values")), ("Chart.yaml", known)):
            data = yaml.safe_dump(document).encode()
            entry = tarfile.TarInfo(f"gpu-operator/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def states(told: str) -> set[str]:
    return {line.split("  ")[1] for line in told.splitlines() if "  " in line}


def test_from_nothing_to_a_drivers_pod_and_the_update_a_month_later(day: Day) -> None:
    with day.network.inside():
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        for address in (("192.0.2.1", 443), ("127.0.0.1", int(day.vendor.rpartition(":")[2]))):
            with socket.socket() as asking, pytest.raises(OSError, match=r"unreachable|refused"):
                asking.connect(address)
    day.step(1)
    assert f"{DRIVER.format(131)}  sha256:" in day.step(2)
    day.step(3)
    volumes = sorted(path.name for path in (day.work / "disk").glob("gpu.tar.*"))
    assert volumes[:2] == ["gpu.tar.001", "gpu.tar.002"]
    assert states(day.step(4)) == {"held"}
    assert states(day.step(5)) == {"held"}
    day.step(6)
    with pytest.raises(DriverforgeError):
        day.pod(DRIVER.format(131))
    shutil.copytree(day.work / "mirror/certs.d", day.home / "certs.d")
    status = 0 if day.built else 7
    assert day.pod(DRIVER.format(131)) == status
    day.step(7)
    files = [word for word in day.commands.calls("helm")[-1].split() if "/" in word]
    assert [(day.work / file).is_file() for file in files] == [True, True, True]
    in_place = yaml.safe_load((day.work / "mirror/values.yaml").read_text())["driver"]["repository"]
    assert day.pod(f"{in_place}/driver:{DRIVER.rpartition(':')[2].format(131)}") == status
    day.step(8)
    day.step(9)
    assert f"{DRIVER.format(139)}  sha256:" in day.step(10)
    # busybox and the other images are there already
    assert 400_000 < (day.work / "disk/gpu-2.tar").stat().st_size < 500_000
    with pytest.raises(DriverforgeError):
        day.pod(DRIVER.format(139))
    assert states(day.step(11)) == {"held"}
    assert day.pod(DRIVER.format(139)) == 7
    assert day.step(12) == ""
