"""One driverctl at a time changes a node's runtime, be it from a pod, from a shell in it, or on the node itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driverforge_core.errors import NotPermitted, TemporaryFailure
from driverforge_node.host.ports import Host
from driverforge_node.runtime.journal import FOLDER


@contextmanager
def exclusive(host: Host) -> Iterator[None]:
    """Raises TemporaryFailure when another instance works on this node's runtime, NotPermitted on a node that cannot be written."""
    try:
        host.node.make_dirs(FOLDER, mode=0o700)
    except NotPermitted as error:
        raise NotPermitted(
            f"{FOLDER} of the node cannot be written, and no file is changed without a journal of it",
            details=[error.brief, *error.details],
            resolution="where the node's root is read-only (Talos, Bottlerocket), put the handlers into its own machine configuration",
        ) from error
    with host.node.lock(f"{FOLDER}/lock", text="driverctl runtime\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl changes this node's runtime now",
                resolution="wait for it to end, then run this again",
            )
        yield
