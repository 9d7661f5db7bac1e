"""The releases of a toolkit on the node: where they are, which one is in force, which nothing needs.

INSTALL_DIR/releases/<version>-<hash>/ has a release's files; INSTALL_DIR/toolkit is a link to the one in
force.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import Files, Holder, Host, describe_holder
from driverforge_toolkit.toolkit.wrapper import CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Paths of an installation.

    All are the node's own; upstream asks for INSTALL_DIR to have the same path in container and node.
    """

    install_dir: str

    @property
    def toolkit(self) -> str:
        return f"{self.install_dir}/toolkit"

    @property
    def releases(self) -> str:
        return f"{self.install_dir}/releases"

    @property
    def config(self) -> str:
        return f"{self.toolkit}/{CONFIG}"

    def release(self, name: str) -> str:
        return f"{self.releases}/{name}"

    def current(self, node: Files) -> str:
        """The name of the release in force, '' where INSTALL_DIR/toolkit is no link to one of ours."""
        folder, _, name = node.resolve(self.toolkit).rpartition("/")
        return (
            name
            if node.is_link(self.toolkit)
            and folder == node.resolve(self.releases)
            and node.is_dir(self.toolkit)
            else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitRelease:
    """A folder below releases/, and who uses it."""

    name: str
    current: bool
    users: tuple[Holder, ...]

    @property
    def needed(self) -> bool:
        return self.current or bool(self.users)


def releases_of(host: Host, layout: Layout) -> tuple[ToolkitRelease, ...]:
    """All releases of an installation.

    Needs the host's PID namespace to see every process.
    """
    current = layout.current(host.node)
    return tuple(
        ToolkitRelease(name=name, current=name == current, users=host.processes.users(f"/releases/{name}"))
        for name in host.node.list_dir(layout.releases)
    )


def describe_users(release: ToolkitRelease) -> str:
    """Who needs a release, for people."""
    if release.current:
        return "in force"
    return ", ".join(sorted({describe_holder(holder) for holder in release.users})) or "not used"


def remove_unused(host: Host, layout: Layout) -> tuple[str, ...]:
    """Remove the releases that nothing needs. Returns the names of those that went.

    While no release of ours is in force, nothing goes.
    """
    gone = []
    found = releases_of(host, layout)
    if not any(release.current for release in found):
        return ()
    for release in found:
        if release.needed:
            continue
        try:
            _remove(host.node, layout.release(release.name))
        except DriverforgeError as error:
            # a mount in it, an immutable file: no reason to keep the others, or not to start
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
