"""The driver's pod on a node with a real kernel: a JIT image compiles, the node reboots without a network.

The pod is that of docs/kubernetes/driver.yaml, as a static pod: without a network nobody else could tell the
kubelet of it, and neither a controller nor a scheduler has to be compiled. The image is `driverforge`'s. The
driver in it is a miniature: its modules are the bench's mocks. apt fetches the kernel's headers from a signed
mirror. A stand-in for make takes the compiler's place in one of two runs; in the other Debian's own compile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster import kubernetes_build
from support.cluster.guestnode import GuestNode
from support.cluster.kubelet import PAUSE, small_images
from support.cluster.kubernetes import Api, documents
from support.machines import jitimage, jitpods, kernels, kmods, qemu, rootfs, store
from support.machines.engine import find_or_start
from support.machines.guest import Guest
from support.machines.kernels import Kernel
from support.process import require, until
from support.samples.aptrepo import Served, served, signing_key
from support.samples.tinydriver import DRIVER
from support.skipping import provided

pytestmark = [
    pytest.mark.full(reason="a kubelet's two lives in one guest take minutes without KVM"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="filling a node's image store needs root"),
]

NODE = "node-guest"
SITE = "/etc/site"  # where the node has its site's apt configuration, and the pod mounts it
STATUS = "/run/nvidia/driverforge/status.json"
CACHE = f"/var/lib/driverforge/modules/{DRIVER}"
TOOLS = {"apt-get", "make", "gcc-12"}  # what a compilation starts


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return provided(lambda: kernels.newest("6.1"))


@pytest.fixture(scope="module")
def image_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's image store with the JIT image."""
    engine = provided(find_or_start)
    try:
        image = provided(lambda: jitimage.build(engine))
    finally:
        engine.stop()
    pause = small_images(tmp_path_factory.mktemp("images"))[0]
    return provided(lambda: store.make({jitimage.NAME: image, PAUSE: pause}).disk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A signed mirror of a kernel's header packages."""

    keyring: Path
    served: Served

    def configuration(self) -> dict[str, str | Path]:
        """What a site puts on its nodes for apt."""
        address = self.served.url.replace("127.0.0.1", qemu.HERE)
        return {
            f"{SITE}/archive.gpg": self.keyring,
            f"{SITE}/sources.list": f"deb [signed-by={SITE}/archive.gpg] {address} bookworm main\n",
            f"{SITE}/apt.conf": (
                f'Dir::Etc::SourceList "{SITE}/sources.list";\nDir::Etc::SourceParts "none";\n'
            ),
        }


@pytest.fixture(params=["stand-in", "gcc"])
def compiles(request: pytest.FixtureRequest) -> bool:
    """Whether pods have a compiler; else they have the stand-in for make."""
    return bool(request.param == "gcc")


@pytest.fixture
def mirror(kernel: Kernel, compiles: bool, tmp_path: Path) -> Iterator[Mirror]:
    provided(lambda: require("gpg", "gpgconf", "dpkg-deb"))
    with signing_key(tmp_path / "key") as key:
        archive = jitpods.repository(tmp_path / "mirror", key, kernel, small=not compiles)
        with served(archive.folder) as running:
            yield Mirror(keyring=key.keyring, served=running)


def driver_pod(*, mounts: Mapping[str, str]) -> dict[str, Any]:
    """The documented pod as a static one: with the image, and a site's mirror as it would be edited in.

    `mounts` are further paths of the pod and where the node has them.

    A static pod may not name objects of the API, such as its service account.
    """
    daemonset = next(
        document
        for document in yaml.safe_load_all(jitpods.MANIFEST.read_text())
        if document and document["kind"] == "DaemonSet"
    )
    spec = daemonset["spec"]["template"]["spec"]
    del spec["serviceAccountName"]
    [container] = spec["containers"]
    container["image"] = jitimage.NAME
    container["env"].append({"name": "APT_CONFIG", "value": f"{SITE}/apt.conf"})
    for number, (inside, path) in enumerate({SITE: SITE, **mounts}.items()):
        name = f"bench-{number}"
        container["volumeMounts"].append({"name": name, "mountPath": inside, "readOnly": True})
        spec["volumes"].append({"name": name, "hostPath": {"path": path}})
    metadata = {"name": "nvidia-driver", "namespace": daemonset["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def node(api: Api, kernel: Kernel, image_store: Path, mirror: Mirror, compiles: bool) -> Iterator[GuestNode]:
    """A node whose kubelet has its pod; it is not Ready yet."""
    kubelet = provided(kubernetes_build.kubelet)
    provided(lambda: require(qemu.PROGRAM, "busybox", "kmod", "depmod", "mke2fs", "make", "setpriv"))
    for document in documents(jitpods.MANIFEST.read_text()):
        assert api.apply(document).ok
    booted = provided(lambda: kernels.image(kernel.release))
    machine = rootfs.rebooting_machine(booted, store=image_store, append=kmods.GPU_MEMORY, memory=3072)
    with Guest.start(machine, saved=False, timeout=900) as guest:
        guest.put({**mirror.configuration(), "/bench/make": jitpods.MAKE, "/bench/made": kmods.mock(kernel)})
        made = GuestNode(guest, api, NODE)
        stand_in = {} if compiles else {"/usr/local/bin/make": "/bench/make", jitpods.MADE: "/bench/made"}
        made.join(kubelet, kmods.fakegpu(kernel), driver_pod(mounts=stand_in))
        yield made


def status(node: GuestNode) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(node.guest.run(f"cat {STATUS}").ok())
    return found


def test_a_node_that_compiled_reboots_without_a_network_and_loads_from_its_cache(
    node: GuestNode, kernel: Kernel, mirror: Mirror
) -> None:
    node.until_pod_ready(timeout=1800)
    until(lambda: node.seen_ready("nvidia-driver", "driverforge"), "the pod in the API", timeout=300)
    first = status(node)
    assert "the image has their source: compiling here" in first["module_source"]
    assert first["modules"] == {"nvidia": DRIVER, "nvidia_modeset": DRIVER, "nvidia_uvm": DRIVER}
    assert any(f"linux-headers-{kernel.release}_" in request for request in mirror.served.requests)
    assert node.ended() >= TOOLS
    marks = f"find {CACHE} -type f -printf '%P %i %T@\\n' | sort"
    kept, boot = node.guest.run(marks).ok(), node.boot()
    assert "module-set.json" in kept

    qemu.set_link(node.guest.control, up=False)
    mirror.served.requests.clear()
    node.guest.reboot(timeout=900)
    [container] = node.until_pod_ready(timeout=900)["status"]["containerStatuses"]

    assert node.boot() != boot
    again = status(node)
    kept_set = f"proprietary modules {DRIVER} for {kernel.release}"  # KERNEL_MODULE_TYPE is auto
    assert again["module_source"] == f"the node's cache has {kept_set}"
    assert (again["phase"], again["modules"], again["root"]) == ("ready", first["modules"], "ours")
    ready = node.guest.run("cat /run/nvidia/validations/.driver-daemons-status; lsmod | grep -c ^nvidia").ok()
    assert ready == "Ready\n3\n"
    # no compiler, and no package manager: the kernel has recorded every process of this boot
    assert not node.ended() & TOOLS
    assert "modprobe" in node.ended()
    assert mirror.served.requests == []
    assert node.guest.run(marks).ok() == kept
    assert container["image"].endswith(jitimage.NAME)

    qemu.set_link(node.guest.control, up=True)
    until(lambda: node.seen_ready("nvidia-driver", "driverforge"), "the pod in the API", timeout=300)
