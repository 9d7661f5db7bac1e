"""Who uses the driver, and in which order its modules can be removed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.errors import InUse, Unsupported
from driverforge_core.names import NVIDIA_MODULES
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts
from driverforge_host.ports import LoadedModule, describe_holder


def removal_order(loaded: Mapping[str, LoadedModule]) -> tuple[str, ...]:
    """The modules in an order in which each one comes after all that depend on it.

    It is the kernel's own dependency graph (/sys/module/*/holders), not a list of names.
    """
    order: list[str] = []
    rest = dict(loaded)
    while rest:
        free = sorted(
            name for name, module in rest.items() if not any(holder in rest for holder in module.holders)
        )
        # The kernel has no cycles. A table that was read while modules came and went may show one.
        if not free:
            return (*order, *sorted(rest))
        order += free
        for name in free:
            del rest[name]
    return tuple(order)


def unexplained_references(facts: DriverFacts) -> dict[str, int]:
    """Module -> its references beyond dependent modules' and our daemons'; NVIDIA's modules only."""
    counts = {
        name: module.refcount - len(module.holders) - facts.daemon_references.get(name, 0)
        for name, module in facts.loaded.items()
        if name in NVIDIA_MODULES
    }
    return {name: count for name, count in counts.items() if count > 0}


def foreign_modules(facts: DriverFacts) -> tuple[str, ...]:
    """Loaded modules that depend on the driver and are no part of it (gdrdrv, nvidia_fs)."""
    return tuple(sorted(name for name in facts.loaded if name not in NVIDIA_MODULES))


def describe_use(facts: DriverFacts) -> tuple[str, ...]:
    """A line for each process or module that uses the driver; empty where nothing does."""
    if not facts.loaded:
        return ()
    lines = [describe_holder(holder) for holder in facts.holders]
    lines += [f"module {name} depends on the driver" for name in foreign_modules(facts)]
    if not lines:
        lines += [
            f"module {name} has {count} references that no visible process explains"
            for name, count in unexplained_references(facts).items()
        ]
    return tuple(lines)


def in_use_error(facts: DriverFacts) -> InUse | None:
    """The refusal to unload, with everybody who uses the driver; None where the modules can go."""
    lines = describe_use(facts)
    if not lines:
        return None
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "?"
    return InUse(
        f"the NVIDIA driver {version} is in use",
        details=lines,
        resolution="end these processes (drain the pods), then start again; no module was unloaded",
    )


def host_driver_error(facts: DriverFacts) -> Unsupported | None:
    """The refusal to replace or to unload a driver that somebody else loaded; None where there is none.

    A driver container, ours and NVIDIA's, leaves the digest of its configuration. A driver without one came
    from a package of the host, which would not know that it is gone; or from one of NVIDIA's precompiled
    images, which leave none.
    """
    if not facts.loaded or facts.digest or facts.journal.loading:
        return None
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "of unknown version"
    return Unsupported(
        f"the loaded NVIDIA driver {version} is the host's: no driver container loaded it",
        details=[
            f"loaded: {' '.join(sorted(facts.loaded))}",
            f"neither {paths.DIGEST} nor {paths.JOURNAL} names a configuration",
        ],
        resolution="keep it, and leave this node out "
        f"(kubectl label node NAME {DRIVER_SWITCH}={PRE_INSTALLED}); "
        "or remove its package from the host, and have it replaced "
        "with --take-over (TAKE_OVER_HOST_DRIVER=true)",
    )
