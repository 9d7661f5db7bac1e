"""Transports against servers on the loopback: plain, with a private authority, behind a proxy, broken ones.

The standard library's is for nodes; the operator's does the same over httpx2.
"""

from __future__ import annotations

import io
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest

from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.auth import Login
from driverforge_oci.http import UrllibTransport, http_transport
from driverforge_oci.transport import Request, Transport
from driverforge_operator.cluster.web import RegistryTransport
from support.fakes import tunnel


class Makes(Protocol):
    """Makes a transport."""

    def __call__(self, environ: Mapping[str, str], *, timeout: float = 30) -> Transport: ...


@pytest.fixture(params=[UrllibTransport, RegistryTransport], ids=["urllib", "httpx2"])
def transport(request: pytest.FixtureRequest) -> Makes:
    found: Makes = request.param
    return found


@dataclass(slots=True)
class Server:
    port: int
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)  # request line, Authorization, body


def _handler(seen: list[tuple[str, str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((self.requestline, self.headers.get("Authorization", ""), body))
            busy = self.path.endswith("/busy") and len(seen) == 1
            self.send_response(
                503
                if busy
                else 302
                if self.path.endswith("/moved")
                else 404
                if self.path.endswith("/nothing")
                else 200
            )
            self.send_header("X-Case", "Kept")
            self.send_header("WWW-Authenticate", 'Bearer realm="https://auth.site/token"')
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Location", "file:///etc/passwd")
            self.send_header("Content-Length", "999" if self.path.endswith("/short") else "5")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b"bytes")
            self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815 -- http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            return

    return Handler


@contextmanager
def _serve(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    seen: list[tuple[str, str, bytes]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(seen)) as http:
        if context:
            http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Server(port=http.server_port, seen=seen)
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with _serve() as running:
        yield running


def _get(url: str, method: str = "GET") -> Request:
    return Request(method=method, url=url)


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/nothing", 404), ("/busy", 503), ("/moved", 302)])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_status_is_an_answer(
    transport: Makes, server: Server, path: str, status: int, method: str
) -> None:
    response = transport({}, timeout=10).send(_get(f"http://127.0.0.1:{server.port}{path}", method))
    assert response.status == status
    assert response.headers["x-case"] == "Kept"
    # of two headers of one name both count
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.read(100) == (b"bytes" if method == "GET" else b"")
    assert len(server.seen) == 1


def test_a_stream_is_sent_whole(transport: Makes, server: Server) -> None:
    data = b"x" * 1_000_000
    headers = {"Content-Length": str(len(data)), "Authorization": "Basic abc"}
    stream = io.BytesIO(data)
    request = Request(
        method="PUT", url=f"http://127.0.0.1:{server.port}/", headers=headers, body=lambda: stream
    )
    transport({}).send(request).body.close()
    assert server.seen == [("PUT / HTTP/1.1", "Basic abc", data)]
    assert stream.closed


def test_retries_are_built_in(server: Server) -> None:
    response = http_transport({}).send(_get(f"http://127.0.0.1:{server.port}/busy"))
    assert response.read(100) == b"bytes"
    assert len(server.seen) == 2


def test_a_proxy_is_used_except_for_what_no_proxy_names(transport: Makes, server: Server) -> None:
    environ = {"HTTP_PROXY": f"127.0.0.1:{server.port}", "no_proxy": "direct.invalid"}
    web = transport(environ, timeout=10)
    assert web.send(_get("http://registry.invalid/v2/")).read(100) == b"bytes"
    assert server.seen[0][0] == "GET http://registry.invalid/v2/ HTTP/1.1"
    with pytest.raises(TemporaryFailure, match=r"no answer from direct\.invalid"):
        web.send(_get("http://direct.invalid/v2/"))
    assert web.send(_get(f"http://localhost:{server.port}/v2/")).read(100) == b"bytes"
    assert [line for line, _, _ in server.seen[1:]] == ["GET /v2/ HTTP/1.1"]


def test_no_answer_names_the_host_and_never_the_query(transport: Makes) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(TemporaryFailure) as caught:
            transport({}).send(_get(f"http://127.0.0.1:{port}/v2/?signature=secret"))
    assert f"127.0.0.1:{port}" in caught.value.brief
    assert "refused" in caught.value.brief
    assert "secret" not in caught.value.render()


@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1:1/v2/", "ftp://user:secret@registry.site/v2/"])
def test_a_login_in_an_address_is_in_no_message(transport: Makes, url: str) -> None:
    with pytest.raises(Unavailable) as failed:
        transport({}).send(_get(url))
    assert "secret" not in f"{failed.value.brief} {failed.value.details}"


def test_a_host_that_does_not_resolve_is_said_in_words(transport: Makes) -> None:
    with pytest.raises(
        TemporaryFailure, match=r"no answer from registry\.invalid: a name does not resolve"
    ) as caught:
        transport({}).send(Request(method="GET", url="https://registry.invalid/v2/"))
    assert "Errno" not in caught.value.render()
    assert "DNS" in caught.value.resolution


def test_a_server_that_never_answers(transport: Makes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TemporaryFailure) as caught:
        transport({}, timeout=0.2).send(_get(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
    assert caught.value.brief.endswith("connected, but nothing came for 0.2 s (timed out)")


def test_a_host_name_that_no_resolver_takes(transport: Makes) -> None:
    with pytest.raises(TemporaryFailure, match="no answer from"):
        transport({}).send(_get(f"http://{'a' * 64}.invalid/"))


@pytest.mark.parametrize("size", [100, 999])
def test_an_answer_that_breaks_off(transport: Makes, server: Server, size: int) -> None:
    response = transport({}).send(_get(f"http://127.0.0.1:{server.port}/short"))
    with pytest.raises(TemporaryFailure, match="in the middle of an answer"):
        response.read(size)


def test_only_web_addresses_are_opened(transport: Makes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(Unavailable, match="is not a web address"):
        transport({}).send(_get(f"file://{tmp_path}/secret"))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server with TLS, and the file of its authority; 0.0.0.0 is a name for which proxies are asked."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:0.0.0.0"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *kind, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with _serve(context) as server:
        yield server, certificate


def test_a_private_authority_is_trusted_through_ssl_cert_file(
    transport: Makes, secured: tuple[Server, Path]
) -> None:
    server, authority = secured
    request = _get(f"https://localhost:{server.port}/")
    assert transport({"SSL_CERT_FILE": str(authority)}).send(request).read(100) == b"bytes"
    with pytest.raises(TemporaryFailure, match="CERTIFICATE_VERIFY_FAILED"):
        transport({}).send(request)


def test_a_proxy_with_a_login_makes_a_tunnel(transport: Makes, secured: tuple[Server, Path]) -> None:
    server, authority = secured
    place = f"0.0.0.0:{server.port}"
    request = _get(f"https://{place}/")
    with tunnel.serve(Login(user="site", password="p@ss")) as proxy:
        environ = {"SSL_CERT_FILE": str(authority), "HTTPS_PROXY": f"http://site:p%40ss@{proxy.address}"}
        assert transport(environ).send(request).read(100) == b"bytes"
        assert transport({**environ, "no_proxy": "0.0.0.0/8"}).send(request).read(100) == b"bytes"
    assert proxy.asked == {place: 1}
    # a login is the proxy's alone
    assert [login for _, login, _ in server.seen] == ["", ""]


def test_a_proxy_that_refuses_is_told_without_the_login(transport: Makes) -> None:
    with tunnel.serve(Login(user="site", password="p@ss")) as proxy:
        web = transport({"HTTPS_PROXY": f"http://site:wrong@{proxy.address}"})
        with pytest.raises(TemporaryFailure, match=r"no answer from registry\.site: .*407") as caught:
            web.send(_get("https://registry.site/v2/"))
    assert "wrong" not in caught.value.render()


def test_an_authority_that_cannot_be_read_is_said_at_once(transport: Makes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SSL_CERT_FILE="):
        transport({"SSL_CERT_FILE": str(tmp_path / "none.pem")})
    (tmp_path / "bad.pem").write_text("not PEM")
    with pytest.raises(InputError, match="SSL_CERT_FILE="):
        transport({"SSL_CERT_FILE": str(tmp_path / "bad.pem")})
