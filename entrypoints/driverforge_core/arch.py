"""The two names of an architecture.

Debian and OCI say amd64 and arm64, the kernel and RPM say x86_64 and aarch64.
"""

from __future__ import annotations

from driverforge_core.errors import InputError

ARCHITECTURES = ("amd64", "arm64")

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_ARCHITECTURES = {machine: arch for arch, machine in _MACHINES.items()}


def to_machine(arch: str) -> str:
    """'x86_64' for 'amd64'; a machine name is returned as it is. InputError for any other text."""
    return _MACHINES[to_arch(arch)]


def to_arch(machine: str) -> str:
    """'amd64' for 'x86_64' (uname -m); an architecture is returned as it is.

    InputError for any other text.
    """
    arch = _ARCHITECTURES.get(machine, machine)
    if arch not in _MACHINES:
        raise InputError(
            f"{machine!r} is not a supported architecture", resolution="use amd64 (x86_64) or arm64 (aarch64)"
        )
    return arch
