"""The cluster's half of the quickstart: an NVIDIADriver becomes a loaded driver, or is told why not.

Kubernetes, the node and the driver are real. The operator is a process of this machine with the rights of the
chart's own account. NVIDIA's own files of the toolkit cannot be had here: stand-ins that say so take their
place in the image with `driver-manager`.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driverforge_core import nodekeys
from driverforge_core.cell import CellId
from driverforge_core.errors import TemporaryFailure
from quickstart.node import TOOLKIT, expect
from quickstart.report import Report
from support import cache
from support.cluster import kubernetes_build, rollout, toolkitpod
from support.cluster.guestnode import GuestNode
from support.cluster.kubelet import PAUSE, small_images
from support.cluster.kubernetes import api_server
from support.cluster.operator import merge
from support.cluster.rollout import Rollout
from support.machines import engine, kernels, store

NODE = "gpu-node"
STORED = "registry.local/nvidia/driver:quickstart"
_NO_FURTHER = "toolkit-validation"  # nvidia-smi in a container: needs NVIDIA's runtime and a GPU
_LIMIT = 900  # seconds; without KVM a busy machine needs some of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What was built and pushed: the image of a cell, under its own tag in a registry."""

    work: Path
    cell: CellId
    image: str
    registry: str  # HOST:PORT/PATH


def run(report: Report, docker: engine.Engine, site: Site) -> None:
    """Bring a cluster up, roll a driver out, ask for one that nobody built, go on to the toolkit."""
    folder = site.work / "cluster"  # the last run's logs are there until the next one
    shutil.rmtree(folder, ignore_errors=True)
    control_plane = folder / "control-plane"
    control_plane.mkdir(parents=True)
    with ExitStack() as stack:
        with report.phase(f"Kubernetes {kubernetes_build.VERSION} and etcd") as result:
            if not kubernetes_build.made():
                report.say(f"compiling into {cache.root()}: ten minutes of two processors")
            programs, controllers = kubernetes_build.programs(), kubernetes_build.controllers()
            api = stack.enter_context(
                api_server(programs, control_plane, nodes=(NODE,), controllers=controllers)
            )
            result(f"API server, controller manager, scheduler on port {api.port}")
        with report.phase("images for the node: driver, driver-manager") as result:
            images = _images(docker, folder, site)
            result("the node has their layers, and pulls the driver's tag")
        with report.phase(f"node: boot {site.cell.kernel} under QEMU, start its kubelet") as result:
            kernel = kernels.of(str(site.cell.kernel))
            address = site.registry.partition("/")[0]
            node = stack.enter_context(rollout.guest_node(api, kernel, images=images, registry=address))
            result(f"Ready; {node.guest.accelerator}; no GPU: the PCI function exists in software only")
        with report.phase("operator: definitions, rights, its process"):
            work = stack.enter_context(rollout.rolling(node, folder))
            report.places["kubeconfig, while it runs"] = str(work.config)
            report.places["the operator's log"] = str(work.log)
        roll_out(report, work, node, site)
        containers(report, work, node, site)


def _images(docker: engine.Engine, folder: Path, site: Site) -> Path:
    """The node's image store."""
    toolkit = toolkitpod.kept(docker, engine.debian_base(docker), reference=TOOLKIT)
    return store.make({STORED: site.image, TOOLKIT: toolkit, PAUSE: small_images(folder)[0]}).disk


def roll_out(report: Report, work: Rollout, node: GuestNode, site: Site) -> None:
    """What a person does, and sees."""
    wanted = rollout.nvidia_driver(site.cell, site.registry, TOOLKIT)
    branch = int(wanted["spec"]["version"])
    manifest = site.work / "nvidiadriver.yaml"
    manifest.write_text(yaml.safe_dump(wanted, sort_keys=False))
    with report.phase("kubectl apply -f nvidiadriver.yaml: until the driver is Ready") as result:
        report.command("kubectl", "apply", "--server-side", "-f", manifest)
        report.say(manifest.read_text())
        began = time.monotonic()
        work.apply(wanted)
        _follow(report, work, "Reconciled")
        report.command("[node]", "lsmod | grep ^nvidia; cat /run/nvidia/validations/.driver-ctr-ready")
        report.say(node.guest.run("lsmod | grep ^nvidia; cat /run/nvidia/validations/.driver-ctr-ready").ok())
        result(f"Ready {time.monotonic() - began:.0f} s after it was applied")
    with report.phase(f"driverforge-operator explain {NODE}"):
        _say(report, work, "explain", NODE)
        _say(report, work, "status")
    with report.phase(f"a version that nobody built: {branch - 1}") as result:
        before = _running(work)
        _change(report, work, branch - 1)
        _follow(report, work, "ImageMissing")
        expect(_running(work) == before, "the DaemonSet and its pod stay", str(_running(work)))
        _say(report, work, "status")
        result("ImageMissing, with the command that makes it; the loaded driver stays")
    with report.phase(f"{branch} again") as result:
        _change(report, work, branch)
        _follow(report, work, "Reconciled")
        expect(_running(work) == before, "the pod is still the same", str(_running(work)))
        result("Reconciled; nothing was restarted")


