"""Find the real container runtime: the process behind the socket, its binary, its configuration file, and who restarts it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import InputError, Unavailable, Unsupported
from driverforge_node.host.ports import Files, Host, Result
from driverforge_node.runtime.document import parse
from driverforge_node.runtime.ports import Sockets

SOCKET = "/run/containerd/containerd.sock"
CONFIG = "/etc/containerd/config.toml"
SUPPORTED = re.compile(r"\s1\.6\.\d")
UNIT = re.compile(r"/(?P<unit>[^/]+\.service)$")
MANAGED = ("k3s", "rke2", "k0s", "microk8s", "snap.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A running containerd. Paths are as the node's own processes see them."""

    pid: int
    binary: str
    config: str
    unit: str  # systemd unit whose main process it is, '' when systemd does not run it


def enter(host: Host) -> tuple[str, ...]:
    """The command prefix that runs a program of the node in the node's own file system, () when we are there."""
    return () if host.node.root == "/" else ("nsenter", "--target", "1", "--mount", "--")


def socket_path(node: Files, path: str) -> str:
    """A socket of the node as our own process reaches it."""
    return node.root.rstrip("/") + node.resolve(path)


def find(host: Host, sockets: Sockets, socket: str, config: str) -> Daemon:
    """The daemon that listens on `socket`; `config` overrides the file that its command line names.

    Raises Unavailable (nothing listens), Unsupported (not containerd, managed by a Kubernetes distribution, or out of our sight).
    """
    with sockets.connect(socket_path(host.node, socket), timeout=5.0) as connection:
        pid = connection.peer_pid()
    if pid == 0:
        raise Unsupported(
            f"the process behind {socket} is in a PID namespace that we do not see",
            resolution="give the pod `hostPID: true`, or run this on the node",
        )
    node, proc = host.node, f"/proc/{pid}"
    try:
        command = [word for word in node.read_text(f"{proc}/cmdline").split("\0") if word]
        unit = unit_of(node.read_text(f"{proc}/cgroup"))
    except FileNotFoundError as error:
        raise Unavailable(f"the process {pid} behind {socket} ended just now") from error
    binary = node.resolve(f"{proc}/exe").removesuffix(" (deleted)")  # after an upgrade: a restart starts the new one
    if not binary.endswith("/containerd"):
        raise Unsupported(
            f"the process behind {socket} is {binary}, not containerd",
            details=[f"PID {pid}: {' '.join(command)}"],
            resolution="give the socket of the node's containerd with --socket; other runtimes are not supported yet",
        )
    if any(word in f"{unit} {config_argument(command)} {binary}" for word in MANAGED):
        raise Unsupported(
            f"this containerd belongs to {unit or binary}, which writes its configuration itself",
            details=[f"PID {pid}: {' '.join(command)}"],
            resolution="put the handlers into that distribution's template or drop-in folder; driverctl does not do this yet",
        )
    if unit and host.services.main_pid(unit) != pid:
        unit = ""
    return Daemon(pid=pid, binary=binary, config=config or config_argument(command), unit=unit)


def config_argument(command: Sequence[str]) -> str:
    """The file that containerd's command line names (-c, --config), else its default."""
    for index, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in ("-c", "--config", "-config"):
            return value or "".join(command[index + 1 : index + 2])
    return CONFIG


def unit_of(cgroup: str) -> str:
    """The systemd service of a process, from /proc/PID/cgroup (cgroup v2, or v1's name=systemd), '' when it is in none."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        found = UNIT.search(path)
        if controllers in ("", "name=systemd") and found:
            return found["unit"]
    return ""


def check_version(host: Host, daemon: Daemon) -> None:
    """Raises Unsupported for a release that reads its configuration differently."""
    shown = host.commands.run([*enter(host), daemon.binary, "--version"], check=False)
    if not shown.ok or not SUPPORTED.search(shown.stdout):
        raise Unsupported(
            "this release of driverctl configures containerd 1.6 only",
            details=[f"{daemon.binary}: {shown.stdout.strip() or shown.stderr.strip()}"],
            resolution="add the handlers by hand (docs/runtime.md shows them), or use a newer driverctl",
        )


def effective(host: Host, daemon: Daemon, data: bytes) -> dict[str, object]:
    """What the node's own containerd makes of a configuration file with these bytes. Raises InputError with containerd's own message.

    It reads them from its standard input: nothing is written on the node for a check.
    """
    argv = [*enter(host), daemon.binary, "--config", "/dev/stdin", "config", "dump"]
    shown = host.commands.run(argv, check=False, input_text=data.decode())
    if not shown.ok:
        raise InputError(
            f"containerd does not accept {daemon.config}", details=_said(shown), resolution="repair the file; driverctl changed nothing"
        )
    return parse(shown.stdout.encode(), "containerd's effective configuration")


def _said(shown: Result) -> list[str]:
    return [line for line in (shown.stdout + shown.stderr).splitlines() if line.strip()]


def not_running(socket: str, *details: str) -> Unavailable:
    return Unavailable(
        f"no container runtime answers at {socket}",
        details=details,
        resolution="start it (systemctl start containerd), or give its socket with --socket; driverctl changed nothing",
    )
