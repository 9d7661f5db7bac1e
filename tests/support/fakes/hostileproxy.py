"""A proxy in front of a real registry that counts what passes, and makes trouble on demand.

It leaves the Host header alone, so that what the registry says of places leads through it again.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request's first line and headers."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def blob(self) -> str:
        """The digest of the blob that is downloaded, '' for any other request."""
        name = self.path.rpartition("/")[2]
        return name if self.method == "GET" and "/blobs/sha256:" in self.path else ""

    @property
    def uploads(self) -> bool:
        """Whether it sends a blob's bytes."""
        return self.method in ("PATCH", "PUT") and "/blobs/uploads/" in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An answer that is not the registry's, or one whose content is `cut` or goes silent after that many
    bytes: a download's, or an upload's on its way to the registry.
    """

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int = -1
    silent: int = -1


@dataclass(slots=True)
class Proxy:
    """`down` are bytes of each blob that were given away, `up` bytes of blobs that the registry was sent.

    `finished` counts uploads that were to end as a blob.
    """

    address: str
    trouble: Callable[[Asked], Trouble | None] = lambda _asked: None
    down: Counter[str] = field(default_factory=Counter)
    up: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, asked: Asked, size: int) -> None:
        with self._lock:
            if asked.blob:
                self.down[asked.blob] += size
            elif asked.uploads:
                self.up += size

    def begin_anew(self) -> None:
        """No more trouble, and nothing counted."""
        self.trouble = lambda _asked: None
        self.down.clear()
        self.finished.clear()
        self.asked.clear()
        self.up = 0


class _Reset(Exception):
    pass


@contextmanager
def hostile(upstream: str) -> Iterator[Proxy]:
    """A proxy before the registry at this HOST:PORT, while the block runs."""
    host, _, port = upstream.partition(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: object) -> None: ...

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (_Reset, OSError, http.client.HTTPException):
                self.close_connection = True
                # a reset, no orderly end
                with suppress(OSError):
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        def do_any(self) -> None:
            asked = Asked(
                method=self.command, path=self.path.partition("?")[0], headers=dict(self.headers.items())
            )
            proxy.asked.append(asked)
            if asked.uploads and self.command == "PUT":
                proxy.finished[urllib.parse.parse_qs(self.path.partition("?")[2])["digest"][0]] += 1
            trouble = proxy.trouble(asked) or Trouble()
            if trouble.status:
                self._say(trouble)
                return
            self._hand_on(asked, trouble)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_any  # noqa: N815

        def _say(self, trouble: Trouble) -> None:
            # without a Date of its own beside the trouble's
            self.send_response_only(trouble.status)
            for name, value in {**trouble.headers, "Content-Length": str(len(trouble.body))}.items():
                self.send_header(name, value)
            # what is still to come of a request is read by nobody, as most servers do
            if int(self.headers.get("Content-Length", 0)):
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(trouble.body)

        def _hand_on(self, asked: Asked, trouble: Trouble) -> None:
            registry = http.client.HTTPConnection(host, int(port), timeout=60)
            try:
                registry.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    registry.putheader(name, value)
                registry.endheaders()
                self._pass(
                    asked, trouble, int(self.headers.get("Content-Length", 0)), self.rfile.read, registry.send
                )
                answer = registry.getresponse()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    length = int(answer.headers.get("Content-Length", 0))
                    self._pass(asked, trouble, length, answer.read, self.wfile.write)
            finally:
                registry.close()

        def _pass(
            self,
            asked: Asked,
            trouble: Trouble,
            length: int,
            read: Callable[[int], bytes],
            write: Callable[[bytes], object],
        ) -> None:
            passed = 0
            while passed < length:
                for limit in (trouble.cut, trouble.silent):
                    if passed >= limit >= 0:
                        if limit == trouble.silent:
                            proxy.ending.wait()
                        raise _Reset
                piece = read(min(_PIECE, length - passed))
                if not piece:
                    raise _Reset
                passed += len(piece)
                write(piece)
                proxy.count(asked, len(piece))

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_words: object) -> None: ...

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy = Proxy(f"127.0.0.1:{server.server_address[1]}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield proxy
        finally:
            proxy.ending.set()
            server.shutdown()
            serving.join()
