"""Names of objects.

They are those of NVIDIA's operator, so that its users' dashboards, and its own pods, find what they know.
"""

from __future__ import annotations

import re

from driverforge_core.osid import OsId

# Kubernetes' alphabet for names that are no words (apimachinery, util/rand)
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_DAEMONSET_LIMIT, _ACCOUNT_LIMIT = 63, 253
_ARCHITECTURE = re.compile(r"x86_64(?:_64k)?|aarch64(?:_64k)?")
_LARGE_PAGES = re.compile(r"(?:x86_64|aarch64)_64k")
_POLICY_DRIVER = "nvidia-driver-daemonset"


def fnv1a(data: bytes) -> int:
    """FNV-1a of 32 bits (draft-eastlake-fnv)."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def driver_daemonset(driver_type: str, os: OsId, *parts: str) -> str:
    """The name of a pool's DaemonSet: 'nvidia-gpu-driver-ubuntu22.04-67cc6dbb79'.

    `parts` tell pools of one OS apart, the first is the resource's uid. Where it were too long, the OS gives
    way.
    """
    end = _hash("-".join(filter(None, parts)))
    return f"{f'nvidia-{driver_type}-driver-{os.tag}'[: _DAEMONSET_LIMIT - len(end) - 1]}-{end}"


def policy_daemonset(os: OsId, *parts: str) -> str:
    """The name of a pool's DaemonSet that a ClusterPolicy asks for.

    'nvidia-driver-daemonset-ubuntu22.04', 'nvidia-driver-daemonset-5.15.0-131-generic-ubuntu22.04'.
    """
    told = [f"{kernel_label(part)}{_pages(part)}" for part in parts if part]
    name = "-".join((_POLICY_DRIVER, *told, os.tag))
    if len(name) <= _DAEMONSET_LIMIT:
        return name
    end = _hash(name)
    return f"{name[: _DAEMONSET_LIMIT - len(end) - 1]}-{end}"


def driver_account(driver_type: str, resource: str, os: OsId) -> str:
    """The name of a pool's service account, roles and bindings."""
    start = "nvidia-vgpu-manager" if driver_type == "vgpu-host-manager" else f"nvidia-{driver_type}-driver"
    return f"{start}-{resource}-{os.tag}"[:_ACCOUNT_LIMIT]


def kernel_label(kernel: str) -> str:
    """A kernel as a name may have it: without its architecture, in small letters."""
    return _ARCHITECTURE.sub("", kernel).replace("_", ".").strip(".").lower()


def _pages(kernel: str) -> str:
    """What tells a kernel of 64 KiB pages from the other one of its version, where its label does not."""
    return "-64k" if _LARGE_PAGES.search(kernel) else ""


def _hash(told: str) -> str:
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(fnv1a(told.encode())))
