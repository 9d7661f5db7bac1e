"""Who starts the container runtime again: systemd, or a Kubernetes distribution whose child it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from driverforge_core.errors import DriverforgeError
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime.model import Supervisor

# a distribution: its units, and a part of the paths of its files
DISTRIBUTIONS = (
    ("k3s", re.compile(r"k3s(-agent)?(-\w+)?\.service"), "/rancher/k3s/"),
    ("rke2", re.compile(r"rke2-(server|agent)\.service"), "/rancher/rke2/"),
    ("k0s", re.compile(r"k0s(controller|worker)\.service"), "/k0s/"),
    ("microk8s", re.compile(r"snap\.microk8s\..*\.service"), "/microk8s/"),
    ("snap", re.compile(r"snap\..*\.service"), "/snap/"),
)
SLOW = {
    "k3s": 180.0,
    "rke2": 300.0,
    "k0s": 180.0,
}  # seconds until their containerd answers; a control plane starts first
USER = re.compile(r"user@\d+\.service")


def unit_of(cgroup: str) -> str:
    """The systemd service of a process, from /proc/PID/cgroup (cgroup v2, or v1's name=systemd), '' when it is in none."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        units = [part for part in path.split("/") if part.endswith(".service")]
        if controllers in ("", "name=systemd") and units:
            return "" if any(USER.fullmatch(unit) for unit in units) else units[-1]
    return ""


def distribution(unit: str, *paths: str) -> str:
    """'k3s', 'rke2', 'k0s', 'microk8s' or 'snap' by the unit's name or by the files that a runtime uses; '' for none of them."""
    for name, units, _ in DISTRIBUTIONS:
        if units.fullmatch(unit):
            return name
    for name, _, part in DISTRIBUTIONS:
        if any(part in path for path in paths):
            return name
    return ""


def find(host: Host, pid: int, *paths: str) -> tuple[Supervisor, str]:
    """The supervisor of the process `pid`, and how it was found; `paths` are its program and its configuration file."""
    unit = unit_of(host.node.read_text(f"/proc/{pid}/cgroup"))
    kind = distribution(unit, *paths)
    main = main_pid(host, unit) if unit else 0
    if main and main == pid:
        return Supervisor(
            kind=kind or "systemd", unit=unit
        ), f"{unit} (its control group; its main process is {pid})"
    if main and main in ancestors(host.node, pid):
        return Supervisor(
            kind=kind or "systemd", unit=unit
        ), f"{unit} (its control group; {pid} is a child of its main process {main})"
    if unit:
        return (
            Supervisor(kind=kind),
            f"nobody that we know: it is in the control group of {unit}, whose main process {main} is not its parent",
        )
    return Supervisor(
        kind=kind
    ), f"nobody that we know{f' ({kind} by its files)' if kind else ''}: it is in no systemd service"


def main_pid(host: Host, unit: str) -> int:
    """PID of a unit's main process; 0 where it does not run, or where no systemd does."""
    try:
        return host.services.main_pid(unit)
    except DriverforgeError:
        return 0


def ancestors(node: Files, pid: int) -> Iterator[int]:
    """PIDs of the parent, its parent, and so on."""
    while pid > 1:
        try:
            fields = node.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # proc(5): state, ppid
        except FileNotFoundError:
            return
        pid = int(fields[1])
        yield pid
