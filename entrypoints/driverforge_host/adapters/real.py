"""The real system as one value."""

from __future__ import annotations

import os

from driverforge_host.adapters.clock import SignalClock
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.modules import KernelModules
from driverforge_host.adapters.mounts import KernelMounts
from driverforge_host.adapters.processes import KernelProcesses
from driverforge_host.adapters.services import SystemdServices
from driverforge_host.adapters.subprocesses import SystemCommands
from driverforge_host.ports import Files, Host

EXPLICIT = "/host"
BY_PID_1 = "/proc/1/root"


def node_root(files: Files) -> str:
    """Where this process finds the host's root.

    First comes a mount at /host that may be written, then PID 1's root (hostPID), then a read-only /host, as
    NVIDIA's toolkit pod has it, and last our own root. Without hostPID, /proc/1/root is the container's own
    root, which is the same as '/'.
    """
    explicit = files.exists(f"{EXPLICIT}/etc/os-release") or files.is_link(f"{EXPLICIT}/etc/os-release")
    if explicit and not files.read_only(EXPLICIT):
        return EXPLICIT
    behind = files.identity(BY_PID_1)
    if behind not in (None, files.identity("/")):
        return BY_PID_1
    return EXPLICIT if explicit else "/"


def real_host() -> Host:
    """All ports over the running system."""
    clock = SignalClock()
    files = RootedFiles()
    commands = SystemCommands(os.environ, clock.stop_requested)
    root = node_root(files)
    enter = () if root == "/" else ("nsenter", "--target", "1", "--mount", "--")
    return Host(
        commands=commands,
        files=files,
        node=RootedFiles(root),
        mounts=KernelMounts(),
        modules=KernelModules(commands, files),
        processes=KernelProcesses(),
        services=SystemdServices(commands, enter),
        clock=clock,
        environ=dict(os.environ),
    )
