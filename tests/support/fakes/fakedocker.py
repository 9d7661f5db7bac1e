"""A docker of a fake node.

It has its process in /proc, its daemon.json, and its GET /info over a connection in memory. It reads the
runtimes and the default one at its start and on SIGHUP, features at its start only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.fakes.fakehost import FakeNode
from support.fakes.fakerestore import run_restores
from support.fakes.fakeruntimes import process

SOCKET = "/run/docker.sock"
CONFIG = "/etc/docker/daemon.json"
BINARY = "/usr/sbin/dockerd"


@dataclass
class FakeDocker:
    node: FakeNode
    starts: int = 0
    reloads: int = 0
    running: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        files = self.node.host.node
        for folder in ("/proc/1", "/proc/self", "/run/driverforge", "/etc/docker"):
            files.make_dirs(folder)
        for path, text in (
            (SOCKET, ""),
            (CONFIG, "{}\n"),
            ("/proc/uptime", "100.0 1.0\n"),
            ("/proc/self/stat", self._stat(9)),
        ):
            files.write_atomic(path, text.encode())
        self.node.commands.programs |= {"nsenter": self._enter, "sh": self._enter}
        self.node.commands.daemons["nsenter"] = lambda: run_restores(self.node)
        self.restart()

    @property
    def pid(self) -> int:
        return 500 + self.starts

    def restart(self) -> None:
        files = self.node.host.node
        files.remove_tree(f"/proc/{self.pid}")
        self.starts += 1
        process(self.node, self.pid, "dockerd", BINARY)
        files.write_atomic(f"/proc/{self.pid}/stat", self._stat(self.pid).encode())
        self.running = self._read()

    def _read(self) -> dict[str, object]:
        data = json.loads(self.node.host.node.read_text(CONFIG))
        assert isinstance(data, dict)
        return data

    def _reload(self) -> None:
        self.reloads += 1
        self.running |= {
            key: value for key, value in self._read().items() if key in ("runtimes", "default-runtime")
        }

    def _stat(self, pid: int) -> str:
        return f"{pid} (dockerd) S 1 {' '.join(['0'] * 17)} {pid} 0\n"

    def _enter(self, words: Sequence[str]) -> tuple[int, str, str]:
        if words[-1] == "restart":
            self.restart()
        elif words[-1] == f"kill -HUP {self.pid}":
            self._reload()
        elif words[-1] == "--version":
            return 0, "Docker version 28.5.2, build x\n", ""
        elif "--validate" not in words:
            return 1, "", f"{words}: not known here\n"
        return 0, "", ""

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[_Peer]:
        info = {
            "Runtimes": self.running.get("runtimes", {}),
            "DefaultRuntime": self.running.get("default-runtime", "runc"),
        }
        yield _Peer(pid=self.pid, pending=b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(info).encode())


@dataclass
class _Peer:
    pid: int
    pending: bytes

    def peer_pid(self) -> int:
        return self.pid

    def sender_pid(self) -> int:
        return self.pid

    def send(self, data: bytes) -> None:
        """The only question is known."""

    def receive(self, size: int) -> bytes:
        data, self.pending = self.pending[:size], self.pending[size:]
        return data
