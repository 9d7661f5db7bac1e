"""`/healthz`, `/readyz` and `/metrics` over HTTP, for the kubelet and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from driverforge_core.errors import Unavailable

Page = Callable[[], tuple[bool, str]]
"""Says whether all is well, and the text."""


@contextmanager
def serving(address: tuple[str, int], pages: Mapping[str, Page]) -> Iterator[int]:
    """Answer for as long as the block runs; yields the port. Raises Unavailable where it is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = 10  # seconds for somebody who connects and says nothing

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            well, text = page() if page else (False, "")
            status = 404 if page is None else 200 if well else 503
            body = f"{text}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Probes come every few seconds: nobody reads that."""

    try:
        server = ThreadingHTTPServer(address, Handler)
    except OSError as error:
        raise Unavailable(f"port {address[1]} cannot be served", details=[str(error)]) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="endpoints", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
