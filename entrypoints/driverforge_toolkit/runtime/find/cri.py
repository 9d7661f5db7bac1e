"""The container runtime interface, as far as a proof of life needs it.

That is Version and Status of runtime.v1 (k8s.io/cri-api, api.proto): one unary gRPC call a connection, over
HTTP/2 (grpc.io, "gRPC over HTTP2").
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from driverforge_core.errors import InputError, Unavailable
from driverforge_host.ports import Connection, Sockets
from driverforge_toolkit.runtime.find.daemon import version_of
from driverforge_toolkit.runtime.formats.spelling import PROGRAM, counting, takes_any_case

SERVICE = "/runtime.v1.RuntimeService"
VERBOSE = b"\x08\x01"  # StatusRequest.verbose = true
UNIMPLEMENTED = "12"  # grpc.io, "Status codes"
CHUNK = 65536


class PluginNotLoaded(Unavailable):
    """The daemon runs and serves no pods: it has no CRI service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """What the runtime says of itself."""

    pid: int  # of the daemon
    name: str  # 'containerd'
    version: str  # '1.6.20~ds1'
    # a RuntimeClass's names -> their program; '' where none is set, None where it is not told
    handlers: Mapping[str, str | None]
    default: str = ""  # the handler of pods that name none, '' where it is not told
    lists: bool = True  # whether it tells its handlers at all: CRI-O before 1.30 may not

    def believed(self, names: Iterable[str]) -> Mapping[str, str | None]:
        """The handlers. A runtime that lists none is believed to have those that it should have."""
        return self.handlers if self.lists else dict.fromkeys(names)


def status(sockets: Sockets, path: str, *, timeout: float = 5.0) -> RuntimeStatus:
    """Ask the runtime behind the socket `path`; `timeout` is in seconds, for each operation.

    Raises Unavailable with what it said: nothing is there, it has no CRI service, its answer is broken.
    """
    try:
        return _status(sockets, path, timeout)
    except InputError as error:
        raise Unavailable("the runtime's answer cannot be read", details=[error.brief]) from error


def _status(sockets: Sockets, path: str, timeout: float) -> RuntimeStatus:
    with sockets.connect(path, timeout=timeout) as connection:
        pid = connection.peer_pid()
        about = call(connection, "Version", b"")
    with sockets.connect(path, timeout=timeout) as connection:
        state = call(connection, "Status", VERBOSE)
    name, version = ("".join(texts(about, number)[:1]) for number in (2, 3))
    found, default = handlers(state, any_case=takes_any_case(version_of(version)))
    return RuntimeStatus(pid=pid, name=name, version=version, handlers=found, default=default)


def handlers(state: bytes, *, any_case: bool = True) -> tuple[dict[str, str | None], str]:
    """The handlers with their programs, and the default one, of a verbose StatusResponse.

    containerd (1.6 to 2.x) puts its effective configuration into `info`, as JSON. A runtime that does not
    (CRI-O) lists names only. `any_case` is as of `spelling.counting`.
    """
    named: dict[str, str | None] = {
        name: None for handler in messages(state, 3) for name in texts(handler, 1) if name
    }
    for entry in messages(state, 2):
        if texts(entry, 1) != ["config"]:
            continue
        try:
            section = json.loads("".join(texts(entry, 2)))["containerd"]
            tables = {
                name: table.get("options") or {}
                for name, table in sorted((section.get("runtimes") or {}).items())
            }
            programs: dict[str, str | None] = {
                name: str(options.get(counting(options, PROGRAM, any_case=any_case), ""))
                for name, options in tables.items()
            }
            return programs, str(section.get("defaultRuntimeName", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            break  # another runtime's configuration, in a form of its own
    return named, ""


class _Call:
    """The events of one HTTP/2 stream, collected."""

    def __init__(self) -> None:
        self.body = b""
        self.headers: dict[str, str] = {}
        self.ended = False

    def take(self, protocol: h2.connection.H2Connection, data: bytes) -> None:
        for event in protocol.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                self.body += event.data
                protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self.headers |= {str(name): str(value) for name, value in event.headers}
            elif isinstance(
                event, h2.events.StreamEnded | h2.events.StreamReset | h2.events.ConnectionTerminated
            ):
                self.ended = True


def call(connection: Connection, method: str, message: bytes, *, service: str = SERVICE) -> bytes:
    """One unary call. Returns the message of the response.

    Raises Unavailable, with the gRPC status and message, where it is no success.
    """
    protocol = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
    )
    protocol.initiate_connection()
    stream = protocol.get_next_available_stream_id()
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", f"{service}/{method}"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "driverforge"),
    )
    protocol.send_headers(stream, headers)
    protocol.send_data(stream, struct.pack(">BI", 0, len(message)) + message, end_stream=True)
    answer = _Call()
    connection.send(protocol.data_to_send())
    try:
        while not answer.ended and (data := connection.receive(CHUNK)):
            answer.take(protocol, data)
            connection.send(protocol.data_to_send())
    except (h2.exceptions.ProtocolError, UnicodeDecodeError) as error:
        raise Unavailable(f"the runtime does not speak gRPC: {error}") from error
    return _message(answer, method)


def _message(answer: _Call, method: str) -> bytes:
    code = answer.headers.get("grpc-status")
    if code != "0":
        said = unquote(answer.headers.get("grpc-message", "")) or "the connection ended without an answer"
        details = [f"gRPC status {code or 'none'}: {said}"]
        if code == UNIMPLEMENTED:
            raise PluginNotLoaded(
                f"the runtime does not answer {method} (its CRI plugin is not loaded)",
                details=details,
                resolution="driverctl doctor looks for the usual causes; containerd's log has its own: "
                "journalctl -u containerd | grep cri",
            )
        raise Unavailable(f"the runtime does not answer {method}", details=details)
    if len(answer.body) < 5 or answer.body[0] != 0:
        raise Unavailable(f"the runtime's answer to {method} is cut off or compressed")
    (size,) = struct.unpack(">I", answer.body[1:5])
    return answer.body[5 : 5 + size]


# -- the protocol buffer wire format, as much of it as these messages need (protobuf.dev, "Encoding")

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, index after it) of a number. Raises InputError where the data ends inside it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    raise InputError("a protocol buffer ends inside a number")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of each field of a message: an int for numbers, bytes for texts and messages.

    Raises InputError.
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise InputError(f"a protocol buffer has a field of the unknown kind {kind}")
        if at + size > len(data):
            raise InputError("a protocol buffer ends inside a field")
        yield number, data[at : at + size]
        at += size


def texts(data: bytes, number: int) -> list[str]:
    """The text fields of that number, in order."""
    return [
        value.decode("utf-8", "replace")
        for found, value in fields(data)
        if found == number and isinstance(value, bytes)
    ]


def messages(data: bytes, number: int) -> list[bytes]:
    """The message fields of that number, in order."""
    return [value for found, value in fields(data) if found == number and isinstance(value, bytes)]
