"""The backend of each kind of runtime."""

from __future__ import annotations

from driverforge_core.errors import UsageError
from driverforge_node.runtime import containerd, crio, docker
from driverforge_node.runtime.model import Backend, Kind

BACKENDS: dict[Kind, Backend] = {"containerd": containerd, "crio": crio, "docker": docker}


def backend(kind: str) -> Backend:
    """Raises UsageError for a runtime that there is no backend for."""
    for known, found in BACKENDS.items():
        if known == kind:
            return found
    raise UsageError(f"unrecognized runtime '{kind}'", resolution=f"give one of {', '.join(BACKENDS)}")
