"""Find the real container runtime: the process behind the socket, its binary, its files, and who starts it again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_node.host.mounts import parse_mountinfo
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime import supervisor
from driverforge_node.runtime.model import Daemon, Kind
from driverforge_node.runtime.mountmap import translated
from driverforge_node.runtime.ports import Sockets
from driverforge_node.runtime.request import Request

PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
INIT = ("systemd", "init")
PROGRAMS: dict[str, Kind] = {"containerd": "containerd", "crio": "crio", "dockerd": "docker"}
CONFIG: dict[Kind, str] = {
    "containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf", "docker": "/etc/docker/daemon.json",
}  # fmt: skip
CONFIG_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "containerd": ("-c", "--config", "-config"), "crio": ("-c", "--config"), "docker": ("--config-file",),
}  # fmt: skip
TEMPLATES = (
    "config.toml.tmpl",
    "config-v3.toml.tmpl",
    "containerd-template.toml",
)  # of k3s, rke2 and microk8s
DROP_IN = "99-nvidia.toml"
VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A running daemon, as /proc shows it."""

    pid: int
    command: tuple[str, ...]
    kind: Kind
    binary: str


def enter(host: Host, daemon: Daemon | None = None) -> tuple[str, ...]:
    """The command prefix that runs a program in the node's own file system, () when we are there.

    A daemon with a file system of its own (a snap's) gets its programs run in that.
    """
    if daemon is not None and daemon.pid and not host.node.exists(daemon.binary):
        return ("nsenter", "--target", str(daemon.pid), "--mount", "--")
    return () if host.node.root == "/" else ("nsenter", "--target", "1", "--mount", "--")


def socket_path(node: Files, path: str) -> str:
    """A socket of the node as our own process reaches it."""
    return node.root.rstrip("/") + node.resolve(path)


def find(host: Host, sockets: Sockets, socket: str, request: Request) -> Daemon:
    """The daemon that listens on `socket`; paths in `request` override what it says of itself.

    Raises Unavailable (nothing listens), Unsupported (not a runtime that we know, or out of our sight).
    """
    pid = listener(host, sockets, socket)
    try:
        process = inspect(host, pid, socket, request)
        config, whence = _config(host, process, request)
        found, how = supervisor.find(host, pid, process.binary, config)
    except FileNotFoundError as error:
        raise Unavailable(f"the process {pid} behind {socket} ended just now") from error
    drop_in, chosen = _drop_in(host, process, config, found.kind, request)
    daemon = Daemon(
        kind=process.kind,
        pid=pid,
        binary=process.binary,
        version=(),
        socket=socket,
        config=config,
        drop_in=drop_in,
        supervisor=found,
    )
    text = version_text(host, daemon)
    evidence = (
        f"process: {pid}, which answers at {socket}",
        f"program: {process.binary}, {text or 'which does not tell its version'}",
        f"configuration: {config} ({whence})",
        *((f"drop-in: {drop_in} ({chosen})",) if drop_in else ()),
        f"started by: {how}",
    )
    return Daemon(
        kind=process.kind, pid=pid, binary=process.binary, version=version_of(text), socket=socket, config=config, drop_in=drop_in,
        supervisor=found, evidence=evidence,
    )  # fmt: skip


def listener(host: Host, sockets: Sockets, socket: str) -> int:
    """PID of the daemon behind a socket. Raises Unavailable, Unsupported (in a PID namespace that we do not see)."""
    with sockets.connect(socket_path(host.node, socket), timeout=5.0) as connection:
        pid = connection.peer_pid()
        if (
            pid and _comm(host.node, pid) in INIT
        ):  # systemd opened the socket (docker.socket): whoever answers is the daemon
            connection.send(PING)
            pid = connection.sender_pid() if connection.receive(4096) else 0
    if pid == 0:
        raise Unsupported(
            f"the process behind {socket} is in a PID namespace that we do not see",
            resolution="give the pod `hostPID: true`, or run this on the node",
        )
    return pid


def inspect(host: Host, pid: int, socket: str, request: Request) -> Process:
    """What /proc says of a daemon. Raises FileNotFoundError when it has ended, Unsupported for a program that is no runtime."""
    node = host.node
    command = tuple(word for word in node.read_text(f"/proc/{pid}/cmdline").split("\0") if word)
    binary = node.resolve(f"/proc/{pid}/exe").removesuffix(
        " (deleted)"
    )  # after an upgrade: a restart starts the new one
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
    return Process(pid=pid, command=command, kind=kind, binary=request.binary or binary)


def arguments(host: Host, pid: int) -> tuple[str, ...]:
    """The options that a running daemon was started with; () when it does not run."""
    try:
        words = host.node.read_text(f"/proc/{pid}/cmdline").split("\0") if pid else []
    except FileNotFoundError:
        words = []
    return tuple(word for word in words if word)[1:]


def argument(command: Sequence[str], names: Sequence[str]) -> str:
    """The value of an option in a command line, '' where it is not in it."""
    for index, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in names:
            return value or "".join(command[index + 1 : index + 2])
    return ""


