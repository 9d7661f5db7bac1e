"""What docker and CRI-O say of themselves over HTTP, on their sockets.

HTTP/1.0: one request a connection, whose end is the end of the answer.
"""

from __future__ import annotations

import json
from dataclasses import replace

import tomllib

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_host.ports import Connection, Sockets
from driverforge_toolkit.runtime.find import cri

LIMIT = 4 << 20
CHUNK = 65536


def get(connection: Connection, path: str, *, who: str) -> bytes:
    """The whole answer to GET `path`; `who` is asked, for messages. Raises Unavailable where none comes."""
    connection.send(f"GET {path} HTTP/1.0\r\nHost: {who}\r\n\r\n".encode())
    data = b""
    while len(data) < LIMIT:
        try:
            part = connection.receive(CHUNK)
        except DriverforgeError as error:
            raise Unavailable(
                f"{who} does not answer GET {path}", details=[error.brief, *error.details]
            ) from error
        if not part:
            return data
        data += part
    raise Unavailable(f"the answer of {who} to GET {path} is too long")


def body_of(answer: bytes, path: str, *, who: str) -> bytes:
    """The body of an HTTP/1.x answer. Raises Unavailable where it is none with status 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0].decode("latin-1")
    words = line.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or words[1] != "200":
        raise Unavailable(
            f"{who} does not answer GET {path}", details=[line or "the connection ended without an answer"]
        )
    return body


def docker_status(sockets: Sockets, path: str, *, timeout: float = 10.0) -> cri.RuntimeStatus:
    """Ask the docker behind the socket `path` for GET /info (docs.docker.com, "System information").

    Raises Unavailable with what it said.
    """
    with sockets.connect(path, timeout=timeout) as connection:
        answer = get(connection, "/info", who="docker")
        pid = connection.sender_pid() or connection.peer_pid()
    return parse_info(answer, pid)


def parse_info(answer: bytes, pid: int) -> cri.RuntimeStatus:
    """The status in an HTTP/1.0 answer to GET /info. Raises Unavailable for anything else."""
    body = body_of(answer, "/info", who="docker")
    try:
        info = json.loads(body)
        runtimes = info.get("Runtimes") or {}
        handlers = {str(name): str(table.get("path") or "") for name, table in sorted(runtimes.items())}
        default, version = str(info.get("DefaultRuntime") or ""), str(info.get("ServerVersion") or "")
    except (ValueError, AttributeError, RecursionError) as error:
        raise Unavailable(
            "docker's answer to GET /info cannot be read", details=[f"{error}: {body[:200]!r}"]
        ) from error
    return cri.RuntimeStatus(pid=pid, name="docker", version=version, handlers=handlers, default=default)


def crio_status(sockets: Sockets, path: str, *, timeout: float = 5.0) -> cri.RuntimeStatus:
    """Ask the CRI-O behind the socket `path`, for GET /config too.

    The runtime interface lists handlers since 1.30 (cri-o/cri-o#7765), by name alone. `/config` is what `crio
    status config` prints, with programs and the default, in older releases too (cri-o/cri-o,
    server/inspect.go, internal/client/client.go). Both tell what CRI-O read last; pods get what it read at
    its start (`backends/crio.py`).

    One that tells no configuration is asked for its handlers' names, and believed where it lists none.
    Raises Unavailable where its runtime interface does not answer.
    """
    found = cri.status(sockets, path, timeout=timeout)
    try:
        with sockets.connect(path, timeout=timeout) as connection:
            answer = get(connection, "/config", who="crio")
        return parse_config(answer, found)
    except Unavailable:
        return replace(found, lists=bool(found.handlers))


def parse_config(answer: bytes, found: cri.RuntimeStatus) -> cri.RuntimeStatus:
    """`found`, with the handlers of an answer to GET /config. Raises Unavailable for anything else."""
    body = body_of(answer, "/config", who="crio")
    try:
        runtime = tomllib.loads(body.decode())["crio"]["runtime"]
        tables = sorted(runtime["runtimes"].items())
        handlers: dict[str, str | None] = {
            str(name): str(table.get("runtime_path", "")) for name, table in tables
        }
        return replace(found, handlers=handlers, default=str(runtime.get("default_runtime", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unavailable("CRI-O's answer to GET /config cannot be read", details=[repr(error)]) from error
