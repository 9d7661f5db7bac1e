"""The life of `driverctl toolkit install` and `gc`: each alone on this node's toolkit."""

from __future__ import annotations

from driverforge_host.ports import Host
from driverforge_toolkit.toolkit import install, releases
from driverforge_toolkit.toolkit.install import InstalledRelease
from driverforge_toolkit.toolkit.release_plan import layout_of, wanted_release
from driverforge_toolkit.toolkit.releases import ToolkitRelease
from driverforge_toolkit.toolkit.settings import ToolkitSettings


def install_toolkit(host: Host, settings: ToolkitSettings) -> InstalledRelease:
    """Install the release that the settings ask for.

    Raises as `install.install_release`, and TemporaryFailure while another driverctl works on this toolkit.
    """
    with install.exclusive_toolkit(host):
        return install.install_release(host, wanted_release(host, settings))


def collect_toolkit(
    host: Host, settings: ToolkitSettings
) -> tuple[tuple[str, ...], tuple[ToolkitRelease, ...]]:
    """Remove the releases that nothing uses.

    Returns the names of those that went, and those that stay because something uses them.
    """
    layout = layout_of(settings)
    with install.exclusive_toolkit(host):
        gone = releases.remove_unused(host, layout)
    left = tuple(release for release in releases.releases_of(host, layout) if not release.current)
    return gone, left
