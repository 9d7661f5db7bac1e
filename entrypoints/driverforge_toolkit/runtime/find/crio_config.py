"""What a running CRI-O says it runs with: GET /config, on the socket of its runtime interface.

The runtime interface lists handlers since 1.30 (cri-o/cri-o#7765), by name alone. `/config` is what `crio
status config` prints, with programs and the default, in older releases too (cri-o/cri-o, server/inspect.go,
internal/client/client.go). Both tell what CRI-O read last; pods get what it read at its start
(`backends/crio.py`).
"""

from __future__ import annotations

from dataclasses import replace

import tomllib

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Sockets
from driverforge_toolkit.runtime.find import cri, http


def status(sockets: Sockets, path: str, *, timeout: float = 5.0) -> cri.RuntimeStatus:
    """Ask the CRI-O behind the socket `path`.

    One that tells no configuration is asked for its handlers' names, and believed where it lists none.
    Raises Unavailable where its runtime interface does not answer.
    """
    found = cri.status(sockets, path, timeout=timeout)
    try:
        with sockets.connect(path, timeout=timeout) as connection:
            answer = http.get(connection, "/config", who="crio")
        return parse(answer, found)
    except Unavailable:
        return replace(found, lists=bool(found.handlers))


def parse(answer: bytes, found: cri.RuntimeStatus) -> cri.RuntimeStatus:
    """`found`, with the handlers of an answer to GET /config. Raises Unavailable for anything else."""
    body = http.body_of(answer, "/config", who="crio")
    try:
        runtime = tomllib.loads(body.decode())["crio"]["runtime"]
        tables = sorted(runtime["runtimes"].items())
        handlers: dict[str, str | None] = {
            str(name): str(table.get("runtime_path", "")) for name, table in tables
        }
        return replace(found, handlers=handlers, default=str(runtime.get("default_runtime", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unavailable("CRI-O's answer to GET /config cannot be read", details=[repr(error)]) from error
