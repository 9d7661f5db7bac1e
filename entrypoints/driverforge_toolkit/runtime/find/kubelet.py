"""Which runtime the kubelet of this node uses, by its own word.

A running kubelet's flag wins over the files of its --config-dir, those over its --config (k8s.io, "Set
Kubelet Parameters Via A Configuration File"; kubernetes/kubernetes, cmd/kubelet/app/server.go). Where none
says so, the files at their usual places tell. docker serves a kubelet by cri-dockerd (Mirantis/cri-dockerd),
up to Kubernetes 1.23 by the kubelet's own dockershim: such an endpoint means docker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from driverforge_core.errors import Unsupported
from driverforge_host.ports import Files, Host
from driverforge_toolkit.runtime.find.daemon import kind_at
from driverforge_toolkit.runtime.find.procfs import absolute_path, of_node, option_value, program_name
from driverforge_toolkit.runtime.model import NodePath, RuntimeKind

KUBELET = "kubelet"
# programs of distributions that have a kubelet inside, or bring their own
DISTRIBUTIONS = ("k3s", "rke2", "k0s", "kubelite")
KUBELETS = (KUBELET, *DISTRIBUTIONS)
ENDPOINT = ("--container-runtime-endpoint",)
# of a file with flags; and of a KubeletConfiguration, in YAML or JSON. What is in a comment does not count
FLAG = re.compile(r"(?m)^[^#\n]*?--container-runtime-endpoint[= ]\s*[\"']?([^\s\"']+)")
KEY = re.compile(
    r"(?m)^[^#\n]*?\b(?:containerRuntimeEndpoint|container-runtime-endpoint)[\"']?\s*:\s*[\"']?([^\s\"'#,}]+)"
)
FLAG_FILES = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet")
CONFIG_FILE = "/var/lib/kubelet/config.yaml"
MAX_BYTES = 1 << 20  # a kubelet's file has a few kB

DOCKER = NodePath("/run/docker.sock")
SHIM = "cri-dockerd"
DOCKER_ENDPOINT = ("--docker-endpoint",)
SHIM_SOCKETS = ("/cri-dockerd.sock", "/dockershim.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletEndpoint:
    """The runtime that a kubelet uses."""

    socket: NodePath  # of the runtime, without links: docker's own where the kubelet uses it by a shim
    named: str  # in the kubelet's words
    source: str  # where it says so
    shim: bool = False  # whether the kubelet uses docker by a shim
    runs: bool = False  # whether that kubelet runs: a file may be left from another time

    @property
    def kind(self) -> RuntimeKind | Literal[""]:
        """The kind of the runtime by the name of its socket, for one that is down; '' for another name."""
        return "docker" if self.shim else kind_at(self.socket)

    @property
    def told(self) -> str:
        """For people."""
        return f"{self.named}{f', which is docker at {self.socket},' * self.shim} ({self.source})"


def kubelet_endpoints(host: Host) -> tuple[KubeletEndpoint, ...]:
    """What the kubelets that run here use; where none says so, what the kubelet's files say.

    These are an earlier kubelet's where only that of a distribution runs: it reads none of them.
    """
    running = tuple(of_node(host.node, *KUBELETS))
    told = [each for pid, words in running if (each := _of_process(host, pid, words)) is not None]
    if told or (running and all(program_name(words) in DISTRIBUTIONS for _, words in running)):
        return tuple(dict.fromkeys(told))
    return endpoints_of_files(host.node)


def endpoints_of_files(node: Files) -> tuple[KubeletEndpoint, ...]:
    """What the kubelet's files at their usual places say, flags before the configuration; at most one."""
    texts = [(path, FLAG) for path in FLAG_FILES] + [(CONFIG_FILE, KEY)]
    found = [_endpoint(node, _last(pattern, _text(node, path)), path) for path, pattern in texts]
    return tuple(each for each in found if each is not None)[:1]


def has_kubelet(node: Files) -> bool:
    """Whether a kubelet runs here, or has files here."""
    return any(of_node(node, *KUBELETS)) or any(node.exists(path) for path in (*FLAG_FILES, CONFIG_FILE))


def _of_process(host: Host, pid: int, words: Sequence[str]) -> KubeletEndpoint | None:
    """What a running kubelet uses; None where it does not say, or is another node's, as kind's are."""
    who = f"{program_name(words)}, PID {pid}"
    try:
        if named := option_value(words, ENDPOINT):
            return _endpoint_of(host, pid, named, f"{ENDPOINT[0]} of {who}")
        for path in reversed(_config_files(host, pid, words)):
            if named := _last(KEY, _text(host.node, path)):
                return _endpoint_of(host, pid, named, f"{path} of {who}")
    except (Unsupported, FileNotFoundError):
        pass
    return None


def _config_files(host: Host, pid: int, words: Sequence[str]) -> list[str]:
    """The configuration files of a kubelet, in the order in which it reads them."""
    config, folder = option_value(words, ("--config",)), option_value(words, ("--config-dir",))
    found = [str(absolute_path(host, pid, config))] if config else []
    return [*found, *(_drop_ins(host.node, absolute_path(host, pid, folder)) if folder else ())]


def _drop_ins(node: Files, folder: str) -> Iterator[str]:
    """The files of --config-dir, sorted: those called .conf, in the folders below it too.

    As Go's filepath.WalkDir, which does not enter a link to a folder.
    """
    for name in sorted(node.list_dir(folder)):
        path = f"{folder.rstrip('/')}/{name}"
        if node.is_dir(path) and not node.is_link(path):
            yield from _drop_ins(node, path)
        elif name.endswith(".conf"):
            yield path


def _endpoint_of(host: Host, pid: int, named: str, source: str) -> KubeletEndpoint | None:
    """As `_endpoint`, of a process that runs. Raises as `absolute_path`."""
    path = _unix_path(named)
    return _endpoint(host.node, absolute_path(host, pid, path), source, runs=True) if path else None


def _endpoint(node: Files, named: str, source: str, *, runs: bool = False) -> KubeletEndpoint | None:
    """The endpoint as a socket of the node; None for one that is no unix socket."""
    path = _unix_path(named)
    if not path:
        return None
    docker = _docker_behind(node, path)
    return KubeletEndpoint(
        socket=NodePath(node.resolve(docker or path)),
        named=path,
        source=source,
        shim=bool(docker),
        runs=runs,
    )


def _unix_path(named: str) -> str:
    """The path of a unix socket in an endpoint's words; '' for another kind of endpoint."""
    path = named.removeprefix("unix://")
    return path if path.startswith("/") else ""


def _docker_behind(node: Files, path: str) -> str:
    """docker's socket, where a shim of docker serves `path`; '' where none does."""
    called = path.endswith(SHIM_SOCKETS)
    for _, words in of_node(node, SHIM):
        # `fd://`: systemd opened the socket
        serves = option_value(words, ENDPOINT).removeprefix("unix://")
        if called or node.resolve(serves or "/") == node.resolve(path):
            return option_value(words, DOCKER_ENDPOINT).removeprefix("unix://") or DOCKER
    return DOCKER if called else ""


def _text(node: Files, path: str) -> str:
    """The beginning of a file; '' where there is none."""
    try:
        return node.read_part(path, 0, MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _last(pattern: re.Pattern[str], text: str) -> str:
    """The value that counts of those that a file has: the last one; '' where it has none."""
    found = pattern.findall(text)
    return str(found[-1]) if found else ""
