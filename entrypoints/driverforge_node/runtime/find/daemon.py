"""Find the real container runtime: the process behind a socket, its program and its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_core.mountinfo import parse_mountinfo, translated
from driverforge_node.ports import Files, Host, Sockets, bytes_of
from driverforge_node.runtime.find import supervisor
from driverforge_node.runtime.model import DaemonPath, NodePath, PodPath, RuntimeDaemon, RuntimeKind
from driverforge_node.runtime.request import RuntimeRequest

PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
INIT = ("systemd", "init")
PROGRAMS: dict[str, RuntimeKind] = {"containerd": "containerd", "crio": "crio", "dockerd": "docker"}
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
    command = tuple(word for word in node.read_text(f"/proc/{pid}/cmdline").split("\0") if word)
    # after an upgrade: a restart starts the new one
    binary = node.resolve(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    called = command[0].rpartition("/")[2] if command else ""
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


def options_of(host: Host, pid: int) -> tuple[str, ...]:
    """The options that a running daemon was started with; () where it does not run."""
    try:
        words = host.node.read_text(f"/proc/{pid}/cmdline").split("\0") if pid else []
    except FileNotFoundError:
        words = []
    return tuple(word for word in words if word)[1:]


def option_value(command: Sequence[str], names: Sequence[str]) -> str:
    """The value of an option in a command line, '' where the option is not in it."""
    for index, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in names:
            return value or "".join(command[index + 1 : index + 2])
    return ""


def _config(host: Host, process: DaemonProcess, request: RuntimeRequest) -> tuple[NodePath, str]:
    """The root file, and how it was found."""
    folder, _, name = request.config.rpartition("/")
    if request.config and name not in TEMPLATES:
        return request.config, request.given.get("config", "given")
    own, how = own_config(host, process.pid, process.kind, process.command)
    if not request.config:
        return own, how
    # NVIDIA's and Canonical's instructions name the template
    if _one_file(host.node, own.rpartition("/")[0], folder):
        return own, f"{how}; it is made of {request.config}"
    return request.config, request.given.get("config", "given")


def own_config(host: Host, pid: int, kind: RuntimeKind, command: Sequence[str]) -> tuple[NodePath, str]:
    """The root file that a running daemon reads at its start, and how it was found.

    Raises as `node_path_of`.
    """
    named = option_value(command, CONFIG_OPTIONS[kind])
    path = DaemonPath(named or CONFIG[kind])
    if not path.startswith("/"):
        path = DaemonPath(f"{host.node.resolve(f'/proc/{pid}/cwd').rstrip('/')}/{path}")
    return node_path_of(
        host, pid, path
    ), f"{CONFIG_OPTIONS[kind][-1]} of its command line" if named else "its built-in default"


def check_config_is_read(host: Host, daemon: RuntimeDaemon, request: RuntimeRequest) -> None:
    """Raises Unsupported if the daemon reads another configuration file at its start than the one given.

    CRI-O is not checked: its root file is never written, so that its name does no harm. Nor is a daemon of
    which nobody can tell what it reads: there the user knows better.
    """
    if not request.config or not daemon.pid or daemon.kind == "crio":
        return
    command = options_of(host, daemon.pid)
    if (
        daemon.kind == "docker"
        and not option_value(command, CONFIG_OPTIONS["docker"])
        and _rootless(host, daemon.pid)
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


def _rootless(host: Host, pid: int) -> bool:
    """Whether RootlessKit started the process; docker itself tells it this way (pkg/rootless)."""
    try:
        return any(
            word.startswith("ROOTLESSKIT_STATE_DIR=")
            for word in host.node.read_text(f"/proc/{pid}/environ").split("\0")
        )
    except FileNotFoundError:
        return False


def node_path_of(host: Host, pid: int, path: DaemonPath) -> NodePath:
    """What the node calls a path of a daemon's mount namespace.

    Raises Unsupported where the node does not see the file system that it lies on.
    """
    us = "1" if host.node.root != "/" else "self"
    if (
        host.node.resolve(f"/proc/{pid}/ns/mnt").rpartition("/")[2]
        == host.node.resolve(f"/proc/{us}/ns/mnt").rpartition("/")[2]
    ):
        return NodePath(path)
    inside, outside = (parse_mountinfo(host.node.read_text(f"/proc/{who}/mountinfo")) for who in (pid, us))
    found = translated(path, inside, outside)
    if found is None:
        raise Unsupported(
            f"{path} of the process {pid} lies on a file system that the node's own processes do not see",
            resolution="run this inside of the container that this daemon runs in, or give the file with "
            "--config",
        )
    return NodePath(found)


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
        named = option_value(process.command, ("-d", "--config-dir"))
        return (
            f"{named or f'{folder}/crio.conf.d'}/{DROP_IN}",
            "--config-dir of its command line" if named else "CRI-O's own folder",
        )
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


def not_running(socket: str, *details: str) -> Unavailable:
    """The error for a socket at which no runtime answers."""
    return Unavailable(
        f"no container runtime answers at {socket}",
        details=details,
        resolution="start it (systemctl start containerd), or give its socket with --socket; journalctl -u "
        "containerd and driverctl doctor say what keeps it down; driverctl changed nothing",
    )
