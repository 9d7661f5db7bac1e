"""System services through systemctl: the node's, entered by way of PID 1 when we are in a container."""

from __future__ import annotations

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_host.ports import Commands


class SystemdServices:
    """The `Services` port.

    `enter` is the command prefix that reaches the node's mount namespace, empty on the node itself.
    """

    def __init__(self, commands: Commands, enter: tuple[str, ...] = ()) -> None:
        self._commands = commands
        self._enter = enter

    def restart(self, unit: str, *, timeout: float) -> None:
        self._commands.run([*self._enter, "systemctl", "restart", unit], timeout=timeout)

    def main_pid(self, unit: str) -> int:
        words = ("systemctl", "show", "--property=MainPID", "--value", unit)
        text = self._commands.run([*self._enter, *words], timeout=30).stdout.strip()
        if not text.isdigit():
            raise CommandFailed(f"{' '.join(words)} printed no PID", details=text.splitlines())
        return int(text)

    def start_seconds(self, unit: str) -> float:
        """By the time between its first process and its being active, in µs of the system's clock."""
        properties = ("InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        words = [f"--property={name}" for name in properties]
        try:
            shown = self._commands.run(
                [*self._enter, "systemctl", "show", *words, unit], check=False, timeout=30
            )
            times = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
            begun, active = (int(times.get(name, 0)) for name in properties)
        except (DriverforgeError, ValueError):
            return 0.0
        return max(0, active - begun) / 1e6

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        argv = [
            *self._enter,
            "journalctl",
            "--no-pager",
            "--quiet",
            "--output=cat",
            f"--lines={count}",
            f"--unit={unit}",
        ]
        try:
            return tuple(self._commands.run(argv, check=False, timeout=30).stdout.splitlines())
        # no journalctl, or a journal that takes too long: there is less evidence, and nothing else fails
        except DriverforgeError:
            return ()
