"""Find the real container runtime: the process behind a socket, its program and its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_host.ports import Files, Host, Sockets, bytes_of
from driverforge_toolkit.runtime.find import supervisor
from driverforge_toolkit.runtime.find.procfs import (
    absolute_path,
    command_of,
    option_value,
    option_values,
    options_of,
    program_name,
    variable_of,
)
from driverforge_toolkit.runtime.model import DaemonPath, NodePath, PodPath, RuntimeDaemon, RuntimeKind
from driverforge_toolkit.runtime.request import RuntimeRequest

PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
INIT = ("systemd", "init")
PROGRAMS: dict[str, RuntimeKind] = {"containerd": "containerd", "crio": "crio", "dockerd": "docker"}
SOCKET_NAMES: dict[str, RuntimeKind] = {
    "containerd.sock": "containerd",
    "crio.sock": "crio",
    "docker.sock": "docker",
}
# the units that may run the runtime at a socket; elsewhere the unit is called as the runtime
UNITS: dict[str, tuple[str, ...]] = {
    "/run/k3s/containerd/containerd.sock": ("k3s", "k3s-agent", "rke2-server", "rke2-agent"),
    "/run/k0s/containerd.sock": ("k0sworker", "k0scontroller"),
    "/var/snap/microk8s/common/run/containerd.sock": ("snap.microk8s.daemon-containerd",),
}
CONFIG: dict[RuntimeKind, str] = {
    "containerd": "/etc/containerd/config.toml",
    "crio": "/etc/crio/crio.conf",
    "docker": "/etc/docker/daemon.json",
}
CONFIG_OPTIONS: dict[RuntimeKind, tuple[str, ...]] = {
    "containerd": ("-c", "--config", "-config"),
    "crio": ("-c", "--config"),
    "docker": ("--config-file",),
}
CONFIG_VARIABLES: dict[RuntimeKind, str] = {"crio": "CONTAINER_CONFIG"}
CRIO_FOLDER = "/etc/crio/crio.conf.d"
# of k3s, rke2 and microk8s
TEMPLATES = (
    "config.toml.tmpl",
    "config-v3.toml.tmpl",
    "containerd-template.toml",
)
DROP_IN = "99-nvidia.toml"
VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonProcess:
    """A running daemon, as /proc shows it."""

    pid: int
    command: tuple[str, ...]
    kind: RuntimeKind
    binary: DaemonPath


def kind_at(socket: str) -> RuntimeKind | Literal[""]:
    """The kind of a runtime by the name of its socket, for one that is down; '' for another name."""
    return SOCKET_NAMES.get(socket.rpartition("/")[2], "")


def enter(host: Host, daemon: RuntimeDaemon | None = None) -> tuple[str, ...]:
    """The words before a command that run it in the node's own file system; () where we are on the node.

    A daemon with a file system of its own (a snap's) gets its programs run in that.
    """
    if daemon is not None and daemon.pid and not host.node.exists(daemon.binary):
        return ("nsenter", "--target", str(daemon.pid), "--mount", "--")
    return () if host.node.root == "/" else ("nsenter", "--target", "1", "--mount", "--")


def socket_path(node: Files, path: NodePath) -> PodPath:
    """What our own process calls a socket of the node."""
    return PodPath(node.root.rstrip("/") + node.resolve(path))


def daemon_behind(host: Host, sockets: Sockets, socket: NodePath, request: RuntimeRequest) -> RuntimeDaemon:
    """The daemon that listens on `socket`. Paths in `request` count before what it says of itself.

    Raises Unavailable where nothing listens, Unsupported for a program that is no runtime, or that we cannot
    see.
    """
    pid = listener(host, sockets, socket)
    try:
        process = process_of(host, pid, socket, request)
        config, whence = _config(host, process, request)
        found, how = supervisor.supervisor_of(host, pid, process.binary, config)
    except FileNotFoundError as error:
        raise Unavailable(f"the process {pid} behind {socket} ended just now") from error
    drop_in, chosen = _drop_in(host, process, config, found.kind, request)
    daemon = RuntimeDaemon(
        kind=process.kind,
        pid=pid,
        binary=process.binary,
        version=(),
        socket=socket,
        config=config,
        drop_in=NodePath(drop_in),
        supervisor=found,
        # runtimes of its command line are gone after a SIGHUP, once the file has any (dockerd 26, 28)
        reloads=process.kind == "docker" and not option_values(process.command, ("--add-runtime",)),
        folder=NodePath(host.node.resolve(f"/proc/{pid}/cwd")),
    )
    text = version_text(host, daemon)
    evidence = (
        f"process: {pid}, which answers at {socket}",
        f"program: {process.binary}, {text or 'which does not tell its version'}",
        f"configuration: {config} ({whence})",
        *((f"drop-in: {drop_in} ({chosen})",) if drop_in else ()),
        f"started by: {how}",
    )
    return replace(daemon, version=version_of(text), evidence=evidence)


def listener(host: Host, sockets: Sockets, socket: NodePath) -> int:
    """The PID of the daemon behind a socket.

    Raises Unavailable, and Unsupported for a daemon in a PID namespace that we do not see.
    """
    with sockets.connect(socket_path(host.node, socket), timeout=5.0) as connection:
        pid = connection.peer_pid()
        # systemd opened the socket (docker.socket): whoever answers is the daemon
        if pid and _comm(host.node, pid) in INIT:
            connection.send(PING)
            pid = connection.sender_pid() if connection.receive(4096) else 0
    if pid == 0:
        raise Unsupported(
            f"the process behind {socket} is in a PID namespace that we do not see",
            resolution="give the pod `hostPID: true`, or run this on the node",
        )
    return pid


def process_of(host: Host, pid: int, socket: str, request: RuntimeRequest) -> DaemonProcess:
    """What /proc says of a daemon.

    Raises FileNotFoundError where it has ended, Unsupported for a program that is no runtime.
    """
    node = host.node
    if not (command := command_of(node, pid)):
        raise FileNotFoundError(f"/proc/{pid}/cmdline")
    # after an upgrade: a restart starts the new one
    binary = node.resolve(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    called = program_name(command)
    if binary.rpartition("/")[2] not in PROGRAMS and called in PROGRAMS:
        binary = f"{binary.rpartition('/')[0]}/{called}"  # k3s is one program with several names
    kind = PROGRAMS.get(binary.rpartition("/")[2])
    if kind is None or (request.runtime and kind != request.runtime):
        wanted = request.runtime or "containerd, CRI-O or docker"
        raise Unsupported(
            f"the process behind {socket} is {binary}, not {wanted}",
            details=[f"PID {pid}: {' '.join(command)}"],
            resolution="give the runtime's own socket with --socket",
        )
    return DaemonProcess(pid=pid, command=command, kind=kind, binary=request.binary or DaemonPath(binary))


def _config(host: Host, process: DaemonProcess, request: RuntimeRequest) -> tuple[NodePath, str]:
    """The root file, and how it was found."""
    folder, _, name = request.config.rpartition("/")
    # CRI-O's root file is never written: what it reads counts, whatever somebody calls it (NVIDIA's operator
    # says /etc/crio/config.toml)
    written = process.kind != "crio"
    if request.config and name not in TEMPLATES and written:
        return request.config, request.given.get("config", "given")
    own, how = own_config(host, process.pid, process.kind, process.command)
    if not written and request.config and not _one_file(host.node, own, request.config):
        return own, f"{how}; it does not read {request.config} ({request.given.get('config', 'given')})"
    if not request.config or not written:
        return own, how
    # NVIDIA's and Canonical's instructions name the template
    if _one_file(host.node, own.rpartition("/")[0], folder):
        return own, f"{how}; it is made of {request.config}"
    return request.config, request.given.get("config", "given")


def own_config(host: Host, pid: int, kind: RuntimeKind, command: Sequence[str]) -> tuple[NodePath, str]:
    """The root file that a running daemon reads at its start, and how it was found.

    Raises as `node_path_of`.
    """
    named, how = _named(host, pid, command, CONFIG_OPTIONS[kind], CONFIG_VARIABLES.get(kind, ""))
    return absolute_path(host, pid, named or CONFIG[kind]), how or "its built-in default"


def crio_folder(host: Host, pid: int, command: Sequence[str]) -> tuple[NodePath, str]:
    """The folder whose files a running CRI-O reads after its root file, and how it was found.

    It does not go by where the root file is (cri-o/cri-o, internal/criocli). Raises as `node_path_of`.
    """
    named, how = _named(host, pid, command, ("-d", "--config-dir"), "CONTAINER_CONFIG_DIR")
    return absolute_path(host, pid, named.rstrip("/") or CRIO_FOLDER), how or "CRI-O's own folder"


def _named(
    host: Host, pid: int, command: Sequence[str], options: Sequence[str], variable: str
) -> tuple[str, str]:
    """The path that a daemon was started with, by an option or else a variable, and which; '' for none."""
    if named := option_value(command, options):
        return named, f"{options[-1]} of its command line"
    named = variable_of(host.node, pid, variable) if variable else ""
    return named, f"its variable {variable}" if named else ""


def check_config_is_read(host: Host, daemon: RuntimeDaemon, request: RuntimeRequest) -> None:
    """Raises Unsupported if the daemon does not read the file that is to be written, by what was given.

    That is the root file, of CRI-O the drop-in. A daemon of which nobody can tell what it reads is not
    checked: there the user knows better.
    """
    if not daemon.pid:
        return
    command = options_of(host.node, daemon.pid)
    if daemon.kind == "crio":
        _check_drop_in_is_read(host, daemon, request, command)
        return
    if not request.config:
        return
    if (
        daemon.kind == "docker"
        and not option_value(command, CONFIG_OPTIONS["docker"])
        # RootlessKit's own mark (docker, pkg/rootless)
        and variable_of(host.node, daemon.pid, "ROOTLESSKIT_STATE_DIR")
    ):
        return  # its built-in default is in the user's home folder
    try:
        own, how = own_config(host, daemon.pid, daemon.kind, command)
    except Unsupported:
        return
    if _one_file(host.node, own, daemon.config):
        return
    origin = request.given.get("config") or "RUNTIME_CONFIG or --config"
    folder = own.rpartition("/")[0]
    raise Unsupported(
        f"the {daemon.kind} at {daemon.socket} does not read {daemon.config}",
        details=[f"PID {daemon.pid} reads {own} ({how})", f"{origin} says {daemon.config}"],
        resolution=f"unset {origin}, or set it to {own} (in a pod: mount the node's {folder} where the "
        "variable says); if another runtime is meant, give its socket with --socket or RUNTIME_SOCKET; "
        "nothing was changed",
    )


def _check_drop_in_is_read(
    host: Host, daemon: RuntimeDaemon, request: RuntimeRequest, command: Sequence[str]
) -> None:
    folder, how = crio_folder(host, daemon.pid, command)
    if not request.drop_in or _one_file(host.node, daemon.drop_in.rpartition("/")[0], folder):
        return
    origin = request.given.get("drop_in") or "RUNTIME_DROP_IN_CONFIG or --drop-in"
    raise Unsupported(
        f"the crio at {daemon.socket} does not read {daemon.drop_in}",
        details=[f"PID {daemon.pid} reads the files in {folder} ({how})", f"{origin} says {daemon.drop_in}"],
        resolution=f"unset {origin}, or name a file in {folder}; nothing was changed",
    )


def _one_file(node: Files, first: str, second: str) -> bool:
    """Whether two paths are one file, by links or by mounts.

    Also for a file that does not exist yet: then by its folder and its name.
    """
    paths = [node.resolve(path) for path in (first, second)]
    if paths[0] == paths[1]:
        return True
    names = [path.rpartition("/") for path in paths]
    there = [node.identity(path) for path in paths]
    folders = [node.identity(folder or "/") for folder, _, _ in names]
    if there[0] is not None or there[1] is not None:
        return there[0] == there[1]
    return folders[0] is not None and folders[0] == folders[1] and names[0][2] == names[1][2]


def _drop_in(
    host: Host, process: DaemonProcess, config: str, distribution: str, request: RuntimeRequest
) -> tuple[str, str]:
    """Our own file, '' for docker, and why that one.

    The distributions' folders are those of docs/runtime.md.
    """
    if process.kind == "docker":
        return "", ""
    if request.drop_in:
        return request.drop_in, request.given.get("drop_in", "given")
    folder = config.rpartition("/")[0]
    if process.kind == "crio":
        read, how = crio_folder(host, process.pid, process.command)
        return f"{read}/{DROP_IN}", how
    if distribution == "k0s":
        return "/etc/k0s/containerd.d/nvidia.toml", "k0s merges the files of this folder"
    if distribution in ("k3s", "rke2"):
        newer = re.search(rb"(?m)^\s*version\s*=\s*([3-9])", bytes_of(host.node, config) or b"")
        return (
            f"{folder}/config{'-v3' if newer else ''}.toml.d/{DROP_IN}",
            f"{distribution} imports the files of this folder",
        )
    return f"{folder}/conf.d/{DROP_IN}", "beside the configuration"


def version_text(host: Host, daemon: RuntimeDaemon) -> str:
    """What the daemon's program prints as its version, '' where it does not tell."""
    try:
        shown = host.commands.run([*enter(host, daemon), daemon.binary, "--version"], check=False, timeout=60)
    except Unavailable:
        return ""
    return shown.stdout.strip().splitlines()[0] if shown.ok and shown.stdout.strip() else ""


def version_of(text: str) -> tuple[int, ...]:
    """The version in such a text, () where there is none.

    (1, 6, 20) of 'containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3'.
    """
    found = VERSION.search(text)
    return tuple(int(number) for number in found.groups()) if found else ()


def _comm(node: Files, pid: int) -> str:
    try:
        return node.read_text(f"/proc/{pid}/comm").strip()
    except FileNotFoundError:
        return ""


def not_running(socket: str, *details: str, others: Sequence[str] = ()) -> Unavailable:
    """The error for a socket at which no runtime answers, and for others beside it."""
    units = UNITS.get(socket) or (kind_at(socket) or "containerd",)
    start = " or ".join(f"systemctl start {unit}" for unit in units)
    return Unavailable(
        f"no container runtime answers at {' or '.join((socket, *others))}",
        details=details,
        resolution=f"start it ({start}), or give its socket with --socket; "
        f"journalctl -u {' -u '.join(units)} and driverctl doctor say what keeps it down; driverctl changed "
        "nothing",
    )
