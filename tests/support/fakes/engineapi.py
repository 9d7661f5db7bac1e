"""An engine's API as far as a test answers for it: a stand-in, behind the real docker SDK."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[str], tuple[int, object]]
"""Path to status and document, which is bytes where the API sends an archive; status 0 hangs up."""


@contextmanager
def engine_api(answer: Answer) -> Iterator[str]:
    """An engine's API on the loopback, as DOCKER_HOST names it."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            status, document = (200, {"ApiVersion": "1.45"}) if self.path == "/version" else answer(self.path)
            if not status:
                self.close_connection = True
                return
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            if isinstance(document, bytes):
                self.send_header("X-Docker-Container-Path-Stat", base64.b64encode(b"{}").decode())
            else:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = reply  # noqa: N815 -- http.server's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()
