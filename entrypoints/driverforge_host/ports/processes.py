"""Processes, and what they hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.printable import on_one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that keeps something open, and where it comes from."""

    pid: int
    command: str
    path: str  # what it holds: a device file or a mapped file
    container: str  # container id from its cgroup, '' on the host
    pod: str  # pod UID from its cgroup, '' outside Kubernetes


def describe_holder(holder: Holder) -> str:
    """The process, its container and pod, and the file that it holds, for people.

    The process chooses its name and its paths.
    """
    where = f", container {holder.container[:12]}" if holder.container else ", on the host"
    pod = f", pod {holder.pod}" if holder.pod else ""
    return on_one_line(f"process {holder.pid} ({holder.command}{where}{pod}) holds {holder.path}")


class Processes(Protocol):
    """Processes, as far as we see them: all of them only with the host's PID namespace (hostPID)."""

    def holders(self, majors: Collection[int]) -> tuple[Holder, ...]:
        """Processes that have a character device of one of these majors open or mapped.

        The path says nothing: in a container a device has any, and any process may have a file of any name.
        """

    def opened_majors(self, pid: int, majors: Collection[int]) -> tuple[int, ...]:
        """The major of each descriptor by which `pid` has a character device of one of these majors open."""

    def users(self, part: str) -> tuple[Holder, ...]:
        """Processes that have something open, mapped or mounted whose path has `part` in it.

        Their program, working directory and root count, too. A container sees a folder of the node under any
        path, so `part` is the end of it, made unique by a hash.
        """

    def alive(self, pid: int, *, command: str | None = None) -> bool:
        """Whether `pid` runs (a zombie does not) and, if given, has `command` as its comm.

        Without `command`, a stale PID file may name somebody else's process.
        """

    def terminate(self, pid: int, *, timeout: float) -> bool:
        """Send SIGTERM and wait at most `timeout` seconds; whether it is gone. Never SIGKILL."""

    def effective_user(self) -> int: ...

    def become_subreaper(self) -> None:
        """Make daemons that fork away from us our children (PR_SET_CHILD_SUBREAPER).

        With hostPID we are not PID 1, whose children they would become.
        """

    def reap(self) -> Mapping[int, int]:
        """Collect children that ended: PID to exit status (negative: the signal)."""
