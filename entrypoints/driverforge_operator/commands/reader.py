"""Where the reading commands read: a live cluster, or a dump of one."""

from __future__ import annotations

from pathlib import Path

from driverforge_operator.cluster.api import connect
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.ports import Inspector


def inspector(folder: Path | None, namespace: str) -> Inspector:
    return Dump(folder) if folder else connect(namespace)
