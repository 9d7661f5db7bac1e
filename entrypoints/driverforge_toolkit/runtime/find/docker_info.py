"""What docker says it runs with: GET /info of the Engine API, over its socket.

Source: docs.docker.com, "System information".
"""

from __future__ import annotations

import json

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Sockets
from driverforge_toolkit.runtime.find import http
from driverforge_toolkit.runtime.find.cri import RuntimeStatus


def status(sockets: Sockets, path: str, *, timeout: float = 10.0) -> RuntimeStatus:
    """Ask the docker behind the socket `path`. Raises Unavailable with what it said."""
    with sockets.connect(path, timeout=timeout) as connection:
        answer = http.get(connection, "/info", who="docker")
        pid = connection.sender_pid() or connection.peer_pid()
    return parse(answer, pid)


def parse(answer: bytes, pid: int) -> RuntimeStatus:
    """The status in an HTTP/1.0 answer to GET /info. Raises Unavailable for anything else."""
    body = http.body_of(answer, "/info", who="docker")
    try:
        info = json.loads(body)
        runtimes = info.get("Runtimes") or {}
        handlers = {str(name): str(table.get("path") or "") for name, table in sorted(runtimes.items())}
        default, version = str(info.get("DefaultRuntime") or ""), str(info.get("ServerVersion") or "")
    except (ValueError, AttributeError, RecursionError) as error:
        raise Unavailable(
            "docker's answer to GET /info cannot be read", details=[f"{error}: {body[:200]!r}"]
        ) from error
    return RuntimeStatus(pid=pid, name="docker", version=version, handlers=handlers, default=default)
