"""GitLab's registry of generic packages: it keeps what is put there, and gives it to a project's jobs."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "token of a job"
PASSWORD = f"Basic {base64.b64encode(f'gitlab-ci-token:{TOKEN}'.encode()).decode()}"
STORE = "/store"


@dataclass(slots=True)
class PackageRegistry:
    """`api` is CI_API_V4_URL. `files` are contents by the path below it; `status`, where not 0, is the answer
    to everything, or to the next `busy` requests.

    `store`: GitLab's files are in an object store, to which it sends who downloads. Another host has it, and
    it refuses who shows it a token, as S3 does: the address is signed. `cut`: connections break in the middle
    of a file.
    """

    api: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 0
    busy: int = 0
    store: bool = False
    stored: int = 0
    cut: bool = False

    def refusal(self) -> int:
        if self.busy:
            self.busy -= 1
            return 502
        return self.status


@contextmanager
def package_registry() -> Iterator[PackageRegistry]:
    registry = PackageRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # an answer goes in one piece: for the second one the kernel waits until the first is acknowledged
        wbufsize = -1

        def do_GET(self) -> None:
            headers = self.headers
            if self.path.startswith(f"{STORE}/"):
                registry.stored += 1
                shown = "JOB-TOKEN" in headers or "Authorization" in headers
                self.answer(400 if shown else 200, registry.files[self.path.removeprefix(STORE)])
            elif refused := registry.refusal():
                self.answer(refused)
            elif headers.get("JOB-TOKEN") != TOKEN and headers.get("Authorization") != PASSWORD:
                self.answer(401)
            elif self.path not in registry.files:
                self.answer(404, b'{"message":"404 Not Found"}')
            elif registry.store:
                # for curl another host than that of `api`
                port = registry.api.rpartition(":")[2]
                self.answer(302, location=f"http://localhost:{port}{STORE}{self.path}")
            else:
                self.answer(200, registry.files[self.path])

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            # as a password it is taken for downloads alone (before GitLab 19.1; its merge request 239076)
            if refused := registry.refusal() or (0 if self.headers.get("JOB-TOKEN") == TOKEN else 401):
                self.answer(refused)
            else:
                registry.files[self.path] = body
                self.answer(201, b'{"message":"201 Created"}')

        def answer(self, status: int, body: bytes = b"no", *, location: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            if registry.cut and status == 200:
                body = body[: len(body) // 2]
                self.close_connection = True
            self.wfile.write(body)

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
