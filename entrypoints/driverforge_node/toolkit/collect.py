"""Releases that nothing needs any more: not in force, and no process of the node stands on them."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.errors import DriverforgeError
from driverforge_node import log
from driverforge_node.driver.use import describe
from driverforge_node.host.ports import Files, Holder, Host
from driverforge_node.toolkit.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A folder below releases/, and who uses it."""

    name: str
    current: bool
    users: tuple[Holder, ...]

    @property
    def needed(self) -> bool:
        return self.current or bool(self.users)


def releases(host: Host, layout: Layout) -> tuple[Release, ...]:
    """All releases of an installation. Sees every process only with the host's PID namespace."""
    current = layout.current(host.node)
    return tuple(
        Release(name=name, current=name == current, users=host.processes.users(f"/releases/{name}"))
        for name in host.node.list_dir(layout.releases)
    )


def describe_users(release: Release) -> str:
    """Who needs a release, for people."""
    if release.current:
        return "in force"
    return ", ".join(sorted({describe(holder) for holder in release.users})) or "not used"


def collect(host: Host, layout: Layout) -> tuple[str, ...]:
    """Remove what is not needed; the names that went. With no release of ours in force nothing goes."""
    gone = []
    found = releases(host, layout)
    if not any(release.current for release in found):
        return ()
    for release in found:
        if release.needed:
            continue
        try:
            _remove(host.node, layout.release(release.name))
        except (
            DriverforgeError
        ) as error:  # a mount in it, an immutable file: no reason to keep the others, or not to start
            log.warning(
                "a release of the toolkit stays",
                release=release.name,
                why=", ".join((error.brief, *error.details)),
            )
            continue
        log.info("removed a release of the toolkit that nothing uses", release=release.name)
        gone.append(release.name)
    return tuple(gone)


def _remove(node: Files, path: str) -> None:
    if node.is_link(path):
        node.remove(path)
    else:
        node.remove_tree(path)
