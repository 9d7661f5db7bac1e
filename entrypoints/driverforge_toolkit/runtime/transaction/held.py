"""Handlers that stay for the pods that use them: without, their runtime could not end these.

That is CRI-O: it cannot stop or remove a container whose handler is gone. It looks the handler up by its name
for each of these (cri-o/cri-o, internal/oci/oci.go, getRuntimeHandler), so that pods stay in Terminating
after their handler was taken out (cri-o/cri-o#9521, NVIDIA/nvidia-container-toolkit#1360). containerd and
docker go by what they keep with each container, and the toolkit's programs stay on the node.

The runtime interface does not tell a pod's handler here. The files from which CRI-O restores its pods at each
start do (internal/lib/container_server.go, LoadSandbox), also while it is down.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import Files, Host, text_of
from driverforge_toolkit.runtime.backends.effective import effective_configuration
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup
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
    return pods_by_handler(host.node, view) if daemon.kind == "crio" else {}


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


STORAGE = "/var/lib/containers/storage"  # containers-storage.conf(5), graphroot
ANNOTATION = "io.kubernetes.cri-o."  # of each container, from CRI-O itself
HANDLER = f"{ANNOTATION}RuntimeHandler"
KIND, SANDBOX = f"{ANNOTATION}ContainerType", "sandbox"
NAMESPACE, NAME = f"{ANNOTATION}Namespace", f"{ANNOTATION}KubeName"


def pods_by_handler(node: Files, effective: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The pods that CRI-O has, running or not, by the handler that they name: 'namespace/name'."""
    root = lookup(effective, ("crio", "root"))
    found: dict[str, set[str]] = {}
    for sandbox in _sandboxes(node, str(root) if root not in (REMOVED, "") else STORAGE):
        handler = str(sandbox.get(HANDLER) or "")
        pod = f"{sandbox.get(NAMESPACE, '?')}/{sandbox.get(NAME, '?')}"
        found.setdefault(handler, set()).add(pod)
    return {handler: tuple(sorted(pods)) for handler, pods in found.items() if handler}


def _sandboxes(node: Files, root: str) -> Iterator[Mapping[str, object]]:
    """The annotations of each pod's sandbox."""
    for driver in node.list_dir(root):
        folder = f"{root}/{driver}"
        for name in node.list_dir(folder) if driver.endswith("-containers") else ():
            found = _annotations(text_of(node, f"{folder}/{name}/userdata/config.json"))
            if found.get(KIND) == SANDBOX:
                yield found


def _annotations(spec: str) -> Mapping[str, object]:
    """Those of an OCI spec; {} where it is none: a container that is being made or removed."""
    try:
        found = json.loads(spec).get("annotations")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
