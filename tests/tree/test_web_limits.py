"""The builder's one client against real servers: slow ones, broken ones, ones that send it elsewhere."""

from __future__ import annotations

import hashlib
import io
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import httpx2
import pytest

from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import STEP, Fetcher
from driverforge_build.fetch.web import REQUESTS_PER_MIRROR, HttpxTransport
from driverforge_build.ports import Blob, NotThere
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.client import RegistryClient
from driverforge_oci.http import UrllibTransport
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Retrying, Spent, Transport
from driverforge_oci.uploads import Upload, Uploads
from driverforge_operator.cluster.web import RegistryTransport
from support.fakes import mirror
from support.fakes.wireserver import answer, talking
from support.process import missing
from support.samples.aptrepo import self_signed

GRACE = 0.1  # seconds, for an answer that never comes to an end
HEAD = answer(length=1_000_000)
CONTENT = random.Random(7).randbytes(200_000)


def get(url: str) -> Request:
    return Request(method="GET", url=url)


def dripping(first: bytes, drop: bytes) -> Callable[[socket.socket, str], None]:
    """A conversation that ends with drop after drop."""

    def drip(connection: socket.socket, _head: str) -> None:
        connection.sendall(first)
        gone = threading.Event()
        for _ in repeat(None):
            connection.sendall(drop)
            gone.wait(0.01)

    return drip


def ask_mirror(address: str, folder: Path) -> None:
    mirror.fetcher(folder, grace=GRACE).document(f"http://{address}/InRelease")


def ask_registry(address: str, _folder: Path) -> None:
    client = RegistryClient(Session(HttpxTransport({}, grace=GRACE)))
    client.get_manifest(Reference.parse(f"{address}/driver:1"))


def test_a_run_asks_a_host_so_many_times_and_no_more(tmp_path: Path) -> None:
    """A matrix may name any number of repositories at one host."""
    asked: list[str] = []

    def answered(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(200, content=b"x")

    pauses: list[float] = []
    web = HttpxTransport({}, in_all=3, wire=httpx2.MockTransport(answered))
    many = Fetcher(Cache(tmp_path), Retrying(inner=web, wait=pauses.append, now=lambda: 0.0))
    for number in range(3):
        many.document(f"http://mirror.site/{number}")
    with pytest.raises(Spent, match=r"mirror\.site was asked 3 times") as told:
        many.document("http://mirror.site/again")
    assert "run the same command again" in told.value.resolution
    many.document("http://other.site/0")
    assert (len(asked), pauses) == (4, [])


@pytest.mark.parametrize("ask", [ask_mirror, ask_registry])
@pytest.mark.parametrize(
    ("first", "drop"),
    [
        pytest.param(HEAD, b"x", id="content"),
        pytest.param(HEAD[:-4] + b"\r\nX-Long: ", b"x", id="headers"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="interim answers"),
    ],
)
def test_a_server_that_lets_its_answer_drip_is_left(
    ask: Callable[[str, Path], None], first: bytes, drop: bytes, tmp_path: Path
) -> None:
    """Each drop comes in time; without a limit on the whole the wait has no end."""
    with talking(dripping(first, drop)) as server, pytest.raises(TemporaryFailure) as caught:
        ask(server.address, tmp_path)
    assert caught.value.brief.startswith(f"{server.address} is too slow: ")
    assert caught.value.resolution


def flooding(first: bytes, piece: bytes) -> Callable[[socket.socket, str], None]:
    """A conversation that never comes to an end, as fast as it can."""

    def flood(connection: socket.socket, _head: str) -> None:
        connection.sendall(first)
        for _ in repeat(None):
            connection.sendall(piece)

    return flood


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        pytest.param(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 500, id="interim answers"),
        # so long that one byte of content in each earns less time than it takes, however fast the machine
        pytest.param(CHUNKED, b"1;" + b"x" * 60_000 + b"\r\nx\r\n", id="extensions of chunks"),
    ],
)
def test_a_server_that_talks_much_and_says_nothing_is_left(
    first: bytes, piece: bytes, tmp_path: Path
) -> None:
    with (
        talking(flooding(first, piece)) as server,
        pytest.raises(TemporaryFailure, match=f"{server.address} is too slow: "),
    ):
        ask_mirror(server.address, tmp_path)


@pytest.mark.skipif(bool(missing("openssl")), reason="not installed: openssl")
def test_an_answer_that_drips_through_tls_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    fetcher = mirror.fetcher(tmp_path, grace=0.3)
    conversation = dripping(HEAD[:-4], b"x")
    with (
        talking(conversation, certificate=certificate) as server,
        pytest.raises(TemporaryFailure, match="is too slow: "),
    ):
        fetcher.document(f"https://{server.address}/InRelease")


