"""A proxy that answers in the place of vendors' servers, by the names that these have.

So the shipped matrix and a base image's own repository files are used as they are. What is asked by https is
answered with a certificate of the test's own for all these names.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

from support.process import run


@dataclass(slots=True)
class Vendors:
    """A proxy while it runs. `folders` maps a host to what it has; a test may exchange it.

    `requests` are 'HOST/PATH' as they came.
    """

    folders: dict[str, Path]
    authorities: Path
    proxy: str = ""
    requests: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What makes programs ask this proxy, and trust it."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return {**dict.fromkeys(names, self.proxy), **local, "SSL_CERT_FILE": str(self.authorities)}


@contextmanager
def vendors(folders: Mapping[str, Path], work: Path) -> Iterator[Vendors]:
    """Answer for these hosts, and refuse all others; the certificate is put into `work`."""
    work.mkdir(parents=True, exist_ok=True)
    certificate, key = work / "vendors.pem", work / "vendors.key"
    named = ",".join(f"DNS:{host}" for host in folders)
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    request += ["-subj", "/CN=driverforge test vendors", "-addext", f"subjectAltName={named}"]
    run(*request, "-keyout", key, "-out", certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made = Vendors(folders=dict(folders), authorities=certificate)

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host = ""

        def do_CONNECT(self) -> None:
            self.host = self.path.rpartition(":")[0]
            if self.host not in made.folders:
                self.send_error(502, f"no stand-in for {self.host}")
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            # a client that does not trust us, or has enough, just goes
            with suppress(OSError), context.wrap_socket(self.connection, server_side=True) as secure:
                self.rfile, self.wfile = secure.makefile("rb"), secure.makefile("wb")
                with self.rfile, self.wfile:
                    self.handle()
            self.rfile = self.wfile = BytesIO()
            self.close_connection = True

        def translate_path(self, path: str) -> str:
            """A list of mirrors has its query in its name."""
            asked = urlsplit(path)
            host = asked.hostname or self.host
            made.requests.append(f"{host}{asked.path}")
            folder = made.folders.get(host, Path("/nonexistent"))
            named = unquote(asked.path) + (f"?{asked.query}" if asked.query else "")
            return str(folder / named.lstrip("/"))

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.proxy = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
