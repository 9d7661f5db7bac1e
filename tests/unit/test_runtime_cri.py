"""The runtime interface over a connection in memory: a real HTTP/2 peer, without a socket."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import InputError, Unavailable
from driverforge_toolkit.runtime.find import cri
from driverforge_toolkit.runtime.find.cri import fields, messages, texts, varint

OK = {"grpc-status": "0"}


def encode(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def part(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return encode(number << 3) + encode(value)
    data = value.encode() if isinstance(value, str) else value
    return encode(number << 3 | 2) + encode(len(data)) + data


def status_response(config: object) -> bytes:
    """A verbose StatusResponse of containerd 1.6: the runtime's conditions, then info as a map."""
    condition = part(1, "RuntimeReady") + part(2, 1)
    entry = part(1, "config") + part(2, json.dumps(config))
    return part(1, part(1, condition)) + part(2, part(1, "golang") + part(2, '"go1.19"')) + part(2, entry)


VERSION = part(1, "0.1.0") + part(2, "containerd") + part(3, "1.6.20~ds1") + part(4, "v1")
RUNTIMES = {
    "runc": {"options": {"BinaryName": ""}},
    "nvidia": {"runtimeType": "x", "options": {"BinaryName": "/t/n"}},
    "bare": {"options": None},
    "kubespray": {"options": {"systemdCgroup": True, "binaryName": "/opt/runc"}},
}
STATUS = status_response({"containerd": {"runtimes": RUNTIMES}, "cni": {}})


@dataclass
class Server:
    """A gRPC server that answers each method with (message, trailers); it hands out a few bytes at a time."""

    answers: Mapping[str, tuple[bytes, Mapping[str, str]]]
    step: int = 7
    asked: list[tuple[str, bytes]] = field(default_factory=list)

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Peer]:
        yield Peer(server=self)


