"""Downloads: conditional requests, digests, busy and broken servers, and a cache that runs may share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import httpx2
import pytest

from driverforge_build.fetch.cache import Cache, KeptAnswer, default_folder
from driverforge_build.fetch.fetcher import Fetcher, Quiet
from driverforge_build.ports import Blob, DatedDocument, LastRead, NotThere
from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure, Unavailable
from support.fakes import mirror
from support.fakes.mirror import Answer
from support.process import missing
from support.samples.aptrepo import self_signed, served

URL = "http://mirror.site/debian/dists/bookworm/InRelease"
YESTERDAY = "Fri, 20 Nov 2026 22:17:41 GMT"
ATTEMPTS = 5


class Server:
    """Answers by a function, and remembers the requests."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = answer

    def fetcher(
        self, folder: Path, *, offline: bool = False, now: Callable[[], datetime] | None = None
    ) -> Fetcher:
        def handle(request: httpx2.Request) -> httpx2.Response:
            self.requests.append(request)
            return self._answer(request)

        return Fetcher(Cache(folder), None) if offline else mirror.fetcher(folder, handle, now=now)


class Body(httpx2.SyncByteStream):
    """A body that arrives in pieces; `torn` breaks it off at its end."""

    def __init__(self, content: bytes, *, torn: bool = False) -> None:
        self._content, self._torn = content, torn

    def __iter__(self) -> Iterator[bytes]:
        yield from (self._content[start : start + 3] for start in range(0, len(self._content), 3))
        if self._torn:
            raise httpx2.ReadError("connection reset")


