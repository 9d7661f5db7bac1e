"""Which process a PID is: with its start and the system's, so that no later one is taken for it."""

from __future__ import annotations

from driverforge_host.ports import Files, Host, text_of
from driverforge_toolkit.runtime.model import ProcessInstance

BOOT_ID = "/proc/sys/kernel/random/boot_id"  # random(4): another one after each start of the kernel


def boot_id(node: Files) -> str:
    """The kernel's name for the time since its start; '' where there is no /proc."""
    return text_of(node, BOOT_ID).strip()


def process_instance(host: Host, pid: int | str) -> ProcessInstance:
    """The process with that PID, or ourselves ('self'). PID 0 where it does not run."""
    boot = boot_id(host.node)
    try:
        number, _, rest = host.node.read_text(f"/proc/{pid}/stat").partition(" ")
    except FileNotFoundError:
        return ProcessInstance(boot=boot)
    return ProcessInstance(pid=int(number), start=int(rest.rpartition(")")[2].split()[19]), boot=boot)
