"""Run driverctl and kill it before its Nth change of the node.

Call it as `python -m support.fakes.killable N ARGUMENTS…`. A change is a write, a rename, a removal, a
restart, or a program that is started and stays. The number of the change and what it was to be go to stderr
before SIGKILL. Exit status 0 means that there were fewer changes, and no kill.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driverctl.cli import run
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Commands, Host, Metadata, Result, Services


@dataclass
class KillFuse:
    left: int

    def burn(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            print(f"killed before: {what}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


class KillableFiles(RootedFiles):
    """The node's files. The copies for a check, in /run, are no change."""

    def __init__(self, root: str, fuse: KillFuse) -> None:
        super().__init__(root)
        self.fuse = fuse

    def _burn(self, what: str, path: str) -> None:
        if not path.startswith("/run/driverforge"):
            self.fuse.burn(f"{what} {path}")

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._burn("write", path)
        super().write_atomic(path, data, mode=mode)

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        self._burn("replace", path)
        return super().replace_bytes(path, before=before, after=after, metadata=metadata)

    def make_dirs(self, path: str, *, mode: int = 0o755) -> None:
        if not self.is_dir(path):
            self._burn("make", path)
        super().make_dirs(path, mode=mode)

    def rename(self, source: str, target: str) -> None:
        self._burn("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.exists(path) or self.is_link(path):
            self._burn("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._burn("remove", path)
        super().remove_tree(path)


@dataclass
class KillableCommands:
    """Programs; those that only tell something do not count."""

    real: Commands
    fuse: KillFuse

    def run(self, argv: Sequence[str], **more: Any) -> Result:
        if any(word in argv for word in ("sh", "systemd-run", "systemctl")):
            self.fuse.burn(" ".join(argv))
        return self.real.run(argv, **more)

    def find(self, name: str) -> str | None:
        return self.real.find(name)

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        self.fuse.burn(" ".join(argv))
        return self.real.spawn(argv, env=env, log=log)


@dataclass
class KillableServices:
    real: Services
    fuse: KillFuse

    def restart(self, unit: str, *, timeout: float) -> None:
        self.fuse.burn(f"restart {unit}")
        self.real.restart(unit, timeout=timeout)

    def main_pid(self, unit: str) -> int:
        return self.real.main_pid(unit)

    def start_seconds(self, unit: str) -> float:
        return self.real.start_seconds(unit)

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        return self.real.last_log_lines(unit, count)


def killable(host: Host, fuse: KillFuse) -> Host:
    return replace(
        host,
        node=KillableFiles(host.node.root, fuse),
        commands=KillableCommands(host.commands, fuse),
        services=KillableServices(host.services, fuse),
    )


if __name__ == "__main__":
    burning = KillFuse(int(sys.argv[1]))
    sys.exit(run(sys.argv[2:], lambda: killable(real_host(), burning)))
