"""The backend of each kind of runtime."""

from __future__ import annotations

from driverforge_node.runtime import containerd, crio, docker
from driverforge_node.runtime.model import Backend, Kind

BACKENDS: dict[Kind, Backend] = {"containerd": containerd, "crio": crio, "docker": docker}
