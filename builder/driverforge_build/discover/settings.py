"""What a run of discovery is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from driverforge_build.discover.machine import Machine
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import Unavailable


class Nowhere(Unavailable):
    """Nothing says where a repository is, or who may sign it, or how one gets in: a person has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user of a subscription's repositories."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run is told. `now` is UTC and aware; `mirrors` maps OS or OS/SUITE to an address.

    `keyrings`, each of an OS or ('') of all, win over all others; `entitlement` opens the repositories of a
    subscription, of SUSE's `logins` do, by the name of their file. `classes`: whether whole header packages
    are read, for their digests; None: where the lock has some.
    """

    now: datetime
    machine: Machine = field(default_factory=Machine)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    keyrings: Sequence[tuple[str, Path]] = ()
    entitlement: ClientCertificate | None = None
    logins: Mapping[str, Login] = field(default_factory=dict)
    accept_expired: bool = False
    accept_shrink: bool = False
    classes: bool | None = None

    def keys_of(self, os_key: str) -> tuple[Path, ...]:
        """The keyrings that a user gave for an OS."""
        return tuple(path for own, path in self.keyrings if own in ("", os_key))
