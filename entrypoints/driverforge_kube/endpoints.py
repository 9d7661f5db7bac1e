"""Pages over HTTP, for the kubelet and Prometheus.

Anybody who reaches the pod may connect, so what a client can take is bounded: a few connections at a time,
each one's oldest ended for a new one, and seconds of silence.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from driverforge_core import log
from driverforge_core.errors import Unavailable

AT_ONCE = 8  # connections
SILENCE = 5.0  # seconds
CONTENT = "text/plain; version=0.0.4; charset=utf-8"

Page = Callable[[], tuple[bool, str]]
"""Says whether all is well (200, else 503), and the text."""


@contextmanager
def serving(address: tuple[str, int], pages: Mapping[str, Page], *, resolution: str = "") -> Iterator[int]:
    """Answer for as long as the block runs; yields the port. `pages` are by their paths.

    The host '' is all addresses, of IPv4 and IPv6; port 0 takes a free one. Raises Unavailable where the
    port is taken, with `resolution`.
    """
    try:
        server = _Server(address, pages)
    except OSError as error:
        raise Unavailable(
            f"port {address[1]} cannot be served", details=[str(error)], resolution=resolution
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="endpoints", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    # with the base class's 5, a burst of connections makes Prometheus' wait for seconds
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        # pods may have IPv6 addresses alone; such a socket serves IPv4, too
        six = ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6())
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer.server_bind asks the resolver for our own name, which may take minutes
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.append(request)
            oldest = self._open.pop(0) if len(self._open) > AT_ONCE else None
        if oldest:
            _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock, suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is no event of ours. Failures of pages do not come here."""


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENCE  # type: ignore[mutable-override]  # the base class allows None
    server_version = "driverforge"
    sys_version = ""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        pages = self.server.pages
        path = self.path.partition("?")[0]
        page = pages.get(path)
        try:
            well, text = page() if page else (False, f"there is {', '.join(sorted(pages))}")
            body = (text if text.endswith("\n") else f"{text}\n").encode()
            status = 404 if page is None else 200 if well else 503
        except Exception as error:
            log.error("a page failed", path=path, error=repr(error))
            status, body = 500, b"the page failed; the log says why\n"
        self.send_response(status)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is the base class's
        """Nothing: probes come every few seconds, and nobody reads that."""
