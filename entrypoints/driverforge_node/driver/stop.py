"""The way out: our daemons stop, the root is unmounted, the modules are unloaded; a driver in use stays, with every holder named."""

from __future__ import annotations

from dataclasses import replace

from driverforge_core.errors import InUse
from driverforge_node import log
from driverforge_node.driver.facts import Wanted
from driverforge_node.driver.loop import drive
from driverforge_node.driver.observe import observe
from driverforge_node.driver.use import evidence
from driverforge_node.host.ports import Host


def stop(host: Host, wanted: Wanted) -> int:
    """Exit status 0: a driver in use that stays is how it should be, so it is a warning with every holder, not a failure."""
    stopped = replace(wanted, goal="stopped")
    try:
        left = drive(host, stopped).left
    except InUse as error:  # somebody opened the GPU between our look and rmmod
        left = evidence(observe(host, stopped)) or error.details
    if left:
        log.warning("the driver stays loaded: it is in use", driver=wanted.driver)
        for line in left:
            log.warning(line)
        return 0
    log.info("stopped: the driver is unloaded, its root unmounted")
    return 0