@pytest.mark.skipif(bool(missing("openssl")), reason="not installed: openssl")
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_proxy_with_tls_is_trusted_by_the_same_authorities(scheme: str, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    with talking(
        lambda connection, _: connection.sendall(answer(b"by proxy")), certificate=certificate
    ) as proxy:
        environ = {"HTTP_PROXY": f"{scheme}://{proxy.address}", "SSL_CERT_FILE": str(certificate)}
        assert HttpxTransport(environ).send(get("http://mirror.invalid/")).read(100) == b"by proxy"


def test_a_slow_answer_that_goes_on_coming_is_waited_for(tmp_path: Path) -> None:
    """What has come earns the time for the rest."""

    def slow(connection: socket.socket, _head: str) -> None:
        connection.sendall(answer(length=len(CONTENT)))
        for start in range(0, len(CONTENT), 8_000):
            connection.sendall(CONTENT[start : start + 8_000])
            threading.Event().wait(0.1)

    with talking(slow) as server:
        found = mirror.fetcher(tmp_path, grace=2).document(f"http://{server.address}/InRelease")
    assert found == CONTENT


def package(address: str, content: bytes = CONTENT) -> Blob:
    digest = hashlib.sha256(content).hexdigest()
    return Blob(urls=(f"http://{address}/pool/a.deb",), sha256=digest, size=len(content))


def rest_of(content: bytes, head: str) -> tuple[int, bytes]:
    """Where a request with Range begins, and what it asks for."""
    lines = [line for line in head.split("\r\n") if line.lower().startswith("range: bytes=")]
    start = int(lines[0].partition("=")[2].removesuffix("-")) if lines else 0
    return start, content[start:]


def breaking(content: bytes, piece: int) -> Callable[[socket.socket, str], None]:
    """A conversation that gives what is asked for, but never more than a piece of it."""

    def talk(connection: socket.socket, head: str) -> None:
        start, rest = rest_of(content, head)
        headers = {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        status = "206 Partial Content" if start else "200 OK"
        connection.sendall(answer(rest[:piece], status=status, length=len(rest), **headers))

    return talk


def test_a_download_goes_on_where_its_connection_broke(tmp_path: Path) -> None:
    with talking(breaking(CONTENT, 150_000)) as server:
        path = mirror.fetcher(tmp_path).blob(package(server.address))
    assert path.read_bytes() == CONTENT
    assert server.asked("range") == ["", "bytes=150000-"]


def test_a_download_that_gets_on_is_not_given_up(tmp_path: Path) -> None:
    """A package of 300 MB over a line that breaks every few MB."""
    content = random.Random(8).randbytes(8 * STEP)
    with talking(breaking(content, STEP)) as server:
        path = mirror.fetcher(tmp_path).blob(package(server.address, content))
    assert path.read_bytes() == content
    assert len(server.heads) == 8


@pytest.mark.parametrize(
    ("status", "content_range"),
    [
        ("206 Partial Content", "bytes 5-199999/200000"),
        ("206 Partial Content", "nonsense"),
        ("416 Range Not Satisfiable", "bytes */200000"),
        ("200 OK", ""),
    ],
)
def test_a_server_that_gives_another_part_is_asked_for_the_whole(
    status: str, content_range: str, tmp_path: Path
) -> None:
    def talk(connection: socket.socket, head: str) -> None:
        if "range: " in head.lower() and not status.startswith("200"):
            connection.sendall(answer(b"wrong", status=status, Content_Range=content_range))
        else:
            first = len(server.heads) == 1
            connection.sendall(answer(CONTENT[:90_000] if first else CONTENT, length=len(CONTENT)))

    with talking(talk) as server:
        path = mirror.fetcher(tmp_path).blob(package(server.address))
    assert path.read_bytes() == CONTENT
    assert server.asked("range")[1] == "bytes=90000-"


@pytest.mark.parametrize(
    "transport",
    [
        HttpxTransport({}, timeout=0.3, grace=0.3),
        UrllibTransport({}, timeout=0.3),
        RegistryTransport({}, timeout=0.3),
    ],
)
def test_a_registry_that_still_digests_is_waited_for(transport: Transport) -> None:
    """It answers the commit of 512 MB when it has them all, which takes longer than any other answer may."""
    digests, gave_up = threading.Event(), threading.Event()

    def talk(connection: socket.socket, head: str) -> None:
        if head.startswith("PUT "):
            digests.set()
        gave_up.wait()
        connection.sendall(answer(status="201 Created"))

    with talking(talk) as server, ThreadPoolExecutor(1) as pool:
        place, upload = Reference.parse(f"{server.address}/driver:1"), Upload(location="/a", offset=512 << 20)
        commit = pool.submit(Uploads(Session(transport)).finish, place, upload, f"sha256:{'a' * 64}")
        digests.wait()
        try:
            # two, for what a request has sent earns it a moment
            for _ in range(2):
                with pytest.raises(TemporaryFailure):
                    transport.send(get(f"http://{server.address}/"))
        finally:
            gave_up.set()
        commit.result()


@pytest.mark.parametrize("transport", [HttpxTransport({}), RegistryTransport({})])
def test_a_header_that_cannot_be_sent_is_not_shown(transport: Transport) -> None:
    headers = {"Authorization": "Bearer secret "}
    with talking(lambda _connection, _head: None) as server, pytest.raises(TemporaryFailure) as caught:
        transport.send(Request(method="GET", url=f"http://{server.address}/v2/", headers=headers))
    assert caught.value.brief.startswith(f"{server.address} was not asked: ")
    assert "secret" not in caught.value.render()


def test_no_host_gets_more_requests_at_a_time_than_it_may(tmp_path: Path) -> None:
    """Also one that others send us to. As many come together, and one more does not while they wait."""
    full = threading.Barrier(REQUESTS_PER_MIRROR, timeout=60)
    too_full = threading.Barrier(REQUESTS_PER_MIRROR + 1, timeout=2)
    too_many: list[str] = []

    def talk(connection: socket.socket, head: str) -> None:
        full.wait()
        with suppress(threading.BrokenBarrierError):
            too_full.wait()
            too_many.append(head)
        connection.sendall(answer(head.split()[1].encode(), Connection="close"))

    with talking(talk) as server:

        def moved(connection: socket.socket, head: str) -> None:
            target = f"http://{server.address}{head.split()[1]}"
            connection.sendall(answer(status="302 Found", Location=target, Connection="close"))

        fetcher = mirror.fetcher(tmp_path)
        with talking(moved) as one, talking(moved) as two, ThreadPoolExecutor(12) as pool:
            urls = [f"http://{(one, two)[n % 2].address}/{n}" for n in range(12)]
            found = list(pool.map(fetcher.document, urls))
    assert found == [f"/{n}".encode() for n in range(12)]
    assert too_many == []


def test_a_connection_that_breaks_is_told_by_how_far_it_got(tmp_path: Path) -> None:
    def nothing(_connection: socket.socket, _head: str) -> None: ...

    def half(connection: socket.socket, _head: str) -> None:
        connection.sendall(HEAD + b"half")

    for talk, says in ((nothing, "does not answer: "), (half, "broke the connection in the middle of")):
        with talking(talk) as server, pytest.raises(TemporaryFailure, match=says):
            mirror.fetcher(tmp_path).document(f"http://{server.address}/InRelease")


def test_a_name_that_does_not_resolve_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(TemporaryFailure, match=r"a name does not resolve, the host's or its proxy's"):
        mirror.fetcher(tmp_path).document("http://mirror.invalid/a")


def test_a_download_that_breaks_again_and_again_with_little_in_hand_is_given_up(tmp_path: Path) -> None:
    with talking(breaking(CONTENT, 10_000)) as server, pytest.raises(TemporaryFailure, match="broke"):
        mirror.fetcher(tmp_path).blob(package(server.address))
    assert len(server.heads) == 5


def test_of_a_file_that_is_another_one_no_more_is_read_than_shows_it(tmp_path: Path) -> None:
    sent: list[bytes] = []

    def endless(connection: socket.socket, _head: str) -> None:
        connection.sendall(answer(length=1 << 40))
        for _ in repeat(None):
            connection.sendall(CONTENT)
            sent.append(CONTENT)
            assert len(sent) < 1000, "it is read on and on"

    with talking(endless) as server, pytest.raises(TemporaryFailure, match="is not what the signed index"):
        mirror.fetcher(tmp_path).blob(package(server.address))


def test_what_is_gone_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="the mirror has no "):
        mirror.fetcher(tmp_path, lambda _: httpx2.Response(410)).document("http://mirror.site/a")


def test_an_unchanged_answer_to_a_question_without_conditions_is_none(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="refuses the request"):
        mirror.fetcher(tmp_path, lambda _: httpx2.Response(304)).document("http://mirror.site/a")


def test_what_a_mirror_is_asked_with(tmp_path: Path) -> None:
    """A login as its address quotes it; and a file as it is, whose size is known then."""
    seen: list[httpx2.Headers] = []

    def go(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return httpx2.Response(200, content=b"x")

    mirror.fetcher(tmp_path, go).document("http://me%40site:a%3Ab@mirror.site/a")
    assert (seen[0]["authorization"], seen[0]["accept-encoding"]) == ("Basic bWVAc2l0ZTphOmI=", "identity")


def test_connections_are_kept() -> None:
    def talk(connection: socket.socket, _head: str) -> None:
        for _ in repeat(None):
            connection.sendall(answer(b"bytes"))
            if not connection.recv(65536):
                break

    with talking(talk) as server:
        transport = HttpxTransport({})
        for _ in range(3):
            assert transport.send(get(f"http://{server.address}/v2/")).read(100) == b"bytes"
        assert len(server.heads) == 1
        del transport


def test_a_login_stays_with_its_host(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def go(request: httpx2.Request) -> httpx2.Response:
        seen.append((str(request.url.host), request.headers.get("authorization", "")))
        steps = {"/a": "/b", "/b": "http://mirror.site/c", "/c": "http://cdn.site/d"}
        if (next_one := steps.get(request.url.path)) is None:
            return httpx2.Response(200, content=b"one")
        return httpx2.Response(302, headers={"location": next_one})

    assert mirror.fetcher(tmp_path, go).document("http://user:secret@mirror.site/a") == b"one"
    basic = "Basic dXNlcjpzZWNyZXQ="
    assert seen == [*repeat(("mirror.site", basic), 3), ("cdn.site", "")]


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://mirror.site/plain?sig=secret", "mirror.site sends us to a place without TLS"),
        ("file:///etc/passwd", "mirror.site sends us to an address that is none"),
        ("http://[::1/x", "mirror.site sends us to an address that is none"),
    ],
)
def test_a_place_that_a_redirect_must_not_lead_to(
    scheme: str, location: str, why: str, tmp_path: Path
) -> None:
    def go(request: httpx2.Request) -> httpx2.Response:
        assert request.url.scheme == "https"
        return httpx2.Response(302, headers={"location": location})

    with pytest.raises(Unavailable) as caught:
        mirror.fetcher(tmp_path, go).document(f"{scheme}://mirror.site/a")
    assert caught.value.brief == why
    assert "secret" not in caught.value.render()


def test_what_a_redirect_led_to_is_told_without_its_signature(tmp_path: Path) -> None:
    def go(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "cdn.site":
            return httpx2.Response(403)
        return httpx2.Response(302, headers={"location": "https://cdn.site/x?sig=secret"})

    with pytest.raises(Unavailable, match=r"cdn\.site refuses the request") as caught:
        mirror.fetcher(tmp_path, go).document("https://mirror.site/a")
    assert caught.value.details == ("https://cdn.site/x?***: HTTP 403 Forbidden",)


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://user:secret@proxy.site:1080",
        "http://user:se/cret@proxy.site",
        "http://user:secret@-é.proxy.site:3128",
        "http://user:secret\x7f@proxy.site:3128",
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    with pytest.raises(InputError, match="a proxy of the environment") as caught:
        mirror.fetcher(tmp_path).document("http://mirror.site/x")
    assert "proxy.site" in caught.value.brief
    assert not [part for part in ("secret", "cret", "se/") if part in caught.value.render()]


@pytest.mark.parametrize("url", ["http://user:secret@[::1/x", f"http://user:secret@{'a' * 64}.invalid/x"])
def test_an_address_that_nobody_can_ask_is_told_without_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        mirror.fetcher(tmp_path).document(url)
    assert "http://user:***@" in caught.value.brief
    assert "secret" not in caught.value.render()


def test_a_proxy_is_asked_for_what_is_not_on_this_machine() -> None:
    """One rule for mirrors and registries, that of `proxy_for`."""
    with (
        talking(lambda connection, _: connection.sendall(answer(b"by proxy"))) as proxy,
        talking(lambda connection, _: connection.sendall(answer(b"itself"))) as server,
    ):
        transport = HttpxTransport({"ALL_PROXY": proxy.address})
        assert transport.send(get("http://registry.invalid/v2/")).read(100) == b"by proxy"
        assert transport.send(get(f"http://{server.address}/v2/")).read(100) == b"itself"
    assert [head.partition("\r\n")[0] for head in proxy.heads] == ["GET http://registry.invalid/v2/ HTTP/1.1"]


def test_a_stream_is_sent_whole() -> None:
    taken: list[bytes] = []

    def take(connection: socket.socket, _head: str) -> None:
        while sum(map(len, taken)) < len(CONTENT):
            taken.append(connection.recv(65536))
        connection.sendall(answer(status="201 Created"))

    with talking(take) as server:
        stream = io.BytesIO(CONTENT)
        headers = {"Content-Length": str(len(CONTENT)), "Authorization": "Basic abc"}
        url = f"http://{server.address}/v2/driver/blobs/uploads/1"
        request = Request(method="PUT", url=url, headers=headers, body=lambda: stream)
        assert HttpxTransport({}).send(request).status == 201
    assert b"".join(taken) == CONTENT
    assert server.asked("authorization") == ["basic abc"]
    assert stream.closed
