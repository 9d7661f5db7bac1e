"""Which of a node's container runtimes is meant: the one that was asked for, else the one that serves the kubelet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import DriverforgeError, Unavailable, UsageError
from driverforge_node.host.ports import Host
from driverforge_node.runtime import cri, dockerinfo, journal
from driverforge_node.runtime.daemon import TEMPLATES, argument, find, not_running, socket_path
from driverforge_node.runtime.model import Daemon
from driverforge_node.runtime.ports import Sockets
from driverforge_node.runtime.request import Request

# docker's private containerd (/run/docker/containerd) has no CRI and is not for pods
KNOWN = (
    "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock", "/run/crio/crio.sock", "/run/docker.sock",
)  # fmt: skip
KUBELETS = ("kubelet", "k3s", "rke2", "k0s", "kubelite")
ENDPOINT = ("--container-runtime-endpoint",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A runtime that runs, and whether it serves pods ('' or why not)."""

    daemon: Daemon
    silent: str = ""


def status(host: Host, sockets: Sockets, daemon: Daemon) -> cri.RuntimeStatus:
    """What the running daemon reports. Raises Unavailable."""
    ask = dockerinfo.status if daemon.kind == "docker" else cri.status
    return ask(sockets, socket_path(host.node, daemon.socket))


def choose(host: Host, sockets: Sockets, request: Request) -> Daemon:
    """The daemon to work on, with the reason in its evidence. Raises Unavailable (none runs), UsageError (several serve pods)."""
    if request.socket:
        try:
            return find(host, sockets, request.socket, request)
        except Unavailable as error:
            raise not_running(request.socket, *error.details) from error
    seen, problems = running(host, sockets, request)
    if not seen:
        raise not_running(" or ".join(KNOWN), *problems)
    chosen, why = _one_of(host, seen)
    return replace(chosen, evidence=(f"chosen: {why}", *chosen.evidence))


def running(host: Host, sockets: Sockets, request: Request) -> tuple[list[Seen], list[str]]:
    """Runtimes behind the known sockets, and why the others are none."""
    seen: dict[int, Seen] = {}
    problems = []
    for socket in KNOWN:
        if not host.node.exists(socket):
            continue
        try:
            daemon = find(host, sockets, socket, request)
        except DriverforgeError as error:
            problems += [error.brief, *error.details]
            continue
        seen.setdefault(daemon.pid, Seen(daemon=daemon, silent=_silent(host, sockets, daemon)))
    return list(seen.values()), problems


def fitting(host: Host, request: Request) -> list[journal.Entry]:
    """Our changes of the runtime that is asked for. Raises InputError for a damaged entry."""
    return [
        entry for entry in journal.entries(host)
        if _names(request.config, entry.config) and request.runtime in ("", entry.kind) and request.socket in ("", entry.socket)
    ]  # fmt: skip


def _names(asked: str, config: str) -> bool:
    """Whether what was asked for, be it nothing, a file or the template that it is made of, is this configuration."""
    folder, _, name = asked.rpartition("/")
    return asked in ("", config) or (name in TEMPLATES and folder == config.rpartition("/")[0])


def lost(host: Host, sockets: Sockets, request: Request) -> list[journal.Entry]:
    """Our changes of runtimes that are down, be it for them. Raises as `fitting`."""
    return [
        entry
        for entry in fitting(host, request)
        if entry.socket and not _answers(host, sockets, entry.socket)
    ]


def _answers(host: Host, sockets: Sockets, socket: str) -> bool:
    try:
        with sockets.connect(socket_path(host.node, socket), timeout=5.0):
            return True
    except Unavailable:
        return False


def _silent(host: Host, sockets: Sockets, daemon: Daemon) -> str:
    if daemon.kind == "docker":
        return "docker does not serve a kubelet"
    try:
        status(host, sockets, daemon)
    except DriverforgeError as error:
        return error.brief
    return ""


def _one_of(host: Host, seen: Sequence[Seen]) -> tuple[Daemon, str]:
    if len(seen) == 1:
        return seen[0].daemon, "the only container runtime that runs here"
    others = "; ".join(f"{each.daemon.socket}: {each.silent}" for each in seen if each.silent)
    serving = [each.daemon for each in seen if not each.silent]
    if len(serving) == 1:
        return serving[0], f"the only one that serves pods ({others})"
    if not serving:
        changed = [
            each.daemon
            for each in seen
            if host.node.exists(journal.place(each.daemon.kind, each.daemon.config))
        ]
        docker = [each.daemon for each in seen if each.daemon.kind == "docker"]
        return (changed or docker or [seen[0].daemon])[
            0
        ], f"none serves pods{', and driverctl has changed it' * bool(changed)} ({others})"
    asked = kubelet_sockets(host)
    used = [daemon for daemon in serving if host.node.resolve(daemon.socket) in asked]
    if len(used) == 1:
        return used[0], "the kubelet names its socket"
    bundled = [daemon for daemon in serving if daemon.supervisor.kind in ("k3s", "rke2", "k0s", "microk8s")]
    if len(bundled) == 1:
        return bundled[0], f"{bundled[0].supervisor.kind} runs it"
    raise UsageError(
        "several container runtimes of this node serve pods",
        details=[f"{daemon.socket}: {daemon.binary}, PID {daemon.pid}" for daemon in serving],
        resolution="say which one with --socket; nothing was changed",
    )


def kubelet_sockets(host: Host) -> set[str]:
    """Sockets that a kubelet's command line names."""
    found = set()
    for name in host.node.list_dir("/proc"):
        if not name.isdigit():
            continue
        try:
            words = [word for word in host.node.read_text(f"/proc/{name}/cmdline").split("\0") if word]
        except (FileNotFoundError, DriverforgeError):
            continue  # it ended
        if words and words[0].rpartition("/")[2] in KUBELETS and (named := argument(words, ENDPOINT)):
            found.add(host.node.resolve(named.removeprefix("unix://")))
    return found
