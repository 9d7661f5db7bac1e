"""What a run of discovery is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from driverforge_build.discover.machine import Machine
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import Unavailable


class Nowhere(Unavailable):
    """Nothing says where a repository is, or who may sign it, or how one gets in: a person has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run is told. `now` is UTC and aware; `mirrors` maps OS or OS/SUITE to an address.

    `keyrings` win over all others, `entitlement` opens repositories that want a subscription.
    """

    now: datetime
    machine: Machine = field(default_factory=Machine)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    keyrings: tuple[Path, ...] = ()
    entitlement: ClientCertificate | None = None
    accept_expired: bool = False
    accept_shrink: bool = False