def containers(report: Report, work: Rollout, node: GuestNode, site: Site) -> None:
    """The way on, as far as it goes without a GPU: toolkit, and the validator's first check."""
    wanted = rollout.cluster_policy(TOOLKIT)
    manifest = site.work / "clusterpolicy.yaml"
    manifest.write_text(yaml.safe_dump(wanted, sort_keys=False))
    with report.phase("kubectl apply -f clusterpolicy.yaml: toolkit, validator") as result:
        report.command("kubectl", "apply", "--server-side", "-f", manifest)
        work.apply(wanted)
        work.until(lambda: _closed(work) == _NO_FURTHER, f"{_NO_FURTHER} is where it stops")
        _say(report, work, "explain", NODE, status=1)
        look = (
            "containerd config dump | grep 'runtimes.nvidia'; ls /var/run/cdi; ls /usr/local/nvidia/toolkit"
        )
        report.command("[node]", look)
        report.say(node.guest.run(look).ok())
        result("driver validated, containerd has handlers; the next check needs NVIDIA's runtime and a GPU")
    with report.phase("the validator switched off on this node: Ready as far as there is no GPU") as result:
        label = f"{nodekeys.DEPLOY}operator-validator"
        report.command("kubectl", "label", "node", NODE, "--overwrite", f"{label}=false")
        merge(work.api, node.path, {"metadata": {"labels": {label: "false"}}})
        work.until(lambda: work.policy()[0] == "Reconciled", "ClusterPolicy Reconciled")
        _say(report, work, "explain", NODE)
        result("ClusterPolicy and NVIDIADriver: Reconciled")


def _closed(work: Rollout) -> str:
    """The container on which a gate of the node is closed; '' where none is."""
    finding = json.loads(work.operator("explain", NODE, "--json").stdout)["finding"]
    return str(finding["container"]) if finding else ""


def _running(work: Rollout) -> list[Any]:
    """What would differ if a driver had been touched."""
    specs = [one["spec"] for one in work.daemonsets().values()]
    return [*specs, *(one["metadata"]["uid"] for one in work.driver_pods())]


def _change(report: Report, work: Rollout, branch: int) -> None:
    patch = f'-p \'{{"spec": {{"version": "{branch}"}}}}\''
    report.command("kubectl", "patch", "nvidiadriver", rollout.DRIVER, "--type", "merge", patch)
    work.change(version=str(branch))


def _say(report: Report, work: Rollout, *words: str, status: int = 0) -> None:
    """Show a command of the operator that is to end with `status`."""
    report.command("driverforge-operator", *words)
    done = work.operator(*words)
    report.say(done.stdout + done.stderr)
    expect(done.status == status, f"{words[0]} ends with {status}", f"it ended with {done.status}")


def _follow(report: Report, work: Rollout, reason: str) -> None:
    """Say what changes until the NVIDIADriver has that reason."""
    end, seen = time.monotonic() + _LIMIT, set[str]()
    while time.monotonic() < end:
        now, message = work.condition()
        told = [f"NVIDIADriver: {': '.join(filter(None, (now, message)))}"] if now else []
        for line in (*told, *map(_about, work.driver_pods())):
            if line not in seen:
                report.say(line)
                seen.add(line)
        if now == reason:
            return
        time.sleep(1)
    raise TemporaryFailure(f"the NVIDIADriver is not {reason} after {_LIMIT} s", details=sorted(seen))


def _about(pod: dict[str, Any]) -> str:
    """A pod as `kubectl get pods` has it: what its containers wait for, or that they run."""
    status = pod["status"]
    rows = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    states = [(row, next(iter(row.get("state", {"": {}}).items()))) for row in rows]
    words = [
        f"{row['name']} {about.get('reason') or ('ready' if row.get('ready') else kind)}"
        for row, (kind, about) in states
    ]
    return f"pod {pod['metadata']['name']}: {', '.join(words) or status.get('phase', '')}"
