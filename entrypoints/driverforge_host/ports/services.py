"""The node's service manager."""

from __future__ import annotations

from typing import Protocol


class Services(Protocol):
    """Units of the node's service manager."""

    def restart(self, unit: str, *, timeout: float) -> None:
        """Restart a unit, and return when it tells systemd that it is up.

        With Type=notify that is late: k3s and rke2 are up after their control plane. Raises CommandFailed,
        and TemporaryFailure after `timeout` seconds, when systemd goes on with the restart without us.
        """

    def main_pid(self, unit: str) -> int:
        """PID of the unit's main process, 0 when it is not running.

        Raises CommandFailed, TemporaryFailure and Unavailable where nobody answers.
        """

    def start_seconds(self, unit: str) -> float:
        """What the unit's last start took; 0 where it has not started, or nobody tells.

        Never raises, as `last_log_lines`.
        """

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        """The end of the unit's log; empty where it cannot be read.

        Never raises: it is evidence beside something else.
        """
