"""Where the driver is: on the host, and as this process sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime.environment import first

CONTAINERS = "/run/nvidia/driver"  # where a driver's container publishes its root


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Upstream's names of the four: DRIVER_ROOT, DRIVER_ROOT_CTR_PATH, DEV_ROOT, DEV_ROOT_CTR_PATH. Empty ones follow the one before."""

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
        """As we see it: its own path here, else that of the driver root where both are one on the host."""
        return self.dev_here or (self.dev if self.dev and self.dev != self.driver else self.driver_seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The files of these roots, each folder as a root of its own."""

    roots: Roots
    system: Files  # /proc and /sys
    driver: Files
    dev: Files


def view(host: Host, roots: Roots) -> View:
    return View(
        roots=roots,
        system=host.files,
        driver=host.files.under(roots.driver_seen),
        dev=host.files.under(roots.dev_seen),
    )


def driver_root_of(environ: Mapping[str, str], *names: str) -> str:
    """The driver root as the host calls it. A pod that sees it elsewhere has it from a container, as `driverctl toolkit run` takes it."""
    return first(environ, names)[1] or (CONTAINERS if environ.get("DRIVER_ROOT_CTR_PATH") else "/")


def joined(root: str, path: str) -> str:
    return root.rstrip("/") + path


def read(files: Files, path: str) -> str:
    """A text file; '' where there is none."""
    try:
        return files.read_text(path)
    except FileNotFoundError:
        return ""
