"""Where a daemon could not go on after a restart. The tables are those of a real node, shortened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2
from driverforge_toolkit.runtime.backends.places import place_faults
from driverforge_toolkit.runtime.model import NodePath
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import daemon

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
"""
ADDRESSES = "fd000000000000000000000000000002 04 40 00 82     eth0\n"
TCP = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:053A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100\n"
    "   1: 0100007F:053B 0100007F:0001 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100\n"
)
TCP6 = (
    "  sl  local_address                         remote_address\n"
    "   0: 00000000000000000000000000000000:053C 00000000000000000000000000000000:0000 0A 00000000:00000000 "
    "00:00000000 00000000     0        0 79 1 0 100\n"
)
DATABASE = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
RUNNING = replace(daemon(), pid=7, socket=NodePath("/run/containerd/containerd.sock"))


def faults(folder: Path, view: Mapping[str, object], *, options: str = "", own: str = "") -> tuple[str, ...]:
    node = fake_node(folder / f"{len(list(folder.iterdir()))}").host.node
    tables = {"net/fib_trie": TRIE, "net/if_inet6": ADDRESSES, "net/tcp": TCP, "net/tcp6": TCP6}
    for name, text in {**tables, "cmdline": f"containerd\0{options}"}.items():
        node.make_dirs(f"/proc/7/{name}".rpartition("/")[0])
        node.write_atomic(f"/proc/7/{name}", text.encode())
    node.make_dirs("/proc/7/fd")
    node.symlink(DATABASE, "/proc/7/fd/8")
    if own:
        node.symlink(f"socket:[{own}]", "/proc/7/fd/9")
    return place_faults(node, RUNNING, view)


def streams(host: str, port: str = "0") -> dict[str, object]:
    section = {"stream_server_address": host, "stream_server_port": port}
    return {CRI_V2[0]: {CRI_V2[1]: section}}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.9", "0.0.0.0", "::", "192.0.2.2", "fd00::2", "", "name"]
)
def test_addresses_of_the_node_are_fine(tmp_path: Path, host: str) -> None:
    assert faults(tmp_path, streams(host)) == ()


@pytest.mark.parametrize("host", ["192.0.2.3", "fd00::3"])
def test_an_address_of_no_interface_ends_containerd(tmp_path: Path, host: str) -> None:
    assert faults(tmp_path, streams(host)) == (f"`stream_server_address`: {host} is no address of this node",)


@pytest.mark.parametrize(
    ("view", "own", "said"),
    [
        ({"metrics": {"address": "127.0.0.1:1338"}}, "", "`address`: something else"),
        ({"metrics": {"address": "0.0.0.0:1338"}}, "", "`address`: something else"),
        ({"metrics": {"address": "127.0.0.1:1338"}}, "77", ""),
        ({"metrics": {"address": "127.0.0.1:1339"}}, "", ""),  # a connection, which listens nowhere
        ({"grpc": {"tcp_address": "[fd00::2]:1340"}}, "", "`tcp_address`: something else"),
        (streams("192.0.2.2", "1338"), "", ""),
    ],
)
def test_a_port_is_taken_by_anybody_but_the_daemon(
    tmp_path: Path, view: Mapping[str, object], own: str, said: str
) -> None:
    told = "".join(faults(tmp_path, view, own=own))
    assert told.startswith(said)
    assert bool(told) == bool(said)


def test_socket_and_root_stay_where_the_node_knows_them(tmp_path: Path) -> None:
    moved = {"grpc": {"address": "/run/c.sock"}, "root": "/data"}
    assert faults(tmp_path, moved) == (
        f"`address` of [grpc] is /run/c.sock, and the running daemon answers at {RUNNING.socket}",
        "`root` is /data, and the running daemon has its containers in /var/lib/containerd",
    )
    assert faults(tmp_path, moved, options="--address\0/run/containerd/containerd.sock\0--root=/x\0") == ()
    there = {"grpc": {"address": "/run/containerd/containerd.sock"}, "root": "/var/lib/containerd"}
    assert faults(tmp_path, there) == ()


def test_a_daemon_that_does_not_run_has_nothing_to_lose(tmp_path: Path) -> None:
    node = fake_node(tmp_path).host.node
    assert place_faults(node, replace(RUNNING, pid=0), {"root": "/data"}) == ()
