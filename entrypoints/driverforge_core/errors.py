"""Errors that a person can act on: what happened, the evidence, the next step.

One class for each decision that some caller takes; everything else is text. `main()` of each program is the
only place that turns an error into an exit code (`os.EX_*`, sysexits.h).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from driverforge_core.printable import printable


class DriverforgeError(Exception):
    """Base of all expected failures.

    `brief` is one sentence: what happened. `details` is the evidence, a line an entry: the command, its exit
    code, its last lines, where the rest is. `resolution` is the next step for the person who reads it.
    """

    exit_code: int = os.EX_SOFTWARE

    def __init__(self, brief: str, *, details: Sequence[str] = (), resolution: str = "") -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = tuple(details)
        self.resolution = resolution

    def document(self) -> dict[str, object]:
        """The message as programs read it in a `--json` answer."""
        return {
            "brief": self.brief,
            "details": list(self.details),
            "resolution": self.resolution,
            "exit_status": self.exit_code,
        }

    def render(self) -> str:
        """The whole message as a person sees it on stderr, without a trailing newline.

        Nothing in it is a terminal's command, whoever wrote the evidence.
        """
        lines = [
            f"error: {self.brief}",
            *(f"  | {line}" for detail in self.details for line in detail.splitlines() or [""]),
        ]
        if self.resolution:
            lines.append(f"  next: {self.resolution}")
        return printable("\n".join(lines))


class UsageError(DriverforgeError):
    """The command line asks for something that cannot be."""

    exit_code = os.EX_USAGE


class InputError(DriverforgeError):
    """A file or value given by the user is wrong.

    `details` holds every problem as `FILE:LINE: what, and what to write instead`.
    """

    exit_code = os.EX_DATAERR


class CommandFailed(DriverforgeError):
    """A program that we ran failed where it should not have."""

    exit_code = os.EX_SOFTWARE


class Unavailable(DriverforgeError):
    """A service, engine, registry, mirror or device that this step needs is not there."""

    exit_code = os.EX_UNAVAILABLE


class TemporaryFailure(Unavailable):
    """Retryable: the same call may work later (a timeout, 429, 5xx, a lock held by another instance)."""

    exit_code = os.EX_TEMPFAIL


class InUse(DriverforgeError):
    """Something holds what we were to stop; `details` names each holder (process, container, pod)."""

    exit_code = os.EX_TEMPFAIL


class Unsupported(DriverforgeError):
    """The parts do not fit together.

    This driver on this kernel, this image on this node, this configuration version.
    """

    exit_code = os.EX_CONFIG


class NotPermitted(DriverforgeError):
    """The kernel or the file system refuses.

    Not root, a capability missing, Secure Boot, lockdown, a read-only mount.
    """

    exit_code = os.EX_NOPERM


class StorageFailed(DriverforgeError):
    """Reading or writing a file failed: no space, an I/O error."""

    exit_code = os.EX_IOERR
