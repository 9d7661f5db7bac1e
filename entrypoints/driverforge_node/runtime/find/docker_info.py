"""What docker says it runs with: GET /info of the Engine API, over its socket.

Source: docs.docker.com, "System information".
"""

from __future__ import annotations

import json

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_node.ports import Connection, Sockets
from driverforge_node.runtime.find.cri import RuntimeStatus

REQUEST = b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n"
LIMIT = 4 << 20
CHUNK = 65536


def status(sockets: Sockets, path: str, *, timeout: float = 10.0) -> RuntimeStatus:
    """Ask the docker behind the socket `path`. Raises Unavailable with what it said."""
    with sockets.connect(path, timeout=timeout) as connection:
        connection.send(REQUEST)
        answer = _all(connection)
        pid = connection.sender_pid() or connection.peer_pid()
    return parse(answer, pid)


def parse(answer: bytes, pid: int) -> RuntimeStatus:
    """The status in an HTTP/1.0 answer to GET /info. Raises Unavailable for anything else."""
    head, _, body = answer.partition(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0].decode("latin-1")
    words = line.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or words[1] != "200":
        raise Unavailable(
            "docker does not answer GET /info", details=[line or "the connection ended without an answer"]
        )
    try:
        info = json.loads(body)
        runtimes = info.get("Runtimes") or {}
        handlers = {str(name): str(table.get("path") or "") for name, table in sorted(runtimes.items())}
        default, version = str(info.get("DefaultRuntime") or ""), str(info.get("ServerVersion") or "")
    except (ValueError, AttributeError) as error:
        raise Unavailable(
            "docker's answer to GET /info cannot be read", details=[f"{error}: {body[:200]!r}"]
        ) from error
    return RuntimeStatus(pid=pid, name="docker", version=version, handlers=handlers, default=default)


def _all(connection: Connection) -> bytes:
    data = b""
    while len(data) < LIMIT:
        try:
            part = connection.receive(CHUNK)
        except DriverforgeError as error:
            raise Unavailable(
                "docker does not answer GET /info", details=[error.brief, *error.details]
            ) from error
        if not part:
            return data
        data += part
    raise Unavailable("docker's answer to GET /info is too long")
