"""A containerd 1.x of a fake node.

It has its process in /proc, its own `config dump`, and its runtime interface over a connection in memory.
Like the real one it goes by what it read at its start: a file that is rewritten counts from the next
`restart` on. Without its default runtime it runs and has no runtime interface.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_toolkit.runtime.backends import config_files, containerd, containerd_config, imports
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, RUNTIMES
from driverforge_toolkit.runtime.find.cri import UNIMPLEMENTED
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, toml_file
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup, merged, take
from driverforge_toolkit.runtime.model import DaemonPath, NodePath, RuntimeDaemon, Supervisor
from support.fakes.fakehost import FakeNode
from support.fakes.fakerestore import run_restores

SOCKET = NodePath("/run/containerd/containerd.sock")
CONFIG = NodePath("/etc/containerd/config.toml")
DROP_IN = NodePath("/etc/containerd/conf.d/99-nvidia.toml")
BINARY = DaemonPath("/usr/bin/containerd")
ROOT = b"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
BUILT_IN: dict[str, object] = {
    "plugins": {
        "io.containerd.grpc.v1.cri": {
            "containerd": {
                "default_runtime_name": "runc",
                "runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2"}},
            },
            "sandbox_image": "pause:3.8",
        }
    }
}


def _part(number: int, value: bytes) -> bytes:
    size, head = len(value), bytes([number << 3 | 2])
    while size > 0x7F:
        head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
    return head + bytes([size]) + value


@dataclass
class FakeContainerd:
    """`down`: nobody answers. `starts` counts; the process of each has a PID of its own."""

    node: FakeNode
    version: str = "1.7.24"
    starts: int = 0
    down: bool = False
    running: dict[str, object] = field(default_factory=dict)
    dumps: int = 0
    config: NodePath = CONFIG
    unit: str = ""  # of systemd, which then runs on the node

    def __post_init__(self) -> None:
        files = self.node.host.node
        for folder in (
            "/proc/1",
            "/proc/self",
            "/run/containerd",
            "/etc/containerd",
            "/usr/bin",
            "/run/driverforge",
            "/etc/cdi",
            "/var/run/cdi",
        ):
            files.make_dirs(folder)
        for path, text in (
            (BINARY, b""),
            (self.config, ROOT),
            ("/proc/uptime", b"100.0 1.0\n"),
            ("/proc/self/stat", self._stat(1)),
        ):
            files.write_atomic(path, text)
        self.node.commands.programs["nsenter"] = self._enter
        self.node.commands.programs["sh"] = self._enter
        self.node.commands.daemons["nsenter"] = lambda: run_restores(self.node)
        self.restart()

    @property
    def pid(self) -> int:
        return 700 + self.starts

    @property
    def daemon(self) -> RuntimeDaemon:
        return RuntimeDaemon(
            kind="containerd",
            pid=self.pid,
            binary=BINARY,
            version=(1, 7, 24),
            socket=SOCKET,
            config=self.config,
            drop_in=DROP_IN,
            supervisor=Supervisor(kind=""),
        )

    def restart(self) -> None:
        files = self.node.host.node
        files.remove_tree(f"/proc/{self.pid}")
        self.starts += 1
        base = f"/proc/{self.pid}"
        files.make_dirs(f"{base}/ns")
        for name, text in (
            ("comm", b"containerd\n"),
            ("cmdline", f"{BINARY}\0".encode()),
            ("cgroup", f"0::/{self.unit}\n".encode()),
            ("stat", self._stat(self.starts)),
        ):
            files.write_atomic(f"{base}/{name}", text)
        files.symlink(BINARY, f"{base}/exe")
        files.symlink("/", f"{base}/cwd")
        files.remove(SOCKET)
        files.write_atomic(SOCKET, b"")
        self.running = self.reads(self.config)

    def reads(self, config: str) -> dict[str, object]:
        """What it makes of its files.

        The last file that has any of the CRI section replaces the others' section, and its runtimes those
        that are built in.
        """
        files = (
            config_files.read_files(self.node.host, self.daemon)
            if config == self.config
            else self._copies(config)
        )
        documents = imports.read_documents(config, files)
        seen = BUILT_IN
        for document in documents.values():
            section = lookup(document, CRI_V2)
            if isinstance(section, Mapping):
                seen = copy.deepcopy(BUILT_IN)
                if lookup(section, RUNTIMES) is not REMOVED:
                    take(seen, (*CRI_V2, *RUNTIMES))
                seen = merged(seen, {"plugins": {"io.containerd.grpc.v1.cri": section}})
        return {**seen, "version": 2, "imports": list(documents)}

    def _copies(self, config: str) -> dict[str, ConfigFile]:
        node = self.node.host.node
        data = node.read_bytes(config)
        imports = parse(data, config).get("imports", [])
        assert isinstance(imports, list)
        paths = [config, *(str(path) for path in imports if node.exists(str(path)))]
        return {path: toml_file(path, node.read_bytes(path)) for path in paths}

    def _stat(self, start: int) -> bytes:
        return f"{700 + start} (containerd) S 1 {' '.join(['0'] * 17)} {start} 0\n".encode()

    def _enter(self, words: Sequence[str]) -> tuple[int, str, str]:
        argv = list(words[words.index("--") + 1 :] if "--" in words else words)
        if argv[0] == "systemd-run":
            run_restores(self.node)
            return 0, "", ""
        if argv[0] == "systemctl":
            return 0, "", ""
        if "restart" in argv[-1]:
            self.restart()
            return 0, "", ""
        if argv[-1] == "--version":
            return 0, f"containerd github.com/containerd/containerd {self.version} x\n", ""
        if argv[-1] == "dump":
            self.dumps += 1
            try:
                seen = self.reads(argv[argv.index("--config") + 1])
                return 0, (toml_file("dump").rewritten(seen).data or b"").decode(), ""
            except DriverforgeError as error:
                return 1, "", f"containerd: {error.brief}\n"
        return 1, "", f"{argv}: not known here\n"

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[CriPeer]:
        if self.down:
            raise Unavailable(f"nothing answers at {path}", details=["connection refused"])
        programs = containerd.handlers(self.running)
        tables = {name: {"options": {"BinaryName": program}} for name, program in programs.items()}
        config = {
            "containerd": {
                "runtimes": tables,
                "defaultRuntimeName": containerd_config.default_of(self.running),
            }
        }
        status = _part(2, _part(1, b"config") + _part(2, json.dumps(config).encode()))
        answers = {"Version": _part(2, b"containerd") + _part(3, self.version.encode()), "Status": status}
        yield CriPeer(pid=self.pid, answers={} if containerd.unservable(self.running) else answers)


@dataclass
class CriPeer:
    """The other side of one connection: a gRPC server without a socket, with an answer for each method."""

    pid: int
    answers: Mapping[str, bytes]
    pending: bytes = b""
    method: str = ""

    def __post_init__(self) -> None:
        self.protocol = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.protocol.initiate_connection()

    def peer_pid(self) -> int:
        return self.pid

    def sender_pid(self) -> int:
        return self.pid

    def send(self, data: bytes) -> None:
        for event in self.protocol.receive_data(data) if data else ():
            if isinstance(event, h2.events.RequestReceived):
                headers = {str(name): str(value) for name, value in event.headers}
                self.method = headers[":path"].rpartition("/")[2]
            elif isinstance(event, h2.events.StreamEnded):
                self._reply(event.stream_id, self.answers.get(self.method))
        self.pending += self.protocol.data_to_send()

    def _reply(self, stream: int, message: bytes | None) -> None:
        head = [(":status", "200"), ("content-type", "application/grpc")]
        self.protocol.send_headers(stream, head)
        if message is not None:
            self.protocol.send_data(stream, struct.pack(">BI", 0, len(message)) + message)
        status = "0" if message is not None else UNIMPLEMENTED
        self.protocol.send_headers(stream, [("grpc-status", status)], end_stream=True)

    def receive(self, size: int) -> bytes:
        data, self.pending = self.pending[:size], self.pending[size:]
        return data
