"""Where a toolkit lies on the node: INSTALL_DIR/releases/<version>-<hash>/, and INSTALL_DIR/toolkit, a link to the one in force."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_node.host.ports import Files
from driverforge_node.toolkit.wrapper import CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Paths of an installation. All are the node's own; upstream asks for INSTALL_DIR to have the same path in container and node."""

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
