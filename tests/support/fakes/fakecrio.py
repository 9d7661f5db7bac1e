"""A CRI-O of a fake node: its process in /proc, its own `crio config`, and its answers, all in memory.

It follows CRI-O's rules of `crioconfig`, as the stand-in of the engine tests does, which is a real process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_toolkit.runtime.transaction.held import HANDLER, KIND, NAME, NAMESPACE, SANDBOX, STORAGE
from support.fakes.crioconfig import CrioConfig, Refusal
from support.fakes.criodaemon import Crio
from support.fakes.fakecontainerd import CriPeer
from support.fakes.fakehost import NODE, FakeNode
from support.fakes.fakerestore import run_restores
from support.fakes.fakeruntimes import process

SOCKET = "/run/crio/crio.sock"
CONFIG = "/etc/crio/crio.conf"
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-nvidia.toml"
BINARY = "/usr/bin/crio"
VERSION = (1, 31, 2)


def nothing_else(_config: CrioConfig) -> None:
    """What a CRI-O of that version reads."""


@dataclass
class FakeCrio:
    """`makes` changes what it makes of its files."""

    node: FakeNode
    starts: int = 0
    makes: Callable[[CrioConfig], None] = nothing_else
    running: CrioConfig = field(init=False)

    def __post_init__(self) -> None:
        files = self.node.host.node
        for folder in ("/proc/1", "/proc/self", "/run/crio", FOLDER, "/run/driverforge"):
            files.make_dirs(folder)
        for path, text in (
            (SOCKET, ""),
            (CONFIG, ""),
            ("/proc/uptime", "100.0 1.0\n"),
            ("/proc/self/stat", f"9 (driverctl) S 1 {' '.join(['0'] * 17)} 9 0\n"),
        ):
            files.write_atomic(path, text.encode())
        self.node.commands.programs |= {"nsenter": self._enter, "sh": self._enter}
        self.node.commands.daemons["nsenter"] = lambda: run_restores(self.node)
        self.restart()

    @property
    def pid(self) -> int:
        return 600 + self.starts

    def restart(self) -> None:
        self.node.host.node.remove_tree(f"/proc/{self.pid}")
        self.starts += 1
        process(self.node, self.pid, "crio", BINARY)
        self.running = self.reads(CONFIG, FOLDER)

    def reads(self, root: str, folder: str) -> CrioConfig:
        """Raises Refusal."""
        top = self.node.places[NODE]
        config = CrioConfig.loaded(VERSION, Path(top, root[1:]), Path(top, folder[1:]))
        self.makes(config)
        config.validate(on_execution=False)
        return config

    def runs_pod(self, name: str, handler: str) -> None:
        """A pod in the namespace `site`, as CRI-O keeps it: its files."""
        spec: Mapping[str, object] = {
            "annotations": {KIND: SANDBOX, HANDLER: handler, NAMESPACE: "site", NAME: name}
        }
        folder = f"{STORAGE}/overlay-containers/{name}/userdata"
        self.node.host.node.make_dirs(folder)
        self.node.host.node.write_atomic(f"{folder}/config.json", json.dumps(spec).encode())

    def _enter(self, words: Sequence[str]) -> tuple[int, str, str]:
        argv = list(words[words.index("--") + 1 :] if "--" in words else words)
        if argv[-1] == "restart":
            self.restart()
        elif argv[-1] == "--version":
            return 0, f"crio version {'.'.join(map(str, VERSION))}\n", ""
        elif argv[-2:] == ["config", "--default"]:
            return 0, CrioConfig.built_in(VERSION).printed(everything=True), ""
        elif argv[-1] == "config":
            folders = (argv[argv.index(name) + 1] for name in ("--config", "--config-dir"))
            try:
                return 0, self.reads(*folders).printed(), ""
            except Refusal as error:
                return 1, "", f"{error}\n"
        return 0, "", ""

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[_Peer]:
        crio = Crio(self.running, lambda: self.running)
        answers = {method: crio.answer(method, b"") for method in ("Version", "Status")}
        yield _Peer(pid=self.pid, answers=answers, config=self.running.printed(everything=True))


@dataclass
class _Peer(CriPeer):
    """It answers GET /config on the same socket."""

    config: str = ""

    def send(self, data: bytes) -> None:
        if data.startswith(b"GET /config "):
            self.pending = f"HTTP/1.0 200 OK\r\n\r\n{self.config}".encode()
        else:
            super().send(data)
