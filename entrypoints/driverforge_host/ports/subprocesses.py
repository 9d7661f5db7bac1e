"""Programs that are run on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished program: its exit status and all that it printed (never truncated)."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Commands(Protocol):
    """The one place where processes start."""

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        """Run a program to its end; `env` is added to a minimal environment, `timeout` is in seconds.

        `stream` also logs each output line as it comes (long compilations). Raises CommandFailed when `check`
        is set and the status is not 0, Unavailable when the program is not there, TemporaryFailure on
        timeout.
        """

    def find(self, name: str) -> str | None:
        """The path that `name` resolves to on PATH, or None."""

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        """Start a daemon that outlives this call; its output goes to the file `log`. Returns the PID."""
