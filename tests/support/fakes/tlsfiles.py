"""A folder behind TLS that asks for a client certificate or a login, as vendors' subscriptions do."""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class TlsFiles(ThreadingHTTPServer):
    """Files of `folder` at `url`; `own` is its certificate and key.

    A client may show a certificate of `authority`, and has to with `required`. With `login` nobody gets
    anything without that Authorization. `status` answers all who get so far instead.

    `requests` has the path of each request, `refused` of those without the login, `shown` the certificates,
    None where the client showed none.
    """

    def __init__(
        self,
        folder: Path,
        own: Path,
        *,
        authority: Path | None = None,
        required: bool = False,
        login: str = "",
    ) -> None:
        self.login = login
        self.status = 0
        self.requests: list[str] = []
        self.refused: list[str] = []
        self.shown: list[object] = []
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(own)
        if authority is not None:
            tls.load_verify_locations(authority)
            tls.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that fails is what some tests are about."""


class _Handler(SimpleHTTPRequestHandler):
    server: TlsFiles  # type: ignore[mutable-override]

    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        self.server.shown.append(self.connection.getpeercert())
        self.server.requests.append(self.path)
        if self.server.login and self.headers.get("Authorization") != self.server.login:
            self.server.refused.append(self.path)
            # curl waits for this word before it logs in
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="files"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.server.status:
            self.send_error(self.server.status)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@contextmanager
def serving(server: TlsFiles) -> Iterator[TlsFiles]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
