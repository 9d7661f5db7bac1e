"""What the operator makes of registries' answers, over its own transport and real sockets."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import InputError, TemporaryFailure
from driverforge_oci.transport import Request
from driverforge_operator.cluster.registries import registries
from driverforge_operator.cluster.web import RegistryTransport
from driverforge_operator.ports import Answer, Kind, Page, Question
from support.fakes.wireserver import WireServer, answer, talking
from support.process import missing
from support.samples.aptrepo import self_signed


class Secrets:
    """A namespace with one pull secret: a login for a host."""

    def __init__(self, host: str) -> None:
        pair = base64.b64encode(b"ci:secret").decode()
        text = json.dumps({"auths": {host: {"auth": pair}}}).encode()
        self._item = {
            "metadata": {"name": "pull"},
            "data": {".dockerconfigjson": base64.b64encode(text).decode()},
        }

    def pages(self, kind: Kind[Any], *, labels: str = "") -> Iterator[Page[Any]]:
        yield Page(items=(self._item,), version="")


def ask(server: WireServer | str, environ: dict[str, str] | None = None) -> Answer:
    host = server if isinstance(server, str) else server.address
    question = Question(image=f"{host}/nvidia/driver:1", arch="", secrets=("pull",))
    return registries(Secrets(host), environ or {}).ask(question)


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("200 OK", "yes"),
        ("404 Not Found", "no"),
        ("401 Unauthorized", "unknown"),
        ("403 Forbidden", "unknown"),
        ("407 Proxy Authentication Required", "unknown"),
        ("429 Too Many Requests", "unknown"),
        ("500 Internal Server Error", "unknown"),
        ("503 Service Unavailable", "unknown"),
        ("204 No Content", "unknown"),
    ],
)
def test_a_registry_that_refuses_or_fails_says_neither_yes_nor_no(status: str, found: str) -> None:
    headers = {"Content_Type": "application/json", "Docker_Content_Digest": f"sha256:{'a' * 64}"}
    with talking(lambda connection, _: connection.sendall(answer(status=status, **headers))) as server:
        told = ask(server)
    assert told.found == found
    assert bool(told.reason) == (found == "unknown")


def test_no_answer_is_neither_yes_nor_no() -> None:
    with talking(lambda connection, _: connection.close()) as server:
        assert ask(server).found == "unknown"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "no answer from" in ask(f"127.0.0.1:{port}").reason


def test_a_login_goes_to_the_registry_that_asks_for_it_and_not_where_it_sends_us() -> None:
    challenge = {"WWW_Authenticate": 'Basic realm="r"'}

    def elsewhere(connection: socket.socket, _head: str) -> None:
        connection.sendall(answer(status="200 OK", Docker_Content_Digest=f"sha256:{'a' * 64}"))

    with talking(elsewhere) as cdn:

        def talk(connection: socket.socket, head: str) -> None:
            if "authorization: basic" in head.lower():
                connection.sendall(
                    answer(status="307 Temporary Redirect", Location=f"http://{cdn.address}/x")
                )
            else:
                connection.sendall(answer(status="401 Unauthorized", **challenge))

        with talking(talk) as registry:
            assert ask(registry).found == "yes"
    assert registry.asked("authorization")[-1] == f"basic {base64.b64encode(b'ci:secret').decode()}".lower()
    assert [head for head in cdn.heads if "authorization" in head.lower()] == []
    assert len(cdn.heads) == 1


@pytest.mark.parametrize(
    "proxy", ["socks5://ci:secret@p.site:1", "http://ci:se\x7fcret@p.site", "ftp://p.site"]
)
def test_a_proxy_that_cannot_be_used_is_the_reason(proxy: str) -> None:
    told = ask("registry.site", {"HTTPS_PROXY": proxy})
    assert told.found == "unknown"
    assert "a proxy of the environment is no address" in told.reason
    assert "cret" not in told.reason


@pytest.mark.skipif(bool(missing("openssl")), reason="openssl is not installed")
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_proxy_with_tls_is_trusted_by_the_same_authorities(scheme: str, tmp_path: Path) -> None:
    authority = self_signed(tmp_path / "proxy")
    request = Request(method="GET", url="http://registry.invalid/v2/")
    with talking(
        lambda connection, _: connection.sendall(answer(b"by proxy")), certificate=authority
    ) as proxy:
        environ = {"HTTP_PROXY": f"{scheme}://{proxy.address}"}
        transport = RegistryTransport({**environ, "SSL_CERT_FILE": str(authority)})
        assert transport.send(request).read(100) == b"by proxy"
        with pytest.raises(TemporaryFailure, match="CERTIFICATE_VERIFY_FAILED"):
            RegistryTransport(environ).send(request)


def test_an_authority_that_cannot_be_read_ends_the_start() -> None:
    with pytest.raises(InputError, match="SSL_CERT_FILE="):
        registries(Secrets(""), {"SSL_CERT_FILE": "/nowhere/ca.pem"})


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_each_question_has_a_connection_of_its_own(method: str) -> None:
    """A registry may end a kept one at any time; who is asking then has no answer."""
    ended = threading.Semaphore(0)

    def talk(connection: socket.socket, _head: str) -> None:
        connection.sendall(answer(b"" if method == "HEAD" else b"bytes"))
        while connection.recv(65536):
            connection.sendall(answer())
        ended.release()

    with talking(talk) as server:
        transport = RegistryTransport({})
        for _ in range(3):
            response = transport.send(Request(method=method, url=f"http://{server.address}/v2/"))
            assert response.read(100) == (b"" if method == "HEAD" else b"bytes")
            assert ended.acquire(timeout=30)
    assert len(server.heads) == 3


def test_a_compressed_answer_is_not_asked_for_and_not_unpacked() -> None:
    packed = answer(b"\x1f\x8b", Content_Encoding="gzip")
    with talking(lambda connection, _: connection.sendall(packed)) as server:
        response = RegistryTransport({}).send(Request(method="GET", url=f"http://{server.address}/"))
        assert response.read(100) == b"\x1f\x8b"
    assert server.asked("accept-encoding") == ["identity"]
