"""A containerd of our own on this machine: private root, state and socket, in its own mount and PID namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import final

from driverforge_core.errors import Unavailable
from support import aptfetch
from support.process import Finished, children, require, run, start, stop, until

NAMESPACE = "k8s.io"
_CONFIG = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Containerd:
    """A running daemon; a context manager."""

    home: Path
    prefix: Path
    child: subprocess.Popen[bytes] = field(compare=False)

    @property
    def address(self) -> Path:
        return self.home / "containerd.sock"

    @property
    def root(self) -> Path:
        """What would be /var/lib/containerd."""
        return self.home / "root"

    @property
    def pid(self) -> int:
        """The daemon's PID as this machine sees it."""
        return children(self.child.pid)[0]

    def ctr(self, *words: str | Path, check: bool = True) -> Finished:
        """Run ctr against this daemon, in the namespace of Kubernetes."""
        return run(
            self.prefix / "usr/bin/ctr",
            "--address",
            self.address,
            "--namespace",
            NAMESPACE,
            *words,
            check=check,
        )

    def stop(self) -> None:
        """End the daemon; its shims, containers and mounts go with its namespaces."""
        for pid in children(self.child.pid):
            os.kill(pid, signal.SIGTERM)
        stop(self.child, first=signal.SIGCONT)

    def __enter__(self) -> Containerd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def programs(suite: str = "bookworm") -> Path:
    """A prefix with containerd of a suite (bookworm has 1.6) and bookworm's runc, unpacked in the cache."""
    archive = aptfetch.archive()
    return archive.unpacked(
        [archive.newest("containerd", suite=suite), archive.newest("runc", suite="bookworm")]
    )


def search_path(prefix: Path) -> str:
    """PATH with the prefix's programs first: containerd looks up its shim and runc there."""
    return f"{prefix}/usr/bin:{prefix}/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def launch(home: Path, *, config: str = _CONFIG, suite: str = "bookworm") -> Containerd:
    """Start containerd with everything under `home` (short: a Unix socket's path has 107 bytes). Needs root."""
    if os.geteuid() != 0:
        raise Unavailable("containerd needs root")
    require("unshare", "setpriv")
    prefix = programs(suite)
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(config)
    isolated = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    daemon = [
        "containerd",
        "--root",
        f"{home}/root",
        "--state",
        f"{home}/state",
        "--address",
        f"{home}/containerd.sock",
    ]
    log = home / "containerd.log"
    (home / "containerd.sock").unlink(missing_ok=True)
    child = start(
        [*isolated, *daemon, "--config", f"{home}/config.toml"], log=log, env={"PATH": search_path(prefix)}
    )
    daemon_value = Containerd(home=home, prefix=prefix, child=child)
    try:
        until(
            lambda: daemon_value.address.exists() and daemon_value.ctr("version", check=False).status == 0,
            "containerd",
            timeout=30,
            child=child,
            log=log,
        )
    except BaseException:
        stop(child)
        raise
    return daemon_value
