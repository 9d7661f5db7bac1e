"""Which of a node's container runtimes is meant: one answer for the runtime's commands, toolkit and doctor.

The socket that was asked for; else the runtime that the kubelet says it uses; else what is found running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    NotPermitted,
    Unavailable,
    UsageError,
)
from driverforge_host.ports import Host, Sockets
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import cri, sockethttp
from driverforge_toolkit.runtime.find.daemon import (
    TEMPLATES,
    daemon_behind,
    kind_at,
    not_running,
    socket_path,
)
from driverforge_toolkit.runtime.find.kubelet import KubeletEndpoint, kubelet_endpoints
from driverforge_toolkit.runtime.model import NodePath, RuntimeDaemon, RuntimeKind
from driverforge_toolkit.runtime.request import RuntimeRequest

# docker's private containerd (/run/docker/containerd) has no CRI and is not for pods
KNOWN = tuple(
    map(
        NodePath,
        (
            "/run/containerd/containerd.sock",
            "/run/k3s/containerd/containerd.sock",
            "/run/k0s/containerd.sock",
            "/var/snap/microk8s/common/run/containerd.sock",
            "/run/crio/crio.sock",
            "/run/docker.sock",
        ),
    )
)
Ask = Callable[[Sockets, str], cri.RuntimeStatus]
ASK: dict[RuntimeKind, Ask] = {
    "containerd": cri.status,
    "crio": sockethttp.crio_status,
    "docker": sockethttp.docker_status,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRuntime:
    """A runtime that runs. `silent` says why it does not serve pods, '' where it does."""

    daemon: RuntimeDaemon
    silent: str = ""


def status_of(host: Host, sockets: Sockets, daemon: RuntimeDaemon) -> cri.RuntimeStatus:
    """What the running daemon reports. Raises Unavailable."""
    return ASK[daemon.kind](sockets, socket_path(host.node, daemon.socket))


def select(host: Host, sockets: Sockets, request: RuntimeRequest) -> RuntimeDaemon:
    """The daemon to work on, with the reason in its evidence.

    Raises Unavailable where none runs, or the kubelet's does not answer, UsageError where several serve pods
    and nothing tells which one is meant, and NotPermitted where we may not ask them.
    """
    daemon, why = _chosen(host, sockets, request)
    told = _another(host, daemon)
    others = (f"kubelet: uses {told.told}, not this runtime",) if told else ()
    return replace(daemon, evidence=(f"chosen: {why}", *others, *daemon.evidence))


def _chosen(host: Host, sockets: Sockets, request: RuntimeRequest) -> tuple[RuntimeDaemon, str]:
    """The daemon to work on, and why. Raises as `select`."""
    asked = _asked(request)
    if request.socket:
        try:
            return daemon_behind(host, sockets, request.socket, request), asked
        except Unavailable as error:
            raise not_running(request.socket, *error.details, *_kubelets_word(host, request)) from error
    found = _of_kubelet(host, sockets, request)
    if found is not None:
        return found
    seen, problems = running_runtimes(host, sockets, request)
    if refused := next((problem for problem in problems if isinstance(problem, NotPermitted)), None):
        raise refused
    if not seen:
        raise _nothing_runs(host, request, problems)
    daemon, why = _one_of(host, seen, request)
    return daemon, f"{asked}: {why}" if asked else why


def _nothing_runs(host: Host, request: RuntimeRequest, problems: Sequence[DriverforgeError]) -> Unavailable:
    """The error where no runtime of the kind that was asked for runs."""
    told = kubelet_endpoint(host)
    first, *others = [socket for socket in KNOWN if request.runtime in ("", kind_at(socket))]
    if told is not None and request.runtime in ("", told.kind):
        first, others = told.socket, []
    lines = [line for problem in problems for line in (problem.brief, *problem.details)]
    return not_running(first, *lines, *_kubelets_word(host, request), others=others)


def kubelet_endpoint(host: Host) -> KubeletEndpoint | None:
    """What the kubelet says it uses; None where none says it, or several say different things."""
    told = kubelet_endpoints(host)
    return told[0] if len({each.socket for each in told}) == 1 else None


def contradiction(host: Host, daemon: RuntimeDaemon, request: RuntimeRequest) -> str:
    """A sentence where the daemon is not what the kubelet says that it uses, with both sources; else ''."""
    told, asked = _another(host, daemon), _asked(request)
    if told is None:
        return ""
    if not asked:
        return (
            f"{told.source} names {told.named}, where nothing answers, and no kubelet runs that says so: "
            f"{daemon.socket} is taken, as if the file were of another time; if it counts, start first what "
            "it names"
        )
    return (
        f"{asked}, and the kubelet uses {told.told}: its pods get nothing of what is changed at "
        f"{daemon.socket}"
    )


def _another(host: Host, daemon: RuntimeDaemon) -> KubeletEndpoint | None:
    """What the kubelet says it uses, where that is not this daemon."""
    told = kubelet_endpoint(host)
    return told if told and host.node.resolve(daemon.socket) != told.socket else None


def _asked(request: RuntimeRequest) -> str:
    """Which runtime was asked for, and where; '' for none."""
    asked = {
        name: value for name, value in (("socket", request.socket), ("runtime", request.runtime)) if value
    }
    return next((f"{request.given.get(name, name)} says {value}" for name, value in asked.items()), "")


def _of_kubelet(host: Host, sockets: Sockets, request: RuntimeRequest) -> tuple[RuntimeDaemon, str] | None:
    """The runtime that the kubelet says it uses, and why.

    None where nobody says, or another one was asked for; also where it does not answer and only a file names
    it, which may be of another time (`contradiction`).

    Raises Unavailable where it does not answer while its kubelet runs, and may be what was asked for: another
    one would be the wrong one.
    """
    told = kubelet_endpoint(host)
    if told is None:
        return None
    try:
        daemon = daemon_behind(host, sockets, told.socket, replace(request, runtime=""))
    except Unavailable as error:
        if not told.runs or (request.runtime and told.kind not in ("", request.runtime)):
            return None
        raise not_running(told.socket, *error.details, f"the kubelet uses {told.told}") from error
    if request.runtime not in ("", daemon.kind):
        return None
    return daemon, f"the kubelet uses {told.told}"


def _kubelets_word(host: Host, request: RuntimeRequest) -> list[str]:
    """What a message says of the kubelet, where the runtime that is meant is not there."""
    told, asked = kubelet_endpoint(host), _asked(request)
    if told is None:
        return []
    meant = (
        told.socket == host.node.resolve(request.socket) if request.socket else told.kind == request.runtime
    )
    if meant or not asked:
        return [f"the kubelet uses {told.told}"]
    return [f"{asked}, and the kubelet uses {told.told}: unset it if that is meant"]


def running_runtimes(
    host: Host, sockets: Sockets, request: RuntimeRequest
) -> tuple[list[RunningRuntime], list[DriverforgeError]]:
    """The runtimes behind the known sockets, and why the other sockets have none.

    Raises CommandFailed where systemd does not answer: the runtime is there, and no other is to be taken.
    """
    seen: dict[int, RunningRuntime] = {}
    problems: list[DriverforgeError] = []
    for socket in KNOWN:
        if not host.node.exists(socket):
            continue
        try:
            daemon = daemon_behind(host, sockets, socket, request)
        except CommandFailed:
            raise
        except DriverforgeError as error:
            problems.append(error)
            continue
        seen.setdefault(daemon.pid, RunningRuntime(daemon=daemon, silent=_silent(host, sockets, daemon)))
    return list(seen.values()), problems


def fitting_entries(host: Host, request: RuntimeRequest) -> list[journal.JournalEntry]:
    """Our changes of the runtime that is asked for. Raises InputError for a damaged entry."""
    return [
        entry
        for entry in journal.entries(host)
        # CRI-O's root file is its own, whatever somebody calls it (`find/daemon.py`)
        if (entry.kind == "crio" or _names(request.config, entry.config))
        and request.runtime in ("", entry.kind)
        and request.socket in ("", entry.socket)
    ]


def _names(asked: str, config: str) -> bool:
    """Whether what was asked for means this configuration.

    It may be nothing, the file itself, or the template that the file is made of.
    """
    folder, _, name = asked.rpartition("/")
    return asked in ("", config) or (name in TEMPLATES and folder == config.rpartition("/")[0])


def entries_of_stopped(host: Host, sockets: Sockets, request: RuntimeRequest) -> list[journal.JournalEntry]:
    """Our changes of runtimes that do not answer, perhaps because of these changes.

    Raises as `fitting_entries`.
    """
    return [
        entry
        for entry in fitting_entries(host, request)
        if entry.socket and not _answers(host, sockets, entry.socket)
    ]


def _answers(host: Host, sockets: Sockets, socket: NodePath) -> bool:
    try:
        with sockets.connect(socket_path(host.node, socket), timeout=5.0):
            return True
    except Unavailable:
        return False


def _silent(host: Host, sockets: Sockets, daemon: RuntimeDaemon) -> str:
    """Why a runtime does not serve pods, '' where it does."""
    if daemon.kind == "docker":
        return "docker does not serve a kubelet"
    try:
        status_of(host, sockets, daemon)
    except DriverforgeError as error:
        return error.brief
    return ""


def _one_of(host: Host, seen: Sequence[RunningRuntime], request: RuntimeRequest) -> tuple[RuntimeDaemon, str]:
    """The daemon that is meant of several, and why."""
    if len(seen) == 1:
        return seen[0].daemon, f"the only {request.runtime or 'container runtime'} that runs here"
    others = "; ".join(f"{each.daemon.socket}: {each.silent}" for each in seen if each.silent)
    serving = [each.daemon for each in seen if not each.silent]
    if len(serving) == 1:
        return serving[0], f"the only one that serves pods ({others})"
    if not serving:
        changed = [
            each.daemon
            for each in seen
            if host.node.exists(journal.path_of(each.daemon.kind, each.daemon.config))
        ]
        docker = [each.daemon for each in seen if each.daemon.kind == "docker"]
        chosen = (changed or docker or [seen[0].daemon])[0]
        return chosen, f"none serves pods{', and driverctl has changed it' * bool(changed)} ({others})"
    said = {endpoint.socket: endpoint for endpoint in kubelet_endpoints(host)}
    used = [daemon for daemon in serving if host.node.resolve(daemon.socket) in said]
    if len(used) == 1:
        return used[0], f"the kubelet uses {said[NodePath(host.node.resolve(used[0].socket))].told}"
    bundled = [daemon for daemon in serving if daemon.supervisor.kind in ("k3s", "rke2", "k0s", "microk8s")]
    if len(bundled) == 1:
        return bundled[0], f"{bundled[0].supervisor.kind} runs it"
    raise UsageError(
        "several container runtimes of this node serve pods",
        details=[f"{daemon.socket}: {daemon.binary}, PID {daemon.pid}" for daemon in serving],
        resolution="say which one with --socket; nothing was changed",
    )
