"""GET over a daemon's socket, in HTTP/1.0: one request a connection, whose end is the end of the answer."""

from __future__ import annotations

from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_host.ports import Connection

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