@dataclass
class Peer:
    server: Server
    pending: bytes = b""
    bodies: dict[int, bytes] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    # what is left to answer, and the trailers
    waiting: dict[int, tuple[bytes, Mapping[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.protocol = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.protocol.initiate_connection()

    def peer_pid(self) -> int:
        return 4711

    def sender_pid(self) -> int:
        return 4711

    def send(self, data: bytes) -> None:
        for event in self.protocol.receive_data(data) if data else ():
            if isinstance(event, h2.events.RequestReceived):
                self.paths[event.stream_id] = {str(name): str(value) for name, value in event.headers}[
                    ":path"
                ].rpartition("/")[2]
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
            elif isinstance(event, h2.events.StreamEnded):
                self._answer(event.stream_id)
        for stream in tuple(self.waiting):
            self._go_on(stream)
        self.pending += self.protocol.data_to_send()

    def _answer(self, stream: int) -> None:
        method = self.paths[stream]
        self.server.asked.append((method, self.bodies[stream]))
        message, trailers = self.server.answers[method]
        self.protocol.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        self.waiting[stream] = (struct.pack(">BI", 0, len(message)) + message if message else b"", trailers)

    def _go_on(self, stream: int) -> None:
        """As much of the answer as the other side has room for."""
        rest, trailers = self.waiting[stream]
        while rest and (room := min(self.protocol.local_flow_control_window(stream), 16384)):
            self.protocol.send_data(stream, rest[:room])
            rest = rest[room:]
        self.waiting[stream] = (rest, trailers)
        if not rest:
            del self.waiting[stream]
            if trailers:
                self.protocol.send_headers(stream, list(trailers.items()), end_stream=True)
            else:
                self.protocol.end_stream(stream)

    def receive(self, size: int) -> bytes:
        size = min(size, self.server.step)
        data, self.pending = self.pending[:size], self.pending[size:]
        return data


def test_version_and_handlers_of_a_runtime() -> None:
    server = Server({"Version": (VERSION, OK), "Status": (STATUS, OK)})
    status = cri.status(server, "/run/containerd/containerd.sock")
    assert status == cri.RuntimeStatus(
        pid=4711,
        name="containerd",
        version="1.6.20~ds1",
        handlers={"bare": "", "kubespray": "/opt/runc", "nvidia": "/t/n", "runc": ""},
    )
    assert server.asked == [("Version", bytes(5)), ("Status", b"\0\0\0\0\2\x08\1")]


@pytest.mark.parametrize(("version", "program"), [("1.6.20~ds1", "/t/n"), ("v2.1.9", "/opt/runc")])
def test_of_an_option_in_two_spellings_it_is_the_one_that_pods_get(version: str, program: str) -> None:
    options = {"BinaryName": "/t/n", "binaryName": "/opt/runc"}
    state = status_response({"containerd": {"runtimes": {"nvidia": {"options": options}}}})
    server = Server({"Version": (part(2, "containerd") + part(3, version), OK), "Status": (state, OK)})
    assert cri.status(server, "/c.sock").handlers == {"nvidia": program}


def test_an_answer_larger_than_the_flow_control_window() -> None:
    big = status_response(
        {"containerd": {"runtimes": {"nvidia": {"options": {"BinaryName": "/x"}}}}, "padding": "x" * 300_000}
    )
    server = Server({"Version": (VERSION, OK), "Status": (big, OK)}, step=65536)
    assert cri.status(server, "/s").handlers == {"nvidia": "/x"}


def test_a_runtime_without_its_cri_plugin() -> None:
    gone = {"grpc-status": "12", "grpc-message": "unknown service runtime.v1.RuntimeService%21"}
    with pytest.raises(Unavailable, match="CRI plugin is not loaded") as caught:
        cri.status(Server({"Version": (b"", gone)}), "/s")
    assert caught.value.details == ("gRPC status 12: unknown service runtime.v1.RuntimeService!",)


@pytest.mark.parametrize("answer", [(b"", {}), (b"", OK)])
def test_an_answer_without_status_or_message(answer: tuple[bytes, Mapping[str, str]]) -> None:
    with pytest.raises(Unavailable, match="Version"):
        cri.status(Server({"Version": answer}), "/s")


def test_what_is_no_http2() -> None:
    class Web(Peer):
        def send(self, data: bytes) -> None:
            self.pending = b"HTTP/1.1 400 Bad Request\r\n\r\n"

    with pytest.raises(Unavailable, match="does not speak gRPC"):
        cri.call(Web(server=Server({}, step=100)), "Version", b"")


def test_a_connection_that_ends_at_once() -> None:
    class Gone(Peer):
        def receive(self, size: int) -> bytes:
            return b""

    with pytest.raises(Unavailable, match="does not answer Version"):
        cri.call(Gone(server=Server({"Version": (b"", OK)})), "Version", b"")


def test_a_cri_plugin_that_is_not_loaded_has_a_next_step() -> None:
    with pytest.raises(Unavailable, match="its CRI plugin is not loaded") as caught:
        cri.call(
            Peer(server=Server({"Version": (b"", {"grpc-status": "12", "grpc-message": "unknown service"})})),
            "Version",
            b"",
        )
    assert "driverctl doctor" in caught.value.resolution


def test_a_status_without_info_has_no_handlers() -> None:
    assert cri.handlers(part(1, b"")) == ({}, "")


def test_a_runtime_that_tells_no_programs_tells_names() -> None:
    """CRI-O: runtime_handlers of the response; its `config` is TOML, not containerd's JSON.

    The nameless one is the default's.
    """
    listed = part(3, part(2, part(1, 1))) + part(3, part(1, "runc")) + part(3, part(1, "nvidia"))
    entry = part(2, part(1, "config") + part(2, "[crio]\n"))
    assert cri.handlers(listed + entry) == ({"runc": None, "nvidia": None}, "")
    deep = part(2, part(1, "config") + part(2, "[" * 100_000))
    assert cri.handlers(listed + deep) == ({"runc": None, "nvidia": None}, "")


def test_the_default_handler_of_containerd() -> None:
    assert cri.handlers(
        status_response({"containerd": {"defaultRuntimeName": "nvidia", "runtimes": {}}})
    ) == ({}, "nvidia")


@pytest.mark.parametrize("data", [b"\x80", b"\x0a\x05ab", b"\x0b", b"\x09abc"])
def test_broken_messages(data: bytes) -> None:
    with pytest.raises(InputError, match="protocol buffer"):
        list(fields(data))


def test_fields_of_fixed_size_are_passed_over() -> None:
    data = b"\x0d1234" + b"\x1112345678" + part(3, "x") + part(3, "y")
    assert texts(data, 3) == ["x", "y"]
    assert messages(data, 1) == [b"1234"]


@given(st.integers(0, 2**64 - 1))
def test_numbers_of_any_size(value: int) -> None:
    assert varint(encode(value), 0) == (value, len(encode(value)))
