"""A change that was planned, and all that planning and making it need."""

from __future__ import annotations

from dataclasses import dataclass, field

from driverforge_host.ports import Host, Sockets
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import cri, selection
from driverforge_toolkit.runtime.find.supervisor import SLOW
from driverforge_toolkit.runtime.formats.configfile import Contents
from driverforge_toolkit.runtime.model import Activation, RuntimeDaemon
from driverforge_toolkit.runtime.request import RuntimeRequest

PATIENCE = 60.0  # seconds for the daemon to answer; containerd needs about one
RESTART_TIMEOUT = 180.0  # systemd gives a unit 90 seconds to stop and 90 to start
# seconds of a change and of its roll-back for all that is no restart and no waiting for an answer
BESIDE = 120
UNITS = {"containerd": "containerd.service", "crio": "crio.service", "docker": "docker.service"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSystem:
    """All that a change needs: the node, the way to its daemons, and what the user asks for."""

    host: Host
    sockets: Sockets
    request: RuntimeRequest
    # seconds that the daemon's unit needed to start the last time; 0: not known, or not asked for yet
    last_start: float = 0.0

    def status(self, daemon: RuntimeDaemon) -> cri.RuntimeStatus:
        """What the running daemon reports. Raises Unavailable."""
        return selection.status_of(self.host, self.sockets, daemon)

    def patience(self, daemon: RuntimeDaemon) -> float:
        """Seconds for the daemon to answer after a restart.

        Where nobody says how many, one that starts slowly here has twice what it needed the last time.
        """
        return self.request.patience or max(SLOW.get(daemon.supervisor.kind, PATIENCE), 2 * self.last_start)

    def restart_timeout(self, daemon: RuntimeDaemon) -> float:
        """Seconds for the restart command itself.

        That of a Type=notify unit takes as long as the daemon's start does.
        """
        return max(RESTART_TIMEOUT, self.patience(daemon))

    def deadline(self, daemon: RuntimeDaemon) -> int:
        """Seconds until the node takes us for hung, and restores the old files by itself.

        More than all of this takes together: a change, its proof, the restart of a roll-back, and the wait
        for that.
        """
        return int(2 * (self.restart_timeout(daemon) + self.patience(daemon))) + BESIDE

    def unit(self, daemon: RuntimeDaemon) -> str:
        """The systemd unit to restart, '' where there is none that we know."""
        asked = UNITS[daemon.kind] if self.request.restart_mode == "systemd" else ""
        return daemon.supervisor.unit or asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """A change that was validated and not yet made."""

    daemon: RuntimeDaemon
    entry: journal.JournalEntry  # its files are the change; None as `written` means that a file goes away
    effective: tuple[str, ...]  # keys whose value the daemon will see differently
    activation: Activation
    why: str  # of the activation
    present: tuple[tuple[str, str], ...] = ()  # handlers (name, program) that the daemon shall report then
    undo: Activation = "none"  # what a revert of it will need
    others: tuple[str, ...] = ()  # handlers besides `present` that it reports now, and shall go on to report
    absent: tuple[str, ...] = ()  # handlers that it shall not report
    default: str = ""  # the default handler that it shall report, '' for any
    keep: bool = True  # whether a journal entry stays: not after a revert
    notes: tuple[str, ...] = ()  # for people
    # what the daemon read when this was planned: whoever reads its files again takes those that are the same
    read: Contents = field(default_factory=dict)

    @property
    def writes(self) -> tuple[journal.JournalFile, ...]:
        """The files that are different afterwards."""
        return tuple(file for file in self.entry.files if file.before != file.written)

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done, not even in the journal."""
        earlier = self.entry.earlier
        if self.writes or self.activation != "none":
            return False
        if earlier is None:
            return not self.entry.files
        return self.keep and earlier.state == "in force" and _lasting(earlier) == _lasting(self.entry)


def _lasting(entry: journal.JournalEntry) -> object:
    """What of an entry stays the same for as long as the change is in force."""
    files = tuple((file.path, file.original, file.written) for file in entry.files)
    return files, entry.handlers, entry.socket, entry.supervisor
