"""Pods in a guest: an image store made outside, and a container with a kubelet's mounts.

Signals reach it, its exit status comes back, and nothing of it is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed
from support.machines import ociarchive, pod, registry, rootfs, store
from support.machines.guest import Guest
from support.machines.kernels import Image
from support.machines.store import Store
from support.skipping import provided

MANIFEST = Path(__file__).parent / "pod.yaml"
NAME = "bench.test/probe:1"
ENTRY = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
echo "image $FROM_IMAGE manifest $FROM_MANIFEST node $NODE_NAME"
echo "arguments $*"
mkdir -p /run/shared/mounted && mount -t tmpfs inside /run/shared/mounted && \
touch /run/shared/mounted/from-the-container
touch /run/ro/x 2>/dev/null || echo "read-only"
echo "device $(ls -l /dev/null | cut -c1)"
trap 'echo stopping; umount /run/shared/mounted; exit 7' TERM
echo ready
while :; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with an image of three layers, the last of which removes a file of the first."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    archive = tmp_path_factory.mktemp("image") / "probe.tar"
    layers: list[ociarchive.Layer] = [
        {"bin/busybox": busybox, "etc/old": b"of the first layer"},
        {
            "entry": ENTRY.encode(),
            "etc/passwd": b"root:x:0:0::/:/bin/sh\n",
            "proc/.keep": b"",
            "sys/.keep": b"",
            "dev/.keep": b"",
        },
        {"etc/.wh.old": b"", "tmp/.keep": b""},
    ]
    config = {
        "Env": ["PATH=/bin", "FROM_IMAGE=original"],
        "Entrypoint": ["/bin/busybox"],
        "Cmd": ["true"],
        "WorkingDir": "/tmp",
    }
    ociarchive.write(archive, layers, config=config)
    return provided(lambda: store.make({NAME: archive}))


@pytest.fixture(scope="module")
def guest(image: Image, stored: Store) -> Iterator[Guest]:
    with Guest.start(rootfs.systemd_machine(image, store=stored.disk)) as started:
        store.attach(started)
        yield started


def _wait_ready(guest: Guest, running: pod.GuestPod) -> str:
    guest.run(f"until grep -q ready {running.log_file}; do sleep 0.1; done", timeout=60).ok()
    return running.logs()


def test_the_image_is_known_with_its_settings(stored: Store) -> None:
    image = stored.images[NAME]
    assert image.entrypoint == ("/bin/busybox",)
    assert image.environment == ("PATH=/bin", "FROM_IMAGE=original")
    assert image.directory == "/tmp"


def test_a_pods_whole_life(guest: Guest, stored: Store) -> None:
    running = pod.run(guest, MANIFEST, image=stored.images[NAME], kind="Pod", arguments=["one", "two words"])
    said = _wait_ready(guest, running)
    assert "image overridden manifest yes node guest\n" in said
    assert "arguments one two words\n" in said
    assert "read-only\n" in said
    assert "device c\n" in said
    assert running.running()
    # Bidirectional: what the container mounts is there on the node; HostToContainer: the other way only
    outside = "mount -t tmpfs outside /run/bench/slave; touch /run/bench/slave/from-the-node"
    seen = guest.run(f"ls /run/bench/shared/mounted; {outside}; test -f /run/bench/file")
    assert seen.ok() == "from-the-container\n"
    inside = running.exec(
        "/bin/busybox", "sh", "-c", "ls /run/slave /etc; pwd; cat /proc/1/comm; cat /proc/self/cgroup; exit 9"
    )
    assert inside.rc == 9
    assert "from-the-node" in inside.output
    assert "old" not in inside.output.split()  # the whiteout of the last layer
    assert "systemd" in inside.output  # hostPID
    assert f"/kubepods/besteffort/pod{running.pod.uid}/probe" in inside.output
    running.signal("SIGTERM")
    assert running.wait(timeout=60) == 7
    assert "stopping" in running.logs()
    running.remove()
    guest.run("umount /run/bench/slave").ok()
    mounts = "grep -E 'bench/shared/|/run/driverforge/rootfs' /proc/self/mountinfo"
    left = guest.run(
        f"ctr -n k8s.io containers ls -q; ctr -n k8s.io snapshots ls | grep -v Committed; {mounts}"
    )
    assert left.output.split() == ["KEY", "PARENT", "KIND"]


def test_a_host_path_of_another_type_stops_the_pod_as_a_kubelet_would(guest: Guest, stored: Store) -> None:
    guest.run("rm -rf /run/bench; mkdir -p /run/bench; touch /run/bench/shared").ok()
    with pytest.raises(CommandFailed) as failure:
        pod.run(guest, MANIFEST, image=stored.images[NAME], kind="Pod", container_id="refused")
    assert failure.value.details[0] == "hostPath type check failed: /run/bench/shared is not a Directory\n"
    assert "refused" not in guest.run("ctr -n k8s.io snapshots ls").ok()


def test_a_store_is_filled_from_a_registry_too(stored: Store, tmp_path: Path) -> None:
    """What a registry serves is what an archive holds: same digest, same snapshot."""
    archive = tmp_path / "probe.tar"
    digest = ociarchive.write(archive, [{"etc/hello": b"hello"}], config={"Cmd": ["/hello"]})
    with registry.serve(tmp_path / "registry") as server:
        ociarchive.push(archive, server.address, "probe", "1")
        name = f"{server.address}/probe:1"
        assert store.make({name: name}).images[name].digest == digest
