"""Who uses the driver, and in which order its modules can go."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.errors import InUse
from driverforge_core.names import NVIDIA_MODULES
from driverforge_node.driver.facts import Facts
from driverforge_node.host.ports import Holder, LoadedModule


def removal_order(loaded: Mapping[str, LoadedModule]) -> tuple[str, ...]:
    """Modules so that each one comes after all that depend on it, by the kernel's own dependency graph (/sys/module/*/holders)."""
    order: list[str] = []
    rest = dict(loaded)
    while rest:
        free = sorted(
            name for name, module in rest.items() if not any(holder in rest for holder in module.holders)
        )
        if not free:  # the kernel has no cycles; a table read while modules came and went may
            return (*order, *sorted(rest))
        order += free
        for name in free:
            del rest[name]
    return tuple(order)


def unexplained(facts: Facts) -> dict[str, int]:
    """References to NVIDIA's modules beyond those of the modules that depend on them."""
    counts = {
        name: module.refcount - len(module.holders)
        for name, module in facts.loaded.items()
        if name in NVIDIA_MODULES
    }
    return {name: count for name, count in counts.items() if count > 0}


def foreign_modules(facts: Facts) -> tuple[str, ...]:
    """Loaded modules that depend on NVIDIA's and are not NVIDIA's (gdrdrv, nvidia_fs): somebody loaded them on purpose."""
    return tuple(sorted(name for name in facts.loaded if name not in NVIDIA_MODULES))


def evidence(facts: Facts) -> tuple[str, ...]:
    """A line for each thing that holds the driver; empty when nothing does.

    References that no process explains count only when no daemon of ours runs: those references may be its own.
    """
    if not facts.loaded:
        return ()
    lines = [describe(holder) for holder in facts.holders]
    lines += [f"module {name} depends on the driver" for name in foreign_modules(facts)]
    if not lines and not facts.daemons:
        lines += [
            f"module {name} has {count} references that no visible process explains"
            for name, count in unexplained(facts).items()
        ]
    return tuple(lines)


def describe(holder: Holder) -> str:
    where = f", container {holder.container[:12]}" if holder.container else ", on the host"
    pod = f", pod {holder.pod}" if holder.pod else ""
    return f"process {holder.pid} ({holder.command}{where}{pod}) holds {holder.path}"


def in_use(facts: Facts) -> InUse | None:
    """The refusal, with every holder named; None when the modules can go."""
    lines = evidence(facts)
    if not lines:
        return None
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "?"
    return InUse(
        f"the NVIDIA driver {version} is in use",
        details=lines,
        resolution="end these processes (drain the pods), then start again; no module was unloaded",
    )
