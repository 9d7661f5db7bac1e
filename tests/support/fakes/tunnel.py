"""An HTTP proxy that makes tunnels (CONNECT), as sites have it: it looks names up where programs cannot."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from driverforge_oci.auth import Login


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """`address` is 'HOST:PORT' of the proxy. `asked` counts the tunnels that were asked for, by HOST:PORT."""

    address: str
    asked: Counter[str] = field(default_factory=Counter)


@contextmanager
def serve(login: Login | None = None) -> Iterator[Tunnel]:
    """A proxy while the block runs, for those alone who have the `login`."""

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            tunnel.asked[self.path] += 1
            if login and self.headers.get("Proxy-Authorization") != login.basic:
                self.send_error(407)
                return
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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        tunnel = Tunnel(address=f"127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield tunnel
        finally:
            server.shutdown()
            serving.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
