"""Who starts the container runtime again: systemd, or a Kubernetes distribution whose child it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_host.ports import Files, Host
from driverforge_toolkit.runtime.model import Supervisor, SupervisorKind

# a distribution: its units, and a part of the paths of its files
DISTRIBUTIONS: tuple[tuple[SupervisorKind, re.Pattern[str], str], ...] = (
    ("k3s", re.compile(r"k3s(-agent)?(-\w+)?\.service"), "/rancher/k3s/"),
    ("rke2", re.compile(r"rke2-(server|agent)\.service"), "/rancher/rke2/"),
    ("k0s", re.compile(r"k0s(controller|worker)\.service"), "/k0s/"),
    ("microk8s", re.compile(r"snap\.microk8s\..*\.service"), "/microk8s/"),
    ("snap", re.compile(r"snap\..*\.service"), "/snap/"),
)
# seconds until their containerd answers; a control plane starts first
SLOW = {
    "k3s": 180.0,
    "rke2": 300.0,
    "k0s": 180.0,
}
SYSTEMD = "/run/systemd/system"  # sd_booted(3): systemd runs this node
ATTEMPTS = 3  # a node under load leaves a question unanswered, and not the next one
USER = re.compile(r"user@\d+\.service")


def unit_of(cgroup: str) -> str:
    """The systemd service of a process, from its /proc/PID/cgroup; '' where it is in none.

    Reads cgroup v2, and v1's name=systemd.
    """
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        units = [part for part in path.split("/") if part.endswith(".service")]
        if controllers in ("", "name=systemd") and units:
            return "" if any(USER.fullmatch(unit) for unit in units) else units[-1]
    return ""


def distribution(unit: str, *paths: str) -> SupervisorKind:
    """The distribution that a runtime belongs to, '' for none that we know.

    By the unit's name, else by the paths of the files that it uses.
    """
    for name, units, _ in DISTRIBUTIONS:
        if units.fullmatch(unit):
            return name
    for name, _, part in DISTRIBUTIONS:
        if any(part in path for path in paths):
            return name
    return ""


def supervisor_of(host: Host, pid: int, *paths: str) -> tuple[Supervisor, str]:
    """The supervisor of the process `pid`, and how it was found.

    `paths` are its program and its configuration file.
    """
    unit = unit_of(host.node.read_text(f"/proc/{pid}/cgroup"))
    kind = distribution(unit, *paths)
    main = main_pid(host, unit) if unit else 0
    ours = Supervisor(kind=kind or "systemd", unit=unit)
    if main and main == pid:
        return ours, f"{unit} (its control group; its main process is {pid})"
    if main and main in ancestors(host.node, pid):
        return ours, f"{unit} (its control group; {pid} is a child of its main process {main})"
    why = "it is in no systemd service"
    if unit:
        why = f"it is in the control group of {unit}, whose main process {main} is not its parent"
    by_files = f" ({kind} by its files)" if kind and not unit else ""
    return Supervisor(kind=kind), f"nobody that we know{by_files}: {why}"


def main_pid(host: Host, unit: str) -> int:
    """The PID of a unit's main process; 0 where it does not run, or where there is no systemd.

    Raises CommandFailed where there is one that does not answer: then nobody knows who starts the runtime.
    """
    said: tuple[str, ...] = ()
    for _ in range(ATTEMPTS):
        try:
            return host.services.main_pid(unit)
        except DriverforgeError as error:
            if not host.node.exists(SYSTEMD):
                return 0
            said = (error.brief, *error.details)
        host.clock.pause(1.0)
    raise CommandFailed(
        f"systemd does not say what the main process of {unit} is",
        details=said,
        resolution="run this again when the node has less to do; nothing was changed",
    )


def ancestors(node: Files, pid: int) -> Iterator[int]:
    """The PIDs of the parent, of its parent, and so on."""
    while pid > 1:
        try:
            fields = node.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # proc(5): state, ppid
        except FileNotFoundError:
            return
        pid = int(fields[1])
        yield pid
