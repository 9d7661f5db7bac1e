"""A server of raw bytes on the loopback: it says what a test makes it say, whatever HTTP asks for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Conversation = Callable[[socket.socket, str], object]
"""Is given each connection with the head of its first request, and may talk until the client has gone."""


@dataclass(slots=True)
class WireServer:
    """`heads` are the requests' heads, one for each connection."""

    port: int
    heads: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, header: str) -> list[str]:
        """The values of a header (in lower case), one for each connection, '' where it was not there."""
        lines = [dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:]) for head in self.heads]
        return [found.get(header, "") for found in lines]


@contextmanager
def talking(conversation: Conversation) -> Iterator[WireServer]:
    """A server while the block runs; connections that are open then are cut."""
    open_ones: list[socket.socket] = []
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = WireServer(port=listening.getsockname()[1])

        def talk(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                head = b""
                # byte by byte: what comes behind it is the conversation's
                while not head.endswith(b"\r\n\r\n") and (piece := connection.recv(1)):
                    head += piece
                if head:
                    server.heads.append(head.decode().partition("\r\n\r\n")[0])
                    conversation(connection, server.heads[-1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection = listening.accept()[0]
                    open_ones.append(connection)
                    threads.append(threading.Thread(target=talk, args=(connection,)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in open_ones:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def answer(body: bytes = b"", *, status: str = "200 OK", length: int | None = None, **headers: str) -> bytes:
    """An answer's bytes. `length` is what its Content-Length claims; header names have _ for -."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