def sent(content: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-length": str(len(content))}, stream=Body(content))


def blob(content: bytes, *urls: str) -> Blob:
    return Blob(
        urls=urls or ("http://mirror.site/pool/a.deb",),
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"etag": '"7"'}, ("if-none-match", '"7"')),
        ({"last-modified": YESTERDAY}, ("if-modified-since", YESTERDAY)),
    ],
)
def test_a_document_is_asked_for_again_conditionally(
    tmp_path: Path, given: dict[str, str], asked: tuple[str, str]
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return (
            httpx2.Response(304)
            if asked[0] in request.headers
            else httpx2.Response(200, headers=given, content=b"one")
        )

    server = Server(answer)
    assert server.fetcher(tmp_path).document(URL) == b"one"
    assert server.fetcher(tmp_path).document(URL) == b"one"
    assert server.requests[1].headers[asked[0]] == asked[1]
    assert len(server.requests) == 2


@pytest.mark.parametrize("header", ["etag", "last-modified"])
def test_a_mark_that_no_request_can_hold_is_not_sent_back(tmp_path: Path, header: str) -> None:
    """Kept with the document, it would end every later run."""
    server = Server(lambda _: httpx2.Response(200, headers=[(header, "\u00e9".encode())], content=b"one"))
    assert [server.fetcher(tmp_path).document(URL) for _ in range(2)] == [b"one", b"one"]
    assert not {"if-none-match", "if-modified-since"} & set(server.requests[1].headers)


def test_a_kept_copy_is_as_old_as_the_last_answer_that_it_is_the_same(tmp_path: Path) -> None:
    answers = iter([httpx2.Response(200, headers={"etag": '"7"'}, content=b"one"), httpx2.Response(304)])
    server = Server(lambda _: next(answers))
    days = [datetime(2026, 11, day, 12, tzinfo=timezone.utc) for day in (20, 21)]
    for day in days:
        found = server.fetcher(tmp_path, now=lambda day=day: day).dated_document(URL)
        assert found.last_read == LastRead(fresh=True, time=f"2026-11-{day.day}T12:00:00Z")
    kept = server.fetcher(tmp_path, offline=True).dated_document(URL)
    assert kept == DatedDocument(body=b"one", last_read=LastRead(fresh=False, time="2026-11-21T12:00:00Z"))


class FullCache(Cache):
    """One on a disk where nothing more fits."""

    def keep(self, document: KeptAnswer) -> None:
        raise StorageFailed("no space left")


def test_a_copy_that_is_still_the_same_needs_no_space(tmp_path: Path) -> None:
    """Its date alone stays behind."""
    Server(lambda _: httpx2.Response(200, headers={"etag": '"7"'}, content=b"one")).fetcher(
        tmp_path
    ).document(URL)
    same = mirror.fetcher(tmp_path, lambda _: httpx2.Response(304), cache=FullCache)
    assert same.document(URL) == b"one"
    other = mirror.fetcher(tmp_path, lambda _: httpx2.Response(200, content=b"two"), cache=FullCache)
    with pytest.raises(StorageFailed):
        other.document(URL)


def test_a_copy_that_an_earlier_version_kept_has_no_date(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(200, content=b"one"))
    server.fetcher(tmp_path).document(URL)
    (kept,) = (tmp_path / "documents").iterdir()
    head, _, body = kept.read_bytes().partition(b"\n")
    fields = json.loads(head)
    del fields["read"]
    kept.write_bytes(json.dumps(fields).encode() + b"\n" + body)
    found = server.fetcher(tmp_path, offline=True).dated_document(URL)
    assert found.last_read == LastRead(fresh=False, time="")


def test_a_changed_document_replaces_the_kept_one(tmp_path: Path) -> None:
    contents = iter([b"one", b"two"])
    server = Server(lambda _: httpx2.Response(200, headers={"etag": '"1"'}, content=next(contents)))
    assert [server.fetcher(tmp_path).document(URL) for _ in range(2)] == [b"one", b"two"]
    assert server.fetcher(tmp_path, offline=True).document(URL) == b"two"


def test_a_damaged_copy_is_not_believed(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(200, headers={"etag": '"1"'}, content=b"one"))
    server.fetcher(tmp_path).document(URL)
    (kept,) = (path for path in (tmp_path / "documents").iterdir())
    kept.write_bytes(kept.read_bytes()[:-1])
    assert server.fetcher(tmp_path).document(URL) == b"one"
    assert "if-none-match" not in server.requests[-1].headers


def test_offline_without_a_copy(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(200))
    with pytest.raises(Unavailable, match="not in the cache"):
        server.fetcher(tmp_path, offline=True).document(URL)
    with pytest.raises(Unavailable, match="not in the cache"):
        server.fetcher(tmp_path, offline=True).blob(blob(b"x"))
    assert server.requests == []


def test_a_blob_is_downloaded_once(tmp_path: Path) -> None:
    server = Server(lambda _: sent(b"package"))
    paths = {server.fetcher(tmp_path).blob(blob(b"package")) for _ in range(3)}
    assert [path.read_bytes() for path in paths] == [b"package"]
    assert len(server.requests) == 1


def test_a_damaged_blob_is_downloaded_again(tmp_path: Path) -> None:
    server = Server(lambda _: sent(b"package"))
    path = server.fetcher(tmp_path).blob(blob(b"package"))
    path.write_bytes(b"pack\0ge")
    assert server.fetcher(tmp_path).blob(blob(b"package")).read_bytes() == b"package"
    assert len(server.requests) == 2


@pytest.mark.parametrize("content", [b"packag", b"packagE", b"package and more"])
def test_what_is_not_the_pinned_content_is_never_kept(tmp_path: Path, content: bytes) -> None:
    server = Server(lambda _: sent(content))
    with pytest.raises(TemporaryFailure, match="not what the signed index says") as told:
        server.fetcher(tmp_path).blob(blob(b"package"))
    assert any(hashlib.sha256(b"package").hexdigest() in line for line in told.value.details)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_damaged_blob_is_removed_and_a_good_one_is_for_everybody(tmp_path: Path) -> None:
    """A cache may be shared by several users, and what is damaged takes space for nothing."""
    path = Server(lambda _: sent(b"bytes")).fetcher(tmp_path).blob(blob(b"bytes"))
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_bytes(b"other")
    assert Cache(tmp_path).blob(blob(b"bytes").sha256) is None
    assert not path.exists()


def test_the_plain_name_serves_where_there_is_no_by_hash(tmp_path: Path) -> None:
    server = Server(lambda request: httpx2.Response(404) if "by-hash" in request.url.path else sent(b"index"))
    urls = ("http://mirror.site/by-hash/SHA256/1", "http://mirror.site/Packages.xz")
    assert server.fetcher(tmp_path).blob(blob(b"index", *urls)).read_bytes() == b"index"
    assert [request.url.path for request in server.requests] == ["/by-hash/SHA256/1", "/Packages.xz"]


def test_a_file_that_nobody_knows_is_measured_and_not_kept(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    found = Server(lambda _: sent(content)).fetcher(tmp_path).measured(URL, head=10, limit=len(content))
    assert (found.sha256, found.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert found.head == content[:10]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_without_an_end_is_left(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="more than 999 bytes"):
        Server(lambda _: sent(b"0" * 1000)).fetcher(tmp_path).measured(URL, head=10, limit=999)


def test_a_file_that_is_packed_though_nobody_asked_is_not_measured(tmp_path: Path) -> None:
    packed = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=Body(b"x"))
    with pytest.raises(Unavailable, match=r"encoded \(gzip\)"):
        Server(lambda _: packed).fetcher(tmp_path).measured(URL, head=1, limit=9)


def test_a_file_that_ends_with_the_connection_is_not_measured(tmp_path: Path) -> None:
    unknown = httpx2.Response(200, stream=Body(b"half"))
    with pytest.raises(Unavailable, match="does not say how long the file is"):
        Server(lambda _: unknown).fetcher(tmp_path).measured(URL, head=1, limit=9)


def test_a_download_that_breaks_is_measured_from_its_beginning(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise httpx2.ReadError("gone")

    answers = iter([httpx2.Response(200, content=broken()), sent(b"whole")])
    found = Server(lambda _: next(answers)).fetcher(tmp_path).measured(URL, head=10, limit=10)
    assert (found.size, found.head) == (5, b"whole")


def test_offline_measures_what_is_on_disk_alone(tmp_path: Path) -> None:
    fetcher = Server(lambda _: sent(b"")).fetcher(tmp_path, offline=True)
    (tmp_path / "a b").write_bytes(b"here")
    assert fetcher.measured((tmp_path / "a b").as_uri(), head=2, limit=10).head == b"he"
    with pytest.raises(Unavailable, match="not in the cache"):
        fetcher.measured(URL, head=2, limit=10)


def test_a_missing_document_is_told_at_once(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(404))
    with pytest.raises(NotThere) as told:
        server.fetcher(tmp_path).document(URL)
    assert URL in told.value.brief
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(tmp_path: Path, status: int) -> None:
    answers = iter([httpx2.Response(status), httpx2.Response(status), httpx2.Response(200, content=b"one")])
    assert Server(lambda _: next(answers)).fetcher(tmp_path).document(URL) == b"one"


def test_a_server_that_stays_busy_is_a_temporary_failure(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(503, headers={"retry-after": "1"}))
    with pytest.raises(TemporaryFailure, match=r"mirror\.site is busy") as told:
        server.fetcher(tmp_path).document(URL)
    assert len(server.requests) == ATTEMPTS
    assert told.value.exit_code == 75


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_not_repeated(tmp_path: Path, status: int) -> None:
    server = Server(lambda _: httpx2.Response(status))
    with pytest.raises(Unavailable, match="refuses"):
        server.fetcher(tmp_path).document(URL)
    assert len(server.requests) == 1


def test_a_login_page_is_not_taken_for_a_repository(tmp_path: Path) -> None:
    server = Server(lambda _: sent(b"\n<!DOCTYPE html><title>Welcome to the airport</title>"))
    with pytest.raises(Unavailable, match=r"mirror\.site answers with a web page"):
        server.fetcher(tmp_path).document(URL)
    with pytest.raises(Unavailable, match="not in the cache"):
        server.fetcher(tmp_path, offline=True).document(URL)


def test_a_proxy_that_wants_a_login_is_told_as_the_proxy(tmp_path: Path) -> None:
    server = Server(lambda _: httpx2.Response(407))
    with pytest.raises(Unavailable, match="the proxy wants a login"):
        server.fetcher(tmp_path).document(URL)


def test_a_proxy_that_refuses_is_not_the_mirrors_fault(tmp_path: Path) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ProxyError("403 Forbidden", request=request)

    with pytest.raises(Unavailable, match=r"the proxy does not let us through to mirror\.site"):
        Server(refuse).fetcher(tmp_path).document(URL)


def test_no_answer_is_a_temporary_failure(tmp_path: Path) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("Name or service not known", request=request)

    server = Server(answer)
    with pytest.raises(TemporaryFailure, match=r"mirror\.site does not answer") as told:
        server.fetcher(tmp_path).document(URL)
    assert len(server.requests) == ATTEMPTS
    assert any("Name or service not known" in line for line in told.value.details)


def test_a_body_that_breaks_off_is_asked_for_again(tmp_path: Path) -> None:
    answers = iter([httpx2.Response(200, stream=Body(b"pack", torn=True)), sent(b"package")])
    assert Server(lambda _: next(answers)).fetcher(tmp_path).blob(blob(b"package")).read_bytes() == b"package"


def test_progress_names_no_password(tmp_path: Path) -> None:
    named: list[str] = []

    class Names(Quiet):
        @contextmanager
        def download(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
            named.append(name)
            yield lambda _: None

    fetcher = mirror.fetcher(tmp_path, lambda _: sent(b"one"), progress=Names())
    fetcher.document("http://user:secret@mirror.site/InRelease")
    fetcher.document("http://user:secret@mirror.site/dists/bookworm/InRelease")
    assert named == ["user:***@mirror.site/InRelease", "bookworm/InRelease"]


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    url = "http://user:secret@mirror.site/debian/x"
    with pytest.raises(NotThere) as told:
        Server(lambda _: httpx2.Response(404)).fetcher(tmp_path).document(url)
    assert "http://user:***@mirror.site/debian/x" in told.value.brief
    assert "secret" not in told.value.render()


def test_passwords_are_not_kept(tmp_path: Path) -> None:
    Server(lambda _: sent(b"hello")).fetcher(tmp_path).document("http://user:secret@mirror.site/InRelease")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"secret" in path.read_bytes()]


def test_an_address_of_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ftp"):
        mirror.fetcher(tmp_path).document("ftp://mirror.site/debian")


@pytest.mark.parametrize("address", ["http://mirror:abc/debian", "http://mirror.site/\x7f"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError) as told:
        Server(lambda _: sent(b"one")).fetcher(tmp_path).document(address)
    assert address in told.value.brief
    assert "http://" in told.value.resolution


def test_redirects_without_end(tmp_path: Path) -> None:
    server = Server(lambda request: httpx2.Response(302, headers={"location": str(request.url)}))
    with pytest.raises(Unavailable, match=r"mirror\.site redirects more than 10 times") as told:
        server.fetcher(tmp_path).document(URL)
    assert len(server.requests) == 11
    assert "check the address" in told.value.resolution


def test_file_addresses(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"content")
    fetcher = mirror.fetcher(tmp_path / "cache")
    assert fetcher.document((tmp_path / "a b").as_uri()) == b"content"
    assert fetcher.blob(blob(b"content", (tmp_path / "a b").as_uri())).read_bytes() == b"content"
    with pytest.raises(NotThere):
        fetcher.document((tmp_path / "nothing").as_uri())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")
    with pytest.raises(StorageFailed) as told:
        Server(lambda _: sent(b"package")).fetcher(tmp_path).blob(blob(b"package"))
    assert "--cache-dir" in told.value.resolution


def test_a_real_server_answers_not_modified(tmp_path: Path) -> None:
    """With sockets: truststore's context, streams and If-Modified-Since as they really are."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "InRelease").write_text("one")
    (folder / "a.deb").write_bytes(b"package" * 100_000)
    with served(folder) as server:
        fetcher = mirror.fetcher(tmp_path / "cache")
        assert [fetcher.document(f"{server.url}/InRelease") for _ in range(2)] == [b"one", b"one"]
        assert fetcher.blob(blob(b"package" * 100_000, f"{server.url}/a.deb")).stat().st_size == 700_000
        assert server.requests == ["GET /InRelease", "GET /InRelease", "GET /a.deb"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert default_folder() == Path("/var/cache/me/driverforge")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert default_folder() == Path.home() / ".cache/driverforge"


def test_a_proxy_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is asked for whole addresses; this one is a folder with such names."""
    document = tmp_path / "http:/mirror.site/debian/InRelease"
    document.parent.mkdir(parents=True)
    document.write_text("through the proxy")
    with served(tmp_path) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        fetcher = mirror.fetcher(tmp_path / "cache")
        assert fetcher.document("http://mirror.site/debian/InRelease") == b"through the proxy"


@pytest.mark.skipif(bool(missing("openssl")), reason="not installed: openssl")
def test_a_sites_own_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "InRelease").write_text("over TLS")
    certificate = self_signed(tmp_path / "tls")
    with served(tmp_path, certificate=certificate) as server:
        strict = mirror.fetcher(tmp_path / "cache")
        with pytest.raises(Unavailable, match="a certificate that this machine does not trust") as told:
            strict.document(f"{server.url}/InRelease")
        assert "SSL_CERT_FILE" in told.value.resolution
        assert told.value.exit_code == 69
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusting = mirror.fetcher(tmp_path / "cache")
        assert trusting.document(f"{server.url}/InRelease") == b"over TLS"
