"""The running kernel's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModule:
    """A module in the running kernel, from /proc/modules and /sys/module."""

    name: str  # normalised, with underscores
    refcount: int
    holders: tuple[str, ...]  # modules that use it
    version: str  # /sys/module/NAME/version, '' where the module states none
    state: str  # 'Live', 'Loading', 'Unloading'


class Modules(Protocol):
    """Modules of the running kernel."""

    def release(self) -> str:
        """uname -r."""

    def loaded(self) -> Mapping[str, LoadedModule]: ...

    def insert(self, name: str, *, base: str = "/", parameters: Sequence[str] = ()) -> None:
        """`modprobe -d base name parameters`.

        Raises CommandFailed with the tool's own message and the kernel's log lines of the attempt as details,
        TemporaryFailure where the kernel does not get done with it.
        """

    def remove(self, name: str) -> None:
        """`rmmod name`.

        Raises InUse or CommandFailed with the tool's own message, TemporaryFailure where the kernel does not
        get done with it.
        """

    def index(self, base: str, release: str) -> None:
        """`depmod -b base release`."""

    def kernel_log(self) -> tuple[str, ...]:
        """Lines of the kernel's ring buffer, oldest first; empty where it may not be read."""
