"""Addresses and folders of containerd's configuration, of which a rehearsal has its own.

It has a network where every address is free, and a root and a socket that nobody else has. containerd ends
where it cannot listen for its metrics, its gRPC by TCP or the streams of exec and logs; the last a moment
after its start. With another socket the kubelet does not find it, with another root it has no containers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driverforge_host.ports import Files, text_of
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V1, CRI_V2
from driverforge_toolkit.runtime.find.procfs import option_value, options_of
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import RuntimeDaemon

LISTEN = "0A"  # include/net/tcp_states.h, TCP_LISTEN
STREAMS = (CRI_V2, CRI_V1)  # version 3 has the streaming server in the section of version 2
DATABASE = "/io.containerd.metadata.v1.bolt/meta.db"  # below the root
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    key: str
    text: str
    host: Address
    port: int  # 0: any that is free


def place_faults(node: Files, daemon: RuntimeDaemon, view: Mapping[str, object]) -> tuple[str, ...]:
    """Where the daemon could not go on after a restart with the configuration `view`, a sentence each.

    () for one that does not run.
    """
    if not daemon.pid:
        return ()
    taken = (_fault(node, daemon.pid, asked) for asked in _asked(view))
    return tuple(filter(None, (*taken, *_moved(node, daemon, view))))


def _moved(node: Files, daemon: RuntimeDaemon, view: Mapping[str, object]) -> Iterator[str]:
    """Its socket and its root, as far as the command line does not say them."""
    options = options_of(node, daemon.pid)
    socket, root = (lookup(view, path) for path in (("grpc", "address"), ("root",)))
    named = option_value(options, ("-a", "--address", "-address"))
    moved = isinstance(socket, str) and socket and node.resolve(socket) != node.resolve(daemon.socket)
    if moved and not named:
        yield f"`address` of [grpc] is {socket}, and the running daemon answers at {daemon.socket}"
    if isinstance(root, str) and root and not option_value(options, ("--root", "-root")):
        open_now = {name for name in _descriptors(node, daemon.pid) if name.endswith(DATABASE)}
        if open_now and node.resolve(f"{root}{DATABASE}") not in open_now:
            here = min(open_now).removesuffix(DATABASE)
            yield f"`root` is {root}, and the running daemon has its containers in {here}"


def _asked(view: Mapping[str, object]) -> Iterator[_Asked]:
    for path in (("metrics", "address"), ("grpc", "tcp_address")):
        text = str(lookup(view, path))
        host, _, port = text.rpartition(":")
        yield from _address(path[-1], text, host.strip("[]"), port)
    for section in STREAMS:
        host, port = (str(lookup(view, (*section, f"stream_server_{part}"))) for part in ("address", "port"))
        yield from _address("stream_server_address", host, host, port)


def _address(key: str, text: str, host: str, port: str) -> Iterator[_Asked]:
    """Nothing for a name, and for what is no address: containerd's own program judges that."""
    try:
        yield _Asked(key=key, text=text, host=ipaddress.ip_address(host), port=int(port))
    except ValueError:
        return


def _fault(node: Files, pid: int, asked: _Asked) -> str:
    net = f"/proc/{pid}/net"
    anywhere = asked.host.is_unspecified or asked.host.is_loopback
    free = text_of(node, f"/proc/sys/net/ipv{asked.host.version}/ip_nonlocal_bind").strip() == "1"
    own = _own_addresses(node, net) if not anywhere and not free else set()
    if own and asked.host not in own:
        return f"`{asked.key}`: {asked.text} is no address of this node"
    tables = [text_of(node, f"{net}/{name}") for name in ("tcp", "tcp6")] if asked.port else []
    rivals = [
        inode
        for table in tables
        for host, port, inode in _listeners(table)
        if port == asked.port and (host == asked.host or host.is_unspecified or asked.host.is_unspecified)
    ]
    if rivals and not {f"socket:[{inode}]" for inode in rivals} <= _descriptors(node, pid):
        return f"`{asked.key}`: something else than containerd listens at {asked.text}"
    return ""


def _own_addresses(node: Files, net: str) -> set[Address]:
    """The addresses of a network namespace; none where it does not tell them."""
    found: set[Address] = set()
    before = ""
    for line in text_of(node, f"{net}/fib_trie").splitlines():
        if line.endswith("host LOCAL"):
            found.add(ipaddress.ip_address(before.rpartition(" ")[2]))
        before = line
    for line in text_of(node, f"{net}/if_inet6").splitlines():
        found.add(ipaddress.IPv6Address(int(line.split()[0], 16)))
    return found


def _listeners(table: str) -> Iterator[tuple[Address, int, str]]:
    """Address, port and inode of each socket that listens (proc_net_tcp.rst of the kernel)."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            host, _, port = fields[1].partition(":")
            # words in the processor's byte order; nodes with GPUs are little-endian
            packed = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
            yield ipaddress.ip_address(packed), int(port, 16), fields[9]


def _descriptors(node: Files, pid: int) -> set[str]:
    """What the process has open: paths, and `socket:[INODE]`."""
    folder = f"/proc/{pid}/fd"
    found = (node.resolve(f"{folder}/{name}") for name in node.list_dir(folder))
    return {path.rpartition("/")[2] if "socket:[" in path else path for path in found}
