"""A proxy before an API server that does to requests what a test says: networks and servers at their worst.

It speaks TLS with the server's own certificate, passes a watch on as it comes, and knows a bearer token of
its own, which a test may take away.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from support.cluster.kubernetes import OPERATOR, Api
from support.fakes.apianswers import Reply

WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: `number` counts writes from 1, and is 0 for what only reads."""

    method: str
    path: str
    number: int

    @property
    def watch(self) -> bool:
        return "watch=true" in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens instead, or beside.

    A status or a `reply` answers in the server's place; what it answers itself is `mangled`. `cut` closes
    the connection without an answer: 'before' the server has seen the request, or 'after' it has done what
    was asked. `delay` is in seconds, before all else. `then` is called at the same moment as `cut` cuts.
    """

    status: int = 0
    retry_after: int = 0
    reply: Reply | None = None
    mangled: Callable[[bytes], bytes] | None = None
    cut: str = ""
    delay: float = 0
    then: Callable[[], object] = lambda: None


Decide = Callable[[Asked], Fault | None]


@dataclass(slots=True)
class FaultProxy:
    """`decide` may be exchanged at any time; `writes` are those that came, in order."""

    api: Api
    port: int = 0
    decide: Decide = lambda asked: None
    token: str = "first"
    writes: list[str] = field(default_factory=list)
    faults: int = 0
    watching: list[socket.socket] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def kubeconfig(self, **user: str) -> str:
        """As the server's own, by way of this proxy; `user` is how to log in, else the token of now."""
        document = yaml.safe_load(self.api.kubeconfig(OPERATOR))
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        document["users"][0]["user"] = user or {"token": self.token}
        return json.dumps(document)

    def drop(self) -> None:
        """Cut the watches that are open now."""
        with self.lock:
            for one in self.watching:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self.watching.clear()

    def asked(self, method: str, path: str) -> Asked:
        with self.lock:
            # a lease is renewed as time goes by: what is counted is what decisions write
            counted = method in WRITES and "/leases" not in path
            if counted:
                self.writes.append(f"{method} {path.partition('?')[0]}")
            return Asked(method=method, path=path, number=len(self.writes) if counted else 0)


@contextmanager
def fault_proxy(api: Api) -> Iterator[FaultProxy]:
    """A proxy while the block runs."""
    proxy = FaultProxy(api)
    upstream = ssl.create_default_context(cafile=str(api.certificate))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Bearer {proxy.token}":
                self.refuse(401, 0)
                return
            asked = proxy.asked(self.command, self.path)
            if asked.watch:
                with proxy.lock:
                    proxy.watching.append(self.connection)
            fault = proxy.decide(asked)
            if fault is None:
                self.forward(body)
                return
            with proxy.lock:
                proxy.faults += 1
            time.sleep(fault.delay)
            if fault.status:
                self.refuse(fault.status, fault.retry_after)
            elif fault.reply:
                self.reply(fault.reply)
            elif fault.mangled:
                with closing(self.connect()) as connection:
                    found = self.ask(connection, body)
                    self.reply(Reply(status=found.status, body=fault.mangled(found.read())))
            elif fault.cut == "before":
                self.cut(fault)
            elif fault.cut == "after":
                with closing(self.connect()) as connection:
                    self.ask(connection, body).read()
                self.cut(fault)
            else:
                self.forward(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 the names that http.server calls

        def connect(self) -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection("127.0.0.1", api.port, context=upstream, timeout=600)

        def ask(self, connection: http.client.HTTPSConnection, body: bytes) -> http.client.HTTPResponse:
            headers = {"Authorization": f"Bearer {api.operator}", "Accept": "application/json"}
            if kind := self.headers.get("Content-Type"):
                headers["Content-Type"] = kind
            connection.request(self.command, self.path, body or None, headers)
            return connection.getresponse()

        def forward(self, body: bytes) -> None:
            with closing(self.connect()) as connection, suppress(OSError, http.client.HTTPException):
                found = self.ask(connection, body)
                self.send_response(found.status)
                self.send_header("Content-Type", found.headers.get("Content-Type", "application/json"))
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while piece := found.read1(65536):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

        def refuse(self, status: int, retry_after: int) -> None:
            message = {"kind": "Status", "message": "as the test says", "code": status}
            self.reply(Reply(status=status, body=json.dumps(message).encode()), retry_after)

        def reply(self, reply: Reply, retry_after: int = 0) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            if retry_after:
                self.send_header("Retry-After", str(retry_after))
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.short])
            self.close_connection = bool(reply.short)

        def cut(self, fault: Fault) -> None:
            fault.then()
            self.close_connection = True
            with suppress(OSError):
                self.connection.close()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """What went by is in `writes`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(api.certificate, api.certificate.with_suffix(".key"))
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
