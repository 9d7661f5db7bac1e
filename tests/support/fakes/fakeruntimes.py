"""Several container runtimes on one fake node: docker by its HTTP, a containerd, processes in /proc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_host import ports
from driverforge_host.ports import Connection
from support.fakes.fakecontainerd import FakeContainerd
from support.fakes.fakehost import FakeNode

EVERY_POWER = (1 << 41) - 1  # of root; Linux has 41 capabilities


@dataclass
class Sockets:
    """Docker by its HTTP, beside a containerd; `listener` is who opened docker's socket."""

    containerd: FakeContainerd
    listener: int
    docker: int
    cri: bool = True
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        self.asked.append(path)
        if path.endswith("docker.sock"):
            yield Docker(listener=self.listener, pid=self.docker)
        elif not self.cri and self.asked.count(path) > 1:
            raise Unavailable("the runtime does not answer Version (its CRI plugin is not loaded)")
        else:
            with self.containerd.connect(path, timeout=timeout) as connection:
                yield connection


@dataclass
class Docker:
    listener: int
    pid: int
    pending: bytes = b""

    def peer_pid(self) -> int:
        return self.listener

    def sender_pid(self) -> int:
        return self.pid

    def send(self, data: bytes) -> None:
        self.pending += b"HTTP/1.0 200 OK\r\n\r\nOK"

    def receive(self, size: int) -> bytes:
        data, self.pending = self.pending[:size], self.pending[size:]
        return data


@dataclass
class Silent:
    """The sockets of `others`, of which one fails to connect: with `error`, else as if nobody listened."""

    path: str
    others: ports.Sockets
    error: DriverforgeError | None = None

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        if path.endswith(self.path):
            raise self.error or Unavailable(f"nothing answers at {path}", details=["connection refused"])
        with self.others.connect(path, timeout=timeout) as connection:
            yield connection


def with_docker(node: FakeNode, containerd: FakeContainerd, *, cri: bool = True) -> Sockets:
    """Docker as Debian runs it: systemd opened its socket."""
    files = node.host.node
    process(node, 1, "systemd", "/usr/lib/systemd/systemd")
    process(node, 50, "dockerd", "/usr/sbin/dockerd")
    files.write_atomic("/run/docker.sock", b"")
    return Sockets(containerd=containerd, listener=1, docker=50, cri=cri)


def process(
    node: FakeNode, pid: int, comm: str, program: str, *words: str, powers: int = EVERY_POWER
) -> None:
    """A process of the node; `powers` are its effective capabilities."""
    files, base = node.host.node, f"/proc/{pid}"
    files.make_dirs(f"{base}/ns")
    cmdline = "\0".join((program, *words, ""))
    for name, text in (
        ("comm", f"{comm}\n"),
        ("cmdline", cmdline),
        ("cgroup", "0::/\n"),
        ("status", f"Name:\t{comm}\nCapEff:\t{powers:016x}\n"),
        ("stat", f"{pid} ({comm}) S 0 {' '.join(['0'] * 17)} 1 0\n"),
    ):
        files.write_atomic(f"{base}/{name}", text.encode())
    files.symlink(program, f"{base}/exe")
    files.make_dirs(program.rpartition("/")[0])
    files.write_atomic(program, b"")
