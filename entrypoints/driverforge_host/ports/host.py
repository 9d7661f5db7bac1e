"""All ports that most of the code needs, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_host.ports.clock import Clock
from driverforge_host.ports.files import Files
from driverforge_host.ports.modules import Modules
from driverforge_host.ports.mounts import Mounts
from driverforge_host.ports.processes import Processes
from driverforge_host.ports.services import Services
from driverforge_host.ports.subprocesses import Commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The system as one value.

    `files` is the process's own root, `node` the host's (explicit mounts first, else /proc/1/root).
    """

    commands: Commands
    files: Files
    node: Files
    mounts: Mounts
    modules: Modules
    processes: Processes
    services: Services
    clock: Clock
    environ: Mapping[str, str]
