"""The mount namespace of this process."""

from __future__ import annotations

from typing import Literal, Protocol

from driverforge_core.mountinfo import Mount

Propagation = Literal["private", "shared", "slave", "unbindable"]


class Mounts(Protocol):
    """The mount namespace of this process."""

    def table(self) -> tuple[Mount, ...]:
        """In the kernel's order: a later mount on the same target lies on top."""

    def rbind(self, source: str, target: str) -> None: ...
    def set_propagation(self, target: str, kind: Propagation, *, recursive: bool = False) -> None: ...
    def unmount(self, target: str, *, lazy: bool = False) -> None:
        """Unmount the top mount on `target`; `lazy` is MNT_DETACH and takes everything below along."""
