"""Steps around the modules: daemons, device files, the driver's root, and the status for others."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import validations
from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_driver.state import daemons, paths
from driverforge_driver.state.daemons import DaemonProgram
from driverforge_driver.state.facts import RootState
from driverforge_driver.state.observe import DEVICE_LABEL, lacks_label, root_state
from driverforge_driver.state.records import RunningDaemon, record_daemons, running_daemons
from driverforge_host.ports import Host, text_of
from driverforge_host.reconcile.outcomes import Skipped

STAGED = f"{paths.STAGE}/root"
# seconds for a daemon to end
STOP_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    """Write the daemons' status, which the startup probe of NVIDIA's operator reads."""

    text: str

    def describe(self) -> str:
        return f"tell the startup probe: {self.text}"

    def apply(self, host: Host) -> None:
        host.files.make_dirs(validations.FOLDER)
        host.files.write_atomic(paths.DAEMONS_STATUS, f"{self.text}\n".encode())

    def problem(self, host: Host) -> str:
        found = text_of(host.files, paths.DAEMONS_STATUS).strip()
        return "" if found == self.text else f"{paths.DAEMONS_STATUS} says {found!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDaemon:
    """Start a daemon that goes with the driver. The driver works without it: a failure is a warning."""

    program: DaemonProgram

    def describe(self) -> str:
        return f"start {self.program.name} if possible"

    def apply(self, host: Host) -> None:
        host.processes.become_subreaper()
        try:
            pid = daemons.start(host, self.program)
        except DriverforgeError as error:
            raise Skipped(f"{self.program.name} does not run: {error.brief}") from error
        record_daemons(host, (*running_daemons(host), RunningDaemon(name=self.program.name, pid=pid)))

    def problem(self, host: Host) -> str:
        running = any(daemon.name == self.program.name for daemon in running_daemons(host))
        return "" if running else f"no process of {self.program.name} has the PID that it wrote"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDaemons:
    """Stop our daemons with SIGTERM. One that does not end is an error.

    None is ever killed with SIGKILL.
    """

    daemons: tuple[RunningDaemon, ...]

    def describe(self) -> str:
        return "stop " + ", ".join(f"{d.name} ({d.pid})" for d in self.daemons)

    def apply(self, host: Host) -> None:
        for daemon in self.daemons:
            if host.processes.alive(daemon.pid, command=daemon.name) and not host.processes.terminate(
                daemon.pid, timeout=STOP_TIMEOUT
            ):
                raise CommandFailed(
                    f"{daemon.name} did not end within {STOP_TIMEOUT:g} s after SIGTERM",
                    details=[f"PID {daemon.pid}"],
                    resolution=f"look at what it does (cat /proc/{daemon.pid}/stack), then start again",
                )
        host.files.remove(paths.DAEMONS)

    def problem(self, host: Host) -> str:
        alive = [f"{d.name} ({d.pid})" for d in self.daemons if host.processes.alive(d.pid, command=d.name)]
        return f"still running: {', '.join(alive)}" if alive else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmountRoot:
    """Unmount the driver's root, ours or another's.

    Lazily: a process that has it open keeps it until it closes it.
    """

    def describe(self) -> str:
        return f"unmount {paths.ROOT}"

    def apply(self, host: Host) -> None:
        # The table is read anew each time: where /run/nvidia lies on its own peer, one unmount takes two of
        # its lines.
        for _ in range(len(host.mounts.table())):
            if not _mounted(host, paths.ROOT):
                return
            host.mounts.unmount(paths.ROOT, lazy=True)

    def problem(self, host: Host) -> str:
        return f"{paths.ROOT} is in /proc/self/mountinfo" if _mounted(host, paths.ROOT) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDevices:
    """Make device files, each given as (path, major, minor)."""

    devices: tuple[tuple[str, int, int], ...]

    def describe(self) -> str:
        return "make " + ", ".join(f"{path} ({major}:{minor})" for path, major, minor in self.devices)

    def apply(self, host: Host) -> None:
        for path, major, minor in self.devices:
            host.files.make_char_device(path, major, minor)

    def problem(self, host: Host) -> str:
        wrong = [
            path for path, major, minor in self.devices if host.files.device_number(path) != (major, minor)
        ]
        return f"no character device with these numbers: {' '.join(wrong)}" if wrong else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRoot:
    """Mount the container's root on /run/nvidia/driver, where others find the driver."""

    def describe(self) -> str:
        return f"mount this container's root on {paths.ROOT}"

    def apply(self, host: Host) -> None:
        """Bind the root into a private folder first, and from there on /run/nvidia/driver.

        In a pod with Bidirectional mounts the mounts of the container's root are shared
        (mount_namespaces(7)). A copy that is bound in one go is their peer: unmounting it takes /proc, /sys
        and /dev away from ourselves. A copy of private mounts has no peers.
        """
        clear_stage(host)
        host.files.make_dirs(STAGED)
        host.mounts.rbind(paths.STAGE, paths.STAGE)
        host.mounts.set_propagation(paths.STAGE, "private")
        host.files.make_dirs(STAGED)
        host.mounts.rbind("/", STAGED)
        host.mounts.set_propagation(STAGED, "private", recursive=True)
        # As upstream does: mounts below /sys stay out of the driver's root, /sys itself is in it.
        for mount in reversed(host.mounts.table()):
            if mount.target.startswith((f"{STAGED}/sys/", f"{STAGED}{paths.STAGE}")):
                host.mounts.unmount(mount.target, lazy=True)
        host.files.make_dirs(paths.ROOT)
        host.mounts.rbind(STAGED, paths.ROOT)
        clear_stage(host)

    def problem(self, host: Host) -> str:
        state = root_state(host)
        return "" if state is RootState.OURS else f"what is mounted on {paths.ROOT} is {state.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDevices:
    """Let containers under SELinux use the device files of the driver's root, which they mount.

    A root whose files take no labels is a warning: containers that get their devices from the runtime need
    none.
    """

    def describe(self) -> str:
        return f"label {paths.ROOT}/dev for containers, if possible"

    def apply(self, host: Host) -> None:
        try:
            host.commands.run(["chcon", "-R", "-t", DEVICE_LABEL, f"{paths.ROOT}/dev"])
        except DriverforgeError as error:
            said = "; ".join(line for line in error.details if not line.startswith("$"))
            raise Skipped(
                f"{paths.ROOT}/dev has no label for containers: {error.brief} ({said}); next: "
                f"chcon -R -t {DEVICE_LABEL} {paths.ROOT}/dev on the node"
            ) from error

    def problem(self, host: Host) -> str:
        return f"{paths.ROOT}/dev is not {DEVICE_LABEL}" if lacks_label(host) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearStage:
    """Unmount what a killed run left in the folder where the root is prepared."""

    def describe(self) -> str:
        return f"unmount what a killed start left at {paths.STAGE}"

    def apply(self, host: Host) -> None:
        clear_stage(host)

    def problem(self, host: Host) -> str:
        left = [target for target in (STAGED, paths.STAGE) if _mounted(host, target)]
        return f"in /proc/self/mountinfo: {' '.join(left)}" if left else ""


def clear_stage(host: Host) -> None:
    """Unmount what this run or a killed one has in the private folder.

    Private once more before the unmount: a run that was killed early left mounts there that are still shared.
    """
    for target in (STAGED, paths.STAGE):
        while _mounted(host, target):
            host.mounts.set_propagation(target, "private", recursive=True)
            host.mounts.unmount(target, lazy=True)


def _mounted(host: Host, target: str) -> bool:
    return any(mount.target == target for mount in host.mounts.table())


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveState:
    """Remove our files below /run/nvidia. It is the last step of going away: the journal is among them."""

    def describe(self) -> str:
        return "remove our status files"

    def apply(self, host: Host) -> None:
        host.files.remove(paths.DAEMONS_STATUS)
        host.files.remove_tree(paths.STATE)
        if not host.files.list_dir(paths.ROOT):
            host.files.remove_tree(paths.ROOT)

    def problem(self, host: Host) -> str:
        left = [path for path in (paths.STATE, paths.DAEMONS_STATUS) if host.files.exists(path)]
        return f"still there: {' '.join(left)}" if left else ""
