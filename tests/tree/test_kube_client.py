"""The client of the standard library, against a server in this process; tests/cluster has the real one."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable
from driverforge_kube.address import find
from driverforge_kube.apiserver import KubernetesClient

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
NODE = "/api/v1/nodes/a"


@dataclass(slots=True)
class Asked:
    """A request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    """Answers of one `status` with `body`; the account of a pod is in `account`."""

    account: Path
    status: int = 200
    body: bytes = b'{"kind": "Node"}'
    host: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)

    def client(self, **how: int) -> KubernetesClient:
        environ = {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": str(self.port)}
        return KubernetesClient(find(environ, account=str(self.account)), **how)


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority's own certificate, for the loopback of both families."""
    folder = tmp_path_factory.mktemp("authority")
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1,IP:::1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.crt")]
    subprocess.run(["openssl", "req", *kind, *names, *files], check=True, capture_output=True)
    return folder


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest, certificate: Path, tmp_path: Path) -> Iterator[Server]:
    host = str(request.param)
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    shutil.copy(certificate / "ca.crt", tmp_path)
    (tmp_path / "token").write_text("first\n")
    found = Server(account=tmp_path, host=host)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            self.send_response(found.status)
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_PATCH = do_POST = do_DELETE = answer  # noqa: N815 -- http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            return

    class Listening(ThreadingHTTPServer):
        address_family = family(host)

    with Listening((host, 0), Handler) as http:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "ca.crt", certificate / "key.pem")
        http.socket = context.wrap_socket(http.socket, server_side=True)
        found.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            http.shutdown()
            thread.join()


def test_a_pod_finds_its_cluster_and_logs_in_with_the_token_of_now(server: Server) -> None:
    client = server.client()
    assert client.get(NODE) == {"kind": "Node"}
    (server.account / "token").write_text("second\n")
    client.get(NODE)
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer second"]
    host = f"[{server.host}]" if ":" in server.host else server.host
    assert {one.headers["Host"] for one in server.asked} == {f"{host}:{server.port}"}
    assert server.asked[0].headers["User-Agent"].startswith("driverforge/")


def test_a_write_says_what_kind_of_change_it_is(server: Server) -> None:
    client = server.client()
    client.patch(NODE, {"metadata": {"labels": {"a": None}}})
    client.create("/api/v1/pods", {"kind": "Pod"})
    client.delete("/api/v1/pods/p")
    told = [(one.method, one.path, one.headers["Content-Type"], one.body) for one in server.asked]
    assert told == [
        ("PATCH", NODE, "application/merge-patch+json", b'{"metadata": {"labels": {"a": null}}}'),
        ("POST", "/api/v1/pods", "application/json", b'{"kind": "Pod"}'),
        ("DELETE", "/api/v1/pods/p", "application/json", b""),
    ]


def test_a_list_goes_on_until_the_server_has_no_more(server: Server) -> None:
    def page(name: str, after: str) -> bytes:
        found: dict[str, Any] = {"kind": "NodeList", "items": [{"name": name}]}
        found["metadata"] = {"continue": after}
        return json.dumps(found).encode()

    server.body = page("a", "to/b&c")
    objects = server.client(page=1).list("/api/v1/nodes", labels="a=b,!c")
    assert next(objects) == {"name": "a"}
    server.body = page("b", "")
    assert list(objects) == [{"name": "b"}]
    queries = [parse_qs(urlsplit(one.path).query) for one in server.asked]
    assert queries == [
        {"limit": ["1"], "labelSelector": ["a=b,!c"]},
        {"limit": ["1"], "labelSelector": ["a=b,!c"], "continue": ["to/b&c"]},
    ]


def test_what_is_not_there_is_none_to_read_and_nothing_to_delete(server: Server) -> None:
    server.status, server.body = 404, b'{"kind": "Status", "reason": "NotFound"}'
    client = server.client()
    assert client.get(NODE) is None
    client.delete(NODE)
    for write in (client.patch, client.create):
        with pytest.raises(Unavailable, match="refuses"):
            write(NODE, {})


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, NotPermitted),
        (403, NotPermitted),
        (409, Unavailable),
        (429, TemporaryFailure),
        (500, TemporaryFailure),
        (503, TemporaryFailure),
    ],
)
def test_a_refusal_is_what_it_means_with_the_servers_words(
    server: Server, status: int, error: type[Unavailable]
) -> None:
    server.status, server.body = status, b"a secret? no"
    with pytest.raises(error) as caught:
        server.client().get(f"{NODE}?x=y")
    assert type(caught.value) is error
    assert tuple(caught.value.details) == (f"HTTP status {status}", "a secret? no")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"{}", b"null", b"<html>", b"[" * 100_000])
def test_an_answer_that_is_no_object_is_told(server: Server, body: bytes) -> None:
    server.body = body
    client = server.client()
    for ask in (client.get, client.delete, lambda path: list(client.list(path))):
        with pytest.raises(TemporaryFailure, match=f"the answer to {NODE} is not the API server's"):
            ask(NODE)


@pytest.mark.parametrize("body", [b"default backend - 404", b"", b"{}", b"[]", b'{"kind": "Status"}'])
def test_a_404_of_somebody_else_is_no_word_about_objects(server: Server, body: bytes) -> None:
    server.status, server.body = 404, body
    client = server.client()
    for ask in (client.get, client.delete, lambda path: list(client.list(path))):
        with pytest.raises(TemporaryFailure, match="is not the API server's"):
            ask(NODE)


@pytest.mark.parametrize(
    "found",
    [
        {"kind": "NodeList"},
        {"kind": "NodeList", "items": None},
        {"kind": "Node", "items": []},
        {"kind": "Status", "status": "Success"},
    ],
)
def test_a_list_that_is_not_whole_is_not_an_empty_one(server: Server, found: dict[str, Any]) -> None:
    server.body = json.dumps(found).encode()
    with pytest.raises(TemporaryFailure, match="is not the API server's"):
        list(server.client().list("/api/v1/nodes"))


def test_a_server_that_does_not_answer_is_named_as_one_writes_it(server: Server) -> None:
    with socket.create_server((server.host, 0), family=family(server.host)) as taken:
        server.port = taken.getsockname()[1]
    with pytest.raises(TemporaryFailure, match="does not answer: GET") as caught:
        server.client().get(NODE)
    host = f"[{server.host}]" if ":" in server.host else server.host
    assert caught.value.details[0].startswith(f"https://{host}:{server.port}: ")