def _config(host: Host, process: Process, request: Request) -> tuple[str, str]:
    """The root file as the node calls it, and how it was found."""
    folder, _, name = request.config.rpartition("/")
    if request.config and name not in TEMPLATES:
        return request.config, request.given.get("config", "given")
    own, how = own_config(host, process.pid, process.kind, process.command)
    if not request.config:
        return own, how
    if _one_file(
        host.node, own.rpartition("/")[0], folder
    ):  # NVIDIA's and Canonical's instructions name the template
        return own, f"{how}; it is made of {request.config}"
    return request.config, request.given.get("config", "given")


def own_config(host: Host, pid: int, kind: Kind, command: Sequence[str]) -> tuple[str, str]:
    """The root file that a running daemon reads at its start, as the node calls it, and how it was found. Raises as `node_name`."""
    named = argument(command, CONFIG_OPTIONS[kind])
    path = named or CONFIG[kind]
    if not path.startswith("/"):
        path = f"{host.node.resolve(f'/proc/{pid}/cwd').rstrip('/')}/{path}"
    return node_name(
        host, pid, path
    ), f"{CONFIG_OPTIONS[kind][-1]} of its command line" if named else "its built-in default"


def check_config(host: Host, daemon: Daemon, request: Request) -> None:
    """Raises Unsupported where the configuration that was given is another file than the one that the daemon reads at its start.

    CRI-O's root file is never written, so that what it is called does no harm. Where nobody can tell what a daemon reads, the user knows.
    """
    if not request.config or not daemon.pid or daemon.kind == "crio":
        return
    command = arguments(host, daemon.pid)
    if (
        daemon.kind == "docker"
        and not argument(command, CONFIG_OPTIONS["docker"])
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
        resolution=f"unset {origin}, or have it name {own} (in a pod: mount the node's {folder} where the variable says); "
        "if another runtime is meant, give its socket with --socket or RUNTIME_SOCKET; nothing was changed",
    )


def _one_file(node: Files, first: str, second: str) -> bool:
    """Whether two paths are one file, also one that is yet to be made, by links or by mounts."""
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
    """Whether RootlessKit started it, as docker itself tells (pkg/rootless)."""
    try:
        return any(
            word.startswith("ROOTLESSKIT_STATE_DIR=")
            for word in host.node.read_text(f"/proc/{pid}/environ").split("\0")
        )
    except FileNotFoundError:
        return False


def node_name(host: Host, pid: int, path: str) -> str:
    """A path of a daemon's mount namespace as the node calls it. Raises Unsupported where the node does not see it."""
    us = "1" if host.node.root != "/" else "self"
    if (
        host.node.resolve(f"/proc/{pid}/ns/mnt").rpartition("/")[2]
        == host.node.resolve(f"/proc/{us}/ns/mnt").rpartition("/")[2]
    ):
        return path
    inside, outside = (parse_mountinfo(host.node.read_text(f"/proc/{who}/mountinfo")) for who in (pid, us))
    found = translated(path, inside, outside)
    if found is None:
        raise Unsupported(
            f"{path} of the process {pid} lies on a file system that the node's own processes do not see",
            resolution="run this inside of the container that this daemon runs in, or give the file with --config",
        )
    return found


def _drop_in(
    host: Host, process: Process, config: str, distribution: str, request: Request
) -> tuple[str, str]:
    """Our own file, '' for docker; the folders of the distributions are those of docs/runtime.md."""
    if process.kind == "docker":
        return "", ""
    if request.drop_in:
        return request.drop_in, request.given.get("drop_in", "given")
    folder = config.rpartition("/")[0]
    if process.kind == "crio":
        named = argument(process.command, ("-d", "--config-dir"))
        return (
            f"{named or f'{folder}/crio.conf.d'}/{DROP_IN}",
            "--config-dir of its command line" if named else "CRI-O's own folder",
        )
    if distribution == "k0s":
        return "/etc/k0s/containerd.d/nvidia.toml", "k0s merges the files of this folder"
    if distribution in ("k3s", "rke2"):
        newer = re.search(rb"(?m)^\s*version\s*=\s*([3-9])", _bytes(host, config))
        return (
            f"{folder}/config{'-v3' if newer else ''}.toml.d/{DROP_IN}",
            f"{distribution} imports the files of this folder",
        )
    return f"{folder}/conf.d/{DROP_IN}", "beside the configuration"


def _bytes(host: Host, path: str) -> bytes:
    try:
        return host.node.read_bytes(path)
    except FileNotFoundError:
        return b""


def version_text(host: Host, daemon: Daemon) -> str:
    """What the daemon's program prints as its version, '' where it does not."""
    try:
        shown = host.commands.run([*enter(host, daemon), daemon.binary, "--version"], check=False, timeout=60)
    except Unavailable:
        return ""
    return shown.stdout.strip().splitlines()[0] if shown.ok and shown.stdout.strip() else ""


def version_of(text: str) -> tuple[int, ...]:
    """(1, 6, 20) of 'containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3', () where there is none."""
    found = VERSION.search(text)
    return tuple(int(number) for number in found.groups()) if found else ()


def _comm(node: Files, pid: int) -> str:
    try:
        return node.read_text(f"/proc/{pid}/comm").strip()
    except FileNotFoundError:
        return ""


def not_running(socket: str, *details: str) -> Unavailable:
    return Unavailable(
        f"no container runtime answers at {socket}",
        details=details,
        resolution="start it (systemctl start containerd), or give its socket with --socket; what keeps it down: "
        "journalctl -u containerd, driverctl doctor; driverctl changed nothing",
    )
