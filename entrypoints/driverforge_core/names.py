"""Names of NVIDIA's kernel modules and of their two kinds."""

from __future__ import annotations

NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
"""As the kernel knows them.

The order is one in which they can be inserted; on a node, the kernel's own graph decides.
"""

PEERMEM = "nvidia_peermem"
"""Serves network devices, not GPUs: a driver without it is whole."""

MODULE_TYPES = ("open", "proprietary")

_SUFFIXES = (".xz", ".gz", ".zst")


def normalise(name: str) -> str:
    """The kernel's name of a module given by file name or with hyphens: 'nvidia-uvm.ko.xz' is 'nvidia_uvm'.

    The kernel turns - into _ (KBUILD_MODNAME, scripts/Makefile.lib); kmod accepts both.
    """
    base = name.rpartition("/")[2]
    for suffix in _SUFFIXES:
        base = base.removesuffix(suffix)
    return base.removesuffix(".ko").replace("-", "_")
