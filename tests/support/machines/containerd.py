"""A containerd of our own on this machine.

Its root, state and socket are private, and so are its mount and PID namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import final

from driverforge_core.errors import Unavailable
from support import aptfetch, cache, gobuild
from support.process import Finished, children, require, run, start, stop, until

NAMESPACE = "k8s.io"
_MODULE = "github.com/containerd/containerd/v2"


def _recipe(version: str) -> gobuild.Recipe:
    return gobuild.Recipe(
        name="containerd",
        what=f"containerd {version}",
        requires={_MODULE: f"v{version}"},
        packages={
            f"usr/bin/{name}": f"{_MODULE}/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        flags=(*gobuild.QUICK, f"-ldflags=-s -w -X {_MODULE}/version.Version=v{version}"),
        seldom=True,
    )


# in the place of a suite: these are in no Debian that runs here
COMPILED = {"2.3": _recipe("2.3.7"), "2.4": _recipe("2.4.2")}
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
    """A prefix in the cache with a containerd and bookworm's runc.

    The containerd is that of a Debian suite, unpacked: bookworm has 1.6, trixie 1.7, sid 2.1. With one of
    `COMPILED` in place of a suite it is compiled. Raises Unavailable where it cannot be had.
    """
    archive = aptfetch.archive()
    runc = archive.newest("runc", suite="bookworm")
    if suite not in COMPILED:
        return archive.unpacked([archive.newest("containerd", suite=suite), runc])
    compiled = gobuild.programs(COMPILED[suite])

    def join(folder: Path) -> None:
        # hard links: each entry stays whole when the other is removed
        for part in (compiled, archive.unpacked([runc])):
            shutil.copytree(part, folder, copy_function=os.link, symlinks=True, dirs_exist_ok=True)

    return cache.cached("containerd-prefix", {"compiled": str(compiled), "runc": str(runc)}, join)


def search_path(prefix: Path) -> str:
    """PATH with the prefix's programs first: containerd looks up its shim and runc there."""
    return f"{prefix}/usr/bin:{prefix}/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def launch(home: Path, *, config: str = _CONFIG, suite: str = "bookworm") -> Containerd:
    """Start containerd with everything under `home`. Needs root.

    `home` must be short: the path of a Unix socket has 107 bytes.
    """
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
