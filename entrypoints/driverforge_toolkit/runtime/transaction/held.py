"""Handlers that stay for the pods that use them: without, their runtime could not end these.

That is CRI-O (`backends/crio_pods.py`). containerd and docker go by what they keep with each container, and
the toolkit's programs stay on the node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import Host
from driverforge_toolkit.runtime.backends import crio_pods
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.model import Handler, RuntimeDaemon
from driverforge_toolkit.runtime.transaction.observed import ObservedRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHandlers:
    """Handlers of ours that stay, and a sentence for each."""

    handlers: tuple[Handler, ...] = ()
    notes: tuple[str, ...] = ()


def needed_handlers(
    host: Host, daemon: RuntimeDaemon, view: Mapping[str, object]
) -> dict[str, tuple[str, ...]]:
    """The handlers without which the daemon could not end pods that it has, with these pods.

    `view` is what the daemon makes of its files.
    """
    return crio_pods.pods_by_handler(host.node, view) if daemon.kind == "crio" else {}


def held_handlers(
    host: Host, seen: ObservedRuntime, clean: Mapping[str, object], *, besides: Collection[str] = ()
) -> HeldHandlers:
    """What of our earlier change stays for the pods that are there.

    `clean` is the daemon's view without anything of ours; `besides` are handlers that it is to have anyway.
    """
    ours = dict(seen.entry.programs) if seen.entry else {}
    there = {*besides, *seen.edit.handlers(clean)}
    needed = {
        name: pods
        for name, pods in needed_handlers(host, seen.daemon, clean).items()
        if name in ours and name not in there
    }
    return HeldHandlers(
        handlers=tuple(Handler(name=name, binary=ours[name]) for name in needed),
        notes=tuple(held_note(name, pods, "apply" if besides else "revert") for name, pods in needed.items()),
    )


def held_note(name: str, pods: Sequence[str], again: str) -> str:
    """`again` is what is to be run once more."""
    return (
        f"the handler {name} stays: CRI-O could not stop the pods that use it ({', '.join(pods)}); when they "
        f"are gone, `driverctl runtime {again}` takes it out"
    )


def pods_that_lose_theirs(host: Host, seen: ObservedRuntime) -> tuple[str, ...]:
    """What becomes of pods whose handler goes with a change that may keep the daemon down."""
    if seen.daemon.kind != "crio":
        return ()
    try:
        view = effective_configuration(host, seen.daemon, seen.clean, seen.disk)
    except DriverforgeError:  # its program is broken, or does not take the files: the usual place counts
        view = {}
    needed = needed_handlers(host, seen.daemon, view)
    return tuple(
        f"the handler {name} goes, and until `driverctl runtime apply` brings it back CRI-O cannot stop the "
        f"pods that use it ({', '.join(needed[name])})"
        for name in (seen.entry.names if seen.entry else ())
        if name in needed
    )
