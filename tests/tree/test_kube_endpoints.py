"""Pages for kubelets and Prometheus: what they say, and that no client can stop them. Real sockets."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress

import pytest

from driverforge_core.errors import Unavailable
from driverforge_kube.endpoints import AT_ONCE, serving


def served(text: Callable[[], str]) -> AbstractContextManager[int]:
    return serving(("", 0), {"/metrics": lambda: (True, text())})


def fetch(port: int, path: str = "/metrics") -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def test_prometheus_reads_the_page_of_now() -> None:
    pages = iter(("first 1\n", "second 2\n"))
    with served(lambda: next(pages)) as port:
        assert fetch(port) == "first 1\n"
        assert fetch(port, "/metrics?name[]=x") == "second 2\n"


def test_silent_clients_do_not_keep_prometheus_out() -> None:
    """Ten times as many as are served at once, none of which ever says a whole request."""
    with served(lambda: "a 1\n") as port, ExitStack() as stack:
        silent = [stack.enter_context(connect(port)) for _ in range(10 * AT_ONCE)]
        for client in silent[::2]:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert fetch(port) == "a 1\n"
        silent[0].settimeout(30)
        assert silent[0].recv(1) == b"", "the oldest one was ended"


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\xff\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET /etc/passwd HTTP/1.1\r\n\r\n",
    ],
    ids=["bytes", "post", "long", "headers", "another-path"],
)
def test_a_request_that_is_none_of_ours_gets_nothing(request_: bytes) -> None:
    with served(lambda: "secret 1\n") as port:
        answer = b""
        # it may be refused before all of it was sent
        with connect(port) as client, suppress(OSError):
            client.sendall(request_)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(1 << 16)
        assert b"secret" not in answer
        assert fetch(port) == "secret 1\n"


def test_a_page_says_whether_all_is_well() -> None:
    well = [False]
    pages = {"/healthz": lambda: (well[0], "nobody watches nodes"), "/metrics": lambda: (True, "a 1\n")}

    def asked(port: int, path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    with serving(("127.0.0.1", 0), pages) as port:
        assert asked(port, "/healthz") == (503, "nobody watches nodes\n")
        well[0] = True
        assert asked(port, "/healthz?verbose") == (200, "nobody watches nodes\n")
        assert asked(port, "/health") == (404, "there is /healthz, /metrics\n")


@pytest.mark.parametrize("error", [KeyError("gauge"), FileNotFoundError("stat")])
def test_a_page_that_fails_is_logged_and_answered(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> str:
        raise error

    with served(failing) as port:
        with pytest.raises(urllib.error.HTTPError, match="500") as answered:
            fetch(port)
        assert answered.value.read() == b"the page failed; the log says why\n"
        answered.value.close()
    (record,) = caplog.records
    assert vars(record)["fields"] == {"path": "/metrics", "error": repr(error)}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["", "::"])
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_all_addresses_are_those_of_both_families(host: str, client: str) -> None:
    with serving((host, 0), {}) as port, socket.create_connection((client, port), timeout=30):
        pass


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with (
        serving(("", 0), {}) as port,
        pytest.raises(Unavailable, match=f"port {port} cannot be served") as caught,
        serving(("", port), {}, resolution="another one"),
    ):
        pass
    assert caught.value.resolution == "another one"
