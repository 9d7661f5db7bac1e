"""The daemon of the stand-in for CRI-O (`standincrio`): its socket, its pods, its reload."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import struct
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h2.config
import h2.connection
import h2.events

from driverforge_toolkit.runtime.find.cri import messages, texts
from support.fakes.crioconfig import LISTS_HANDLERS, SPEAKS_V1, CrioConfig, Refusal
from support.machines.cripods import encode

ANNOTATION = "io.kubernetes.cri-o."


class Crio:
    """The running daemon."""

    def __init__(self, config: CrioConfig, again: Callable[[], CrioConfig]) -> None:
        self.config = config
        self.again = again  # reads the files once more
        # what pods are started and ended with: a SIGHUP does not change it
        self.handlers = dict(config.runtimes)

    def reload(self) -> None:
        try:
            self.config.reloaded(self.again())
        except Refusal as error:
            print(f"unable to reload configuration: {error}", flush=True)

    def answer(self, method: str, message: bytes) -> bytes:
        """Raises Refusal with the message of an error."""
        if self.config.version < SPEAKS_V1:
            raise Refusal("unknown service runtime.v1.RuntimeService")
        if method == "Version":
            number = ".".join(map(str, self.config.version))
            return encode({1: "0.1.0", 2: "cri-o", 3: number, 4: "v1"})
        if method == "Status":
            return self._status()
        if method == "RunPodSandbox":
            return self._run_pod(message)
        if method == "StopPodSandbox":
            self._handler_of(texts(message, 1)[0])
            return b""
        if method == "RemovePodSandbox":
            identity = texts(message, 1)[0]
            self._handler_of(identity)
            (self._pod(identity) / "config.json").unlink()
            return b""
        raise Refusal(f"unknown method {method}")

    def _status(self) -> bytes:
        ready = encode({1: {1: {1: "RuntimeReady", 2: 1}}})
        if self.config.version < LISTS_HANDLERS:
            return ready
        names = [*self.config.runtimes, ""]
        return ready + b"".join(encode({3: {1: name} if name else {2: {1: 1}}}) for name in names)

    def _run_pod(self, message: bytes) -> bytes:
        handler = "".join(texts(message, 2))
        self._check(handler)
        (pod,) = messages(message, 1)
        (metadata,) = messages(pod, 1)
        identity = uuid.uuid4().hex
        folder = self._pod(identity)
        folder.mkdir(parents=True)
        about = {
            "ContainerType": "sandbox",
            "RuntimeHandler": handler,
            "KubeName": texts(metadata, 1)[0],
            "Namespace": texts(metadata, 3)[0],
        }
        spec = {"annotations": {f"{ANNOTATION}{name}": value for name, value in about.items()}}
        (folder / "config.json").write_text(json.dumps(spec))
        return encode({1: identity})

    def _pod(self, identity: str) -> Path:
        return Path(self.config.root, "overlay-containers", identity, "userdata")

    def _handler_of(self, identity: str) -> None:
        spec = json.loads((self._pod(identity) / "config.json").read_text())
        self._check(spec["annotations"][f"{ANNOTATION}RuntimeHandler"])

    def _check(self, handler: str) -> None:
        if handler and handler not in self.handlers:
            listed = " ".join(sorted(self.handlers))
            raise Refusal(f"failed to find runtime handler {handler} from runtime list map[{listed}]")


class Service(socketserver.StreamRequestHandler):
    """One connection: HTTP/1 for /config, else HTTP/2 with calls of the runtime interface."""

    def handle(self) -> None:
        begun = self.request.recv(65536)
        with suppress(ConnectionError):  # it had heard enough
            if begun.startswith(b"GET "):
                self._http(begun)
            else:
                self._grpc(begun)

    @property
    def crio(self) -> Crio:
        found = getattr(self.server, "crio", None)
        assert isinstance(found, Crio)
        return found

    def _http(self, asked: bytes) -> None:
        known = asked.startswith(b"GET /config ") and not os.environ.get("STAND_IN_SILENT")
        body = self.crio.config.printed(everything=True) if known else "404 page not found\n"
        head = f"HTTP/1.0 {'200 OK' if known else '404 Not Found'}\r\nContent-Type: application/toml\r\n\r\n"
        self.request.sendall((head + body).encode())

    def _grpc(self, data: bytes) -> None:
        protocol = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        protocol.initiate_connection()
        path, body = "", b""
        while data:
            for event in protocol.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    path = {str(name): str(value) for name, value in event.headers}[":path"]
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    self._reply(protocol, event.stream_id, path.rpartition("/")[2], body[5:])
            self.request.sendall(protocol.data_to_send())
            data = self.request.recv(65536)

    def _reply(self, protocol: h2.connection.H2Connection, stream: int, method: str, body: bytes) -> None:
        protocol.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        try:
            message, status, said = self.crio.answer(method, body), "0", ""
        except Refusal as error:
            message, status, said = b"", "2", str(error)
        if status == "0":
            protocol.send_data(stream, struct.pack(">BI", 0, len(message)) + message)
        protocol.send_headers(stream, [("grpc-status", status), ("grpc-message", said)], end_stream=True)


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, path: str, crio: Crio) -> None:
        self.crio = crio
        super().__init__(path, Service)


def serve(crio: Crio) -> None:
    """Serve until SIGTERM."""
    Path(crio.config.listen).unlink(missing_ok=True)
    with Server(crio.config.listen, crio) as server:
        signal.signal(signal.SIGHUP, lambda *_: crio.reload())
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.05)
