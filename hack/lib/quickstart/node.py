"""The node's half of the quickstart.

It boots the very kernel, runs the driver image as a kubelet would, and watches what it does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import CommandFailed
from quickstart.report import Report
from support.cluster import toolkitpod
from support.machines import engine, kernels, kmods, pod, rootfs, store
from support.machines.guest import Guest
from support.machines.pod import GuestPod
from support.machines.store import StoredImage

_TOP = Path(__file__).resolve().parents[3]
DRIVER = _TOP / "docs/kubernetes/driver.yaml"
RUNTIME = _TOP / "docs/kubernetes/runtime-job.yaml"
IMAGE = "registry.local/nvidia/driver:quickstart"
# stand-ins that say so take the place of NVIDIA's own files of the toolkit, which cannot be had here
TOOLKIT = "registry.local/nvidia/toolkit:stand-ins"
CONFIG = "/etc/containerd/config.toml"
STATUS = "/run/nvidia/validations/.driver-daemons-status"
_LOOK = """lsmod | grep ^nvidia
ls /run/nvidia/driver/usr/bin/nvidia-smi
cat /proc/driver/nvidia/version
grep nvidia /proc/devices"""
_HOLD = """
mknod -m 666 /dev/nvidiactl c 195 255 2>/dev/null
setsid sleep 100000 </dev/nvidiactl >/dev/null 2>&1 &
echo $! >/run/holder
"""
_LEFT = (
    "grep ' /run/nvidia/driver' /proc/self/mountinfo || true; cat /sys/module/firmware_class/parameters/path"
)
_LOADS = "dmesg | grep -c 'NVRM: loading NVIDIA' || true"
_MODULES = "lsmod | grep -E '^nvidia' || true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A booted node and the images in its containerd."""

    guest: Guest
    image: StoredImage
    toolkit: StoredImage
    report: Report

    def shell(self, script: str, *, show: bool = True, check: bool = True) -> str:
        """Run a script on the node, as its admin; the output is shown."""
        result = self.guest.run(script)
        if show:
            for line in script.strip().splitlines():
                self.report.command(f"[node] {line.strip()}")
            self.report.say(result.output)
        return result.ok().strip() if check else result.output.strip()

    def modules(self) -> set[str]:
        return {line.split()[0] for line in self.guest.run(_MODULES).ok().splitlines()}

    def start_driver(self, name: str) -> GuestPod:
        """Start the driver pod; returns when it says Ready."""
        started = pod.run(self.guest, DRIVER, image=self.image, container_id=name)
        wait = f"""
            tail -n +1 --retry -F {started.log_file} 2>/dev/null & follow=$!
            for i in $(seq 1200); do
                [ "$(cat {STATUS} 2>/dev/null)" = Ready ] && break
                ctr -n k8s.io tasks ls | grep -q '^{name} .*RUNNING' || break
                sleep 0.2
            done
            sleep 0.3; kill $follow
            [ "$(cat {STATUS} 2>/dev/null)" = Ready ]
        """
        result = self.guest.run(wait, timeout=400, on_output=self.report.say)
        if result.rc != 0:
            raise CommandFailed(
                "the driver pod did not become Ready",
                details=[result.output, *result.console.splitlines()[-15:]],
            )
        return started

    def stop_driver(self, started: GuestPod) -> str:
        """SIGTERM, as the kubelet sends it; returns what the container said from then on."""
        before = len(started.logs())
        started.signal("SIGTERM")
        status = started.wait(timeout=60)
        said = started.logs()[before:]
        self.report.say(said)
        if status != 0:
            raise CommandFailed(f"driverctl ended with {status} after SIGTERM", details=[said])
        return said


def expect(true: bool, what: str, evidence: str) -> None:
    """Stop the quickstart where something is not as it must be."""
    if not true:
        raise CommandFailed(f"not as it must be: {what}", details=[evidence])


