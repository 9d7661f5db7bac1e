"""An HTTP proxy that makes tunnels (CONNECT), as sites have it: it looks names up where programs cannot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Tunnels(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pump, args=(far, self.connection), daemon=True)
            back.start()
            _pump(self.connection, far)
            back.join()
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def serve() -> Iterator[str]:
    """Its address, http://127.0.0.1:PORT."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tunnels) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()
