"""The container runtimes of a node: those that run, and those whose files are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_host.ports import Files, Host, Sockets
from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import RuntimeEvidence
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files, start_rules
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.find.daemon import daemon_behind
from driverforge_toolkit.runtime.find.kubelet import (
    KubeletEndpoint,
    endpoints_of_files,
    has_kubelet,
    kubelet_endpoints,
)
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of
from driverforge_toolkit.runtime.model import (
    DaemonPath,
    NodePath,
    RuntimeDaemon,
    RuntimeKind,
    Supervisor,
    SupervisorKind,
    WantedHandlers,
)
from driverforge_toolkit.runtime.request import RuntimeRequest
from driverforge_toolkit.runtime.transaction import next_start, refused

STARTING = re.compile(r'msg="starting containerd".*\bversion=v?(\d+)\.(\d+)\.(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualPlace:
    """Where a runtime has its files when nothing else is said."""

    kind: RuntimeKind
    config: str
    drop_in: str = ""
    socket: str
    supervisor: SupervisorKind = ""
    unit: str = ""

    def daemon(self, version: tuple[int, ...] = ()) -> RuntimeDaemon:
        return RuntimeDaemon(
            kind=self.kind,
            pid=0,
            binary=DaemonPath(""),
            version=version,
            socket=NodePath(self.socket),
            config=NodePath(self.config),
            drop_in=NodePath(self.drop_in),
            supervisor=Supervisor(kind=self.supervisor, unit=self.unit),
        )


def _bundled(name: Literal["k3s", "rke2"]) -> UsualPlace:
    folder = f"/var/lib/rancher/{name}/agent/etc/containerd"
    return UsualPlace(
        kind="containerd",
        config=f"{folder}/config.toml",
        drop_in=f"{folder}/config.toml.d/99-nvidia.toml",
        socket="/run/k3s/containerd/containerd.sock",
        supervisor=name,
    )


def unit_by_files(node: Files, place: UsualPlace) -> str:
    """The unit of a runtime at its usual place. k3s and rke2 have one for servers and one for agents."""
    if place not in BUNDLED:
        return place.unit
    server = node.is_dir(f"/var/lib/rancher/{place.supervisor}/server")
    return {"k3s": ("k3s-agent", "k3s"), "rke2": ("rke2-agent", "rke2-server")}[place.supervisor][
        server
    ] + ".service"


BUNDLED = (_bundled("k3s"), _bundled("rke2"))
PLACES = (
    UsualPlace(
        kind="containerd",
        config="/etc/containerd/config.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
        unit="containerd.service",
    ),
    *BUNDLED,
    UsualPlace(
        kind="containerd",
        config="/var/snap/microk8s/current/args/containerd.toml",
        socket="/var/snap/microk8s/common/run/containerd.sock",
        supervisor="microk8s",
        unit="snap.microk8s.daemon-containerd.service",
    ),
    UsualPlace(
        kind="containerd",
        config="/etc/k0s/containerd.toml",
        drop_in="/etc/k0s/containerd.d/nvidia.toml",
        socket="/run/k0s/containerd.sock",
        supervisor="k0s",
        unit="k0sworker.service",
    ),
    UsualPlace(
        kind="crio",
        config="/etc/crio/crio.conf",
        drop_in="/etc/crio/crio.conf.d/99-nvidia.toml",
        socket="/run/crio/crio.sock",
        unit="crio.service",
    ),
    UsualPlace(
        kind="docker", config="/etc/docker/daemon.json", socket="/run/docker.sock", unit="docker.service"
    ),
)


def of_node(
    host: Host, sockets: Sockets, entries: Iterable[journal.JournalEntry]
) -> tuple[RuntimeEvidence, ...]:
    """The daemons that run, with what they report; and those of which only files are there."""
    request = RuntimeRequest(wanted=WantedHandlers(handlers=()))
    seen, _ = selection.running_runtimes(host, sockets, request)
    entries = tuple(entries)
    running = {each.daemon.config: each.daemon for each in seen}
    for entry in entries:
        if entry.config not in running:
            with suppress(DriverforgeError):  # it does not run, or nobody knows what it is
                daemon = daemon_behind(host, sockets, entry.socket, request)
                running.setdefault(daemon.config, daemon)
    found = [_ask(host, sockets, _with_drop_in(daemon, entries)) for daemon in running.values()]
    known = {runtime.config for runtime in found}
    found += [
        from_files(host, daemon)[0]
        for daemon in _usual_daemons(host, entries, ())
        if daemon.config not in known
    ]
    return tuple(replace(runtime, read_only=_read_only(host.node, runtime)) for runtime in found)


def of_dump(
    host: Host, entries: Iterable[journal.JournalEntry], logs: Mapping[str, Sequence[str]]
) -> tuple[RuntimeEvidence, ...]:
    return tuple(from_files(host, daemon)[0] for daemon in _usual_daemons(host, entries, _version(logs)))


def _usual_daemons(
    host: Host, entries: Iterable[journal.JournalEntry], version: tuple[int, ...]
) -> list[RuntimeDaemon]:
    """Daemons of the usual places that have files, and those of the journal."""
    entries = tuple(entries)
    found = [
        _with_drop_in(
            replace(place, unit=unit_by_files(host.node, place)).daemon(
                version if place.kind == "containerd" else ()
            ),
            entries,
        )
        for place in PLACES
        if _has_files(host.node, place)
    ]
    known = {daemon.config for daemon in found}
    mine = [entry.daemon() for entry in entries if entry.config not in known]
    return [
        *found,
        *(replace(daemon, version=version if daemon.kind == "containerd" else ()) for daemon in mine),
    ]


def _with_drop_in(daemon: RuntimeDaemon, entries: Sequence[journal.JournalEntry]) -> RuntimeDaemon:
    """The daemon with the drop-in that was chosen for it, where driverctl has changed it."""
    chosen = (
        entry.drop_in for entry in entries if (entry.kind, entry.config) == (daemon.kind, daemon.config)
    )
    return replace(daemon, drop_in=next(chosen, NodePath("")) or daemon.drop_in)


def _has_files(node: Files, place: UsualPlace) -> bool:
    return node.exists(place.config) or (
        place.supervisor == "" and place.drop_in != "" and node.exists(place.drop_in)
    )


def _version(logs: Mapping[str, Sequence[str]]) -> tuple[int, ...]:
    """The version of the last containerd that said in a log that it starts."""
    matches = [match for lines in logs.values() for line in lines if (match := STARTING.search(line))]
    return tuple(map(int, matches[-1].groups())) if matches else ()


def _ask(host: Host, sockets: Sockets, daemon: RuntimeDaemon) -> RuntimeEvidence:
    evidence, files = from_files(host, daemon)
    evidence = replace(evidence, runs=True)
    with suppress(DriverforgeError):  # it serves no pods, or is about to end: other rules say why
        stated = runtime_files.handlers(evidence)
        evidence = replace(evidence, reported=selection.status_of(host, sockets, daemon).believed(stated))
    if evidence.broken:
        return evidence
    try:
        view = effective_configuration(host, daemon, files, files)
    except InputError as error:
        return replace(evidence, broken=(error.brief, *error.details))
    except DriverforgeError:
        return evidence  # its program cannot be run here
    if daemon.kind != "containerd" or evidence.doomed:
        return evidence
    faults = next_start.faults_of_start(host, daemon, files, view, files)
    return replace(evidence, doomed=start_rules.with_lines(files, faults))


def from_files(host: Host, daemon: RuntimeDaemon) -> tuple[RuntimeEvidence, Contents]:
    """What its files say, and these; none where one of them is broken."""
    evidence = RuntimeEvidence(
        kind=daemon.kind,
        config=daemon.config,
        socket=daemon.socket,
        version=daemon.version,
        unit=daemon.supervisor.unit,
        supervisor=daemon.supervisor.kind,
        refused=refused.last_refusal(host, daemon.kind, daemon.config),
    )
    try:
        # the drop-in counts only where an import leads to it
        files = config_files.read_files(
            host, replace(daemon, drop_in=daemon.config) if daemon.kind == "containerd" else daemon
        )
        documents = {path: file.values for path, file in files.items() if file.data is not None}
        beside = {
            path: config_files.read_file(host.node, daemon.kind, path).values
            for path in _unread_files(host.node, daemon, files)
        }
    except InputError as error:
        return replace(evidence, broken=(error.brief, *error.details)), {}
    texts = {path: file.text for path, file in files.items()}
    evidence = replace(evidence, documents=documents, texts=texts, loose=beside)
    return replace(evidence, doomed=_doomed(host.node, daemon, evidence, files)), files


def _doomed(
    node: Files, daemon: RuntimeDaemon, evidence: RuntimeEvidence, files: Contents
) -> tuple[str, ...]:
    """Why it would not serve pods after its next start, by rules."""
    if daemon.kind != "containerd":
        return ()
    gone = next_start.files_gone(node, daemon, files)
    faults = (*gone, *start_rules.start_faults(node, runtime_files.effective(evidence), live=daemon.pid != 0))
    return start_rules.with_lines(files, faults)


def _unread_files(node: Files, daemon: RuntimeDaemon, read_files: Contents) -> Iterator[str]:
    """Our drop-in, and TOML files of the folders for drop-ins, as far as the daemon does not read them.

    CRI-O reads crio.conf.d, and nvidia-ctk 1.18 and later write to conf.d (gpu-operator#2236).
    """
    if daemon.kind == "docker":
        return
    base = daemon.config.rpartition("/")[0]
    for folder in dict.fromkeys((daemon.drop_in.rpartition("/")[0], f"{base}/conf.d", f"{base}/config.d")):
        for name in node.list_dir(folder) if folder else ():
            path = f"{folder}/{name}"
            drop_in = path == daemon.drop_in or name.endswith(".toml")
            if drop_in and data_of(read_files, path) is None and not node.is_dir(path):
                yield path


def _read_only(node: Files, runtime: RuntimeEvidence) -> str:
    """The nearest folder of its configuration that is there, where it cannot be written; else ''."""
    folder = runtime.config.rpartition("/")[0] or "/"
    while not node.is_dir(folder):
        folder = folder.rpartition("/")[0] or "/"
    return folder if node.read_only(folder) else ""


def kubelet(host: Host) -> tuple[str, ...] | None:
    """Sockets of the runtimes that kubelets use; () where none says so, None without a kubelet."""
    return _sockets(kubelet_endpoints(host), host.node)


def kubelet_by_files(node: Files) -> tuple[str, ...] | None:
    """The same by the kubelet's files."""
    found = _sockets(endpoints_of_files(node), node)
    # a dump has no link /var/run, by which kubeadm names CRI-O's socket
    return found and tuple(socket.removeprefix("/var") for socket in found)


def _sockets(found: Iterable[KubeletEndpoint], node: Files) -> tuple[str, ...] | None:
    sockets = tuple(sorted({endpoint.socket for endpoint in found}))
    return sockets if sockets or has_kubelet(node) else None
