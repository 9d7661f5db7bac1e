"""GitLab's registry of generic packages: it keeps what is put there, and gives it to a project's jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "token of a job"


@dataclass(slots=True)
class PackageRegistry:
    """`api` is CI_API_V4_URL. `files` are contents by the path below it; `status`, where not 0, is the answer
    to everything.
    """

    api: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 0


@contextmanager
def package_registry() -> Iterator[PackageRegistry]:
    registry = PackageRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = registry.files.get(self.path)
            self.answer(404 if found is None else 200, found or b'{"message":"404 Not Found"}')

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.answer(201, b'{"message":"201 Created"}'):
                registry.files[self.path] = body

        def answer(self, status: int, body: bytes) -> bool:
            known = self.headers.get("JOB-TOKEN") == TOKEN
            if refused := registry.status or (0 if known else 401):
                status, body = refused, b"no"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return not refused

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.api = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
