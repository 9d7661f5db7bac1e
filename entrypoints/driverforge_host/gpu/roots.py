"""Where the driver is: on the host, and as this process sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_host.gpu.environment import first
from driverforge_host.ports import Files, Host

CONTAINERS = "/run/nvidia/driver"  # where a driver's container publishes its root


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRoots:
    """The driver's files and the folder that has dev/, each as the host and as this process calls it.

    Upstream's names: DRIVER_ROOT, DRIVER_ROOT_CTR_PATH, DEV_ROOT, DEV_ROOT_CTR_PATH. An empty one follows the
    one before it.
    """

    driver: str = "/"  # the driver's files, as the host calls the folder
    driver_here: str = ""  # the same folder in this process
    dev: str = ""  # the folder that has dev/, as the host calls it
    dev_here: str = ""

    @property
    def driver_seen(self) -> str:
        return self.driver_here or self.driver

    @property
    def dev_host(self) -> str:
        return self.dev or self.driver

    @property
    def dev_seen(self) -> str:
        """The folder that has dev/, as this process calls it.

        Where it is the driver root on the host, it is the driver root here, too.
        """
        return self.dev_here or (self.dev if self.dev and self.dev != self.driver else self.driver_seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """The files of these roots, each folder as a root of its own."""

    roots: DriverRoots
    system: Files  # /proc and /sys
    driver: Files
    dev: Files


def view_of(host: Host, roots: DriverRoots) -> DriverView:
    return DriverView(
        roots=roots,
        system=host.files,
        driver=host.files.under(roots.driver_seen),
        dev=host.files.under(roots.dev_seen),
    )


def driver_root_of(environ: Mapping[str, str], *names: str) -> str:
    """The driver root as the host calls it: the first of these variables that is set, else the usual place.

    A pod that sees the root at another path has a driver from a container. `driverctl toolkit run` takes it
    so, too.
    """
    return first(environ, names)[1] or (CONTAINERS if environ.get("DRIVER_ROOT_CTR_PATH") else "/")


def below(root: str, path: str) -> str:
    return root.rstrip("/") + path
