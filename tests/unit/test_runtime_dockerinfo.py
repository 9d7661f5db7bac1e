"""docker's answer to GET /info."""

from __future__ import annotations

import json

import pytest

from driverforge_core.errors import Unavailable
from driverforge_toolkit.runtime.find.sockethttp import parse_info

INFO = {
    "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "/n"}},
    "DefaultRuntime": "runc",
    "ServerVersion": "28.5.2",
}


def answer(body: str, status: str = "HTTP/1.0 200 OK") -> bytes:
    return f"{status}\r\nApi-Version: 1.51\r\n\r\n{body}".encode()


def test_runtimes_and_the_default() -> None:
    seen = parse_info(answer(json.dumps(INFO)), 7)
    assert (seen.pid, seen.handlers, seen.default, seen.version) == (
        7,
        {"nvidia": "/n", "runc": "runc"},
        "runc",
        "28.5.2",
    )


def test_a_docker_without_runtimes_has_none() -> None:
    assert parse_info(answer('{"Runtimes": null}'), 7).handlers == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00\x12\x04",
        answer("{}", "HTTP/1.1 503 Service Unavailable"),
        answer("{"),
        answer("[]"),
        answer('{"Runtimes": {"x": 1}}'),
        answer('{"Runtimes": ' + "[" * 100_000),
    ],
)
def test_anything_else_is_one_message(data: bytes) -> None:
    with pytest.raises(Unavailable, match="docker"):
        parse_info(data, 7)
