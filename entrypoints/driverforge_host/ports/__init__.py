"""Ports: all that the code of a node may ask of the system, and the values that go through them.

`Host` has one of each; `Sockets` and `Nvml` are handed to the few who need them. Each protocol is small
enough that a test implements it over a directory or a table.

Paths are absolute, as the process sees them. `Files` resolves them under its root, so the same code runs on a
container's `/`, on the host's root behind `/proc/1/root`, and on a directory made by a test.
"""

from __future__ import annotations

from driverforge_host.ports.clock import Clock
from driverforge_host.ports.cluster import NODES, Cluster, JsonObject
from driverforge_host.ports.files import Files, Metadata, bytes_of, text_of
from driverforge_host.ports.gpus import Cuda, Gpu, Mig, Nvml
from driverforge_host.ports.host import Host
from driverforge_host.ports.modules import LoadedModule, Modules
from driverforge_host.ports.mounts import Mount, Mounts, Propagation
from driverforge_host.ports.processes import Holder, Processes, describe_holder
from driverforge_host.ports.services import Services
from driverforge_host.ports.sockets import Connection, Sockets
from driverforge_host.ports.subprocesses import Commands, Result

__all__ = [
    "NODES",
    "Clock",
    "Cluster",
    "Commands",
    "Connection",
    "Cuda",
    "Files",
    "Gpu",
    "Holder",
    "Host",
    "JsonObject",
    "LoadedModule",
    "Metadata",
    "Mig",
    "Modules",
    "Mount",
    "Mounts",
    "Nvml",
    "Processes",
    "Propagation",
    "Result",
    "Services",
    "Sockets",
    "bytes_of",
    "describe_holder",
    "text_of",
]