def run(report: Report, docker: engine.Engine, *, work: Path, release: str, image: str) -> None:
    """Boot a node with that kernel, and the whole scenario on it."""
    with report.phase("node: kernel, root file system, image store") as result:
        booted = kernels.image(release)
        headers = kernels.of(release)
        fakegpu = kmods.fakegpu(headers)
        # under a name of its own: the registry's port differs from run to run
        toolkit = toolkitpod.kept(docker, engine.debian_base(docker), reference=TOOLKIT)
        stored = store.make({IMAGE: image, TOOLKIT: toolkit})
        machine = rootfs.systemd_machine(booted, store=stored.disk, append=kmods.GPU_MEMORY)
        result(f"{release}, systemd, containerd 1.6")
    console = work / "node-console.log"
    report.places["node's console"] = str(console)
    with report.phase(f"boot {release} under QEMU") as result:
        guest = Guest.start(machine)
        result(f"{guest.accelerator}; no GPU: the PCI function exists in software only")
    try:
        driver, other = stored.images[IMAGE], stored.images[TOOLKIT]
        node = Node(guest=guest, image=driver, toolkit=other, report=report)
        with report.phase("node: image store and PCI function in place"):
            store.attach(guest)
            guest.put({"/gpu/fakegpu.ko": fakegpu / "fakegpu.ko"})
            node.shell(f"insmod /gpu/fakegpu.ko {kmods.GPU_PARAMETERS}\nlspci -nn | grep 10de:")
        scenario(node)
    finally:
        guest.stop(keep_console=console)


def scenario(node: Node) -> None:
    """Driver, runtime, stop while in use, start again, stop."""
    report = node.report
    with report.phase("driverctl init: driver pod with upstream's mounts") as result:
        started = node.start_driver("driver-1")
        expect(
            node.modules() >= {"nvidia", "nvidia_uvm", "nvidia_modeset"},
            "modules loaded",
            str(node.modules()),
        )
        node.shell(_LOOK)
        result("Ready: " + " ".join(sorted(node.modules())))
    with report.phase("look at it: status, probe, nvidia-smi") as result:
        report.say(started.exec("driverctl", "status").ok())
        started.exec("driverctl", "probe").ok()
        smi = started.exec("nvidia-smi")
        report.say(smi.output)
        expect(
            smi.rc == 6,
            "nvidia-smi exits 6 on a PCI function without a GPU behind it",
            f"{smi.rc}: {smi.output}",
        )
        result("nvidia-smi exits 6: no devices were found, as it must be without a GPU")
    runtime(node)
    with report.phase("SIGTERM while a process holds the device") as result:
        node.guest.run(_HOLD).ok()
        loaded = node.modules()
        began = time.monotonic()
        said = node.stop_driver(started)
        seconds = time.monotonic() - began
        expect("sleep" in said, "the holder is named", said)
        expect(node.modules() == loaded, "the modules stay", str(node.modules()))
        result(f"holder named, modules stay, ended after {seconds:.1f} s")
        started.remove()
    with report.phase("start again: nothing is reloaded") as result:
        loads = node.shell(_LOADS, show=False)
        started = node.start_driver("driver-2")
        expect(
            node.shell(_LOADS, show=False) == loads,
            "the driver was not loaded again",
            node.shell("dmesg | grep NVRM", show=False),
        )
        result("Ready with the modules that were there")
    with report.phase("SIGTERM when nothing uses it: nothing is left") as result:
        node.guest.run("kill $(cat /run/holder)").ok()
        node.stop_driver(started)
        started.remove()
        expect(not node.modules(), "no module is left", str(node.modules()))
        left = node.shell(_LEFT, show=False)
        expect(not left, "no mount and no firmware path is left", left)
        result("unloaded, unmounted")


def runtime(node: Node) -> None:
    """Configure containerd from a container of the toolkit image, and take it back."""
    report = node.report
    with report.phase("driverctl runtime apply: containerd 1.6, from a second pod") as result:
        before = node.shell(f"sha256sum {CONFIG}", show=False)
        job(node, "apply")
        node.shell(f"cat {CONFIG}; containerd config dump | grep -A1 'runtimes.nvidia'", check=False)
        node.shell("ctr plugins ls | grep -w cri")
        result("handlers nvidia, nvidia-cdi, nvidia-legacy; CRI answers")
    with report.phase("driverctl runtime revert: the original bytes") as result:
        job(node, "revert")
        after = node.shell(f"sha256sum {CONFIG}", show=False)
        expect(before == after, f"{CONFIG} has its original bytes", f"{before}\n{after}")
        result("same sha256 as before")


def job(node: Node, verb: str) -> None:
    started = pod.run(
        node.guest,
        RUNTIME,
        image=node.toolkit,
        kind="Job",
        arguments=["runtime", verb],
        container_id=f"runtime-{verb}",
    )
    status = started.wait(timeout=180)
    node.report.say(started.logs())
    if status != 0:
        raise CommandFailed(f"driverctl runtime {verb} ended with {status}", details=[started.logs()])
    started.remove()
