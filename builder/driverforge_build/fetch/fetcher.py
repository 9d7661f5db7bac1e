"""Reading mirrors by http, https and file addresses.

Requests are conditional, digests are checked while bytes arrive, and busy hosts are asked again. Proxies come
from the environment (http_proxy, https_proxy, no_proxy), certificate authorities from the system's store,
which SSL_CERT_FILE and SSL_CERT_DIR replace.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from driverforge_build.fetch.cache import Cache, KeptAnswer
from driverforge_build.fetch.headers import HeaderTexts
from driverforge_build.ports import Blob, NotThere, without_password
from driverforge_core import __version__
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.transport import asked_to_wait, retry_after

if TYPE_CHECKING:
    import httpx2

_T = TypeVar("_T")

REQUESTS_PER_HOST = 4
"""At the same time. A crawl that opened more had its address banned by a kernel mirror."""

ATTEMPTS = 4
TIMEOUT_S = 30.0
"""For a connection, and between two pieces of an answer."""
LONGEST_PAUSE_S = 60.0
"""A server that asks for a longer one is not waited for."""
DOCUMENT_LIMIT = 16 << 20
"""Bytes. The largest InRelease of a distribution has less than one MiB."""
_REDIRECTS = 20
_CHUNK = 1 << 18
_ONLINE = "run once without --offline"
_NO_ANSWER = (
    "check the network, the proxy (http_proxy, https_proxy, no_proxy) and the mirror, or use --offline"
)
_GIVE_ADDRESS = "give an http://, https:// or file:// address"
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class DownloadListener(Protocol):
    """Who is told about downloads; sizes in bytes, `total` 0 where unknown."""

    def started(self, name: str, total: int) -> None: ...

    def advanced(self, name: str, count: int) -> None: ...

    def finished(self, name: str) -> None: ...


class Quiet:
    """Progress that goes nowhere."""

    def started(self, name: str, total: int) -> None: ...

    def advanced(self, name: str, count: int) -> None: ...

    def finished(self, name: str) -> None: ...


class Fetcher:
    """Downloads into a cache. `offline` answers from the cache alone. Several threads may share one."""

    def __init__(
        self,
        cache: Cache,
        *,
        offline: bool = False,
        progress: DownloadListener | None = None,
        transport: httpx2.BaseTransport | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.cache = cache
        self._texts = HeaderTexts(cache)
        self.offline = offline
        self._progress = progress or Quiet()
        self._transport = transport
        self._timeout = timeout
        self._lock = threading.Lock()
        self._hosts: dict[str, threading.BoundedSemaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(REQUESTS_PER_HOST)
        )
        self._client: httpx2.Client | None = None

    def document(self, url: str) -> bytes:
        """What stands at an address now.

        The kept copy where the server says that it is the same, or when offline. Raises NotThere,
        TemporaryFailure (after some attempts), or Unavailable offline without a copy.
        """
        _check_address(url)
        kept = self.cache.document(url)
        if self.offline:
            if kept is None:
                raise Unavailable(f"{without_password(url)} is not in the cache", resolution=_ONLINE)
            return kept.body
        if (path := _local(url)) is not None:
            return _document(url, _pieces(path, url))
        fresh = self._retried(lambda: self._ask(url, kept))
        if fresh is not kept:
            self.cache.keep(fresh)
        return fresh.body

    def blob(self, blob: Blob) -> Path:
        """The path of a file with that very content; downloaded unless it is kept already."""
        if (kept := self.cache.blob(blob.sha256)) is not None:
            return kept
        if self.offline:
            raise Unavailable(
                f"{blob.name} is not in the cache", details=[f"sha256 {blob.sha256}"], resolution=_ONLINE
            )
        *others, last = blob.urls
        for url in others:
            with suppress(NotThere):
                return self._download(url, blob)
        return self._download(last, blob)

    def headers(self, package: Blob, names: Collection[str]) -> Mapping[str, str | None]:
        """Headers out of a package. It is downloaded for headers that are asked for first, and not kept."""
        members = self._texts.kept(package.sha256, names)
        while members is None:
            deb = self.blob(package)
            try:
                members = self._texts.read(package.sha256, deb, names)
                deb.unlink(missing_ok=True)
            except FileNotFoundError:
                # another run that shares the cache has read the package, and removed it
                members = self._texts.kept(package.sha256, names)
        return members

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _download(self, url: str, blob: Blob) -> Path:
        return self._retried(lambda: self._receive(url, blob))

    def _receive(self, url: str, blob: Blob) -> Path:
        path = self.cache.blob_path(blob.sha256)
        self._progress.started(blob.name, blob.size)
        try:
            with self.cache.new_file(path) as file:
                digest, received = hashlib.sha256(), 0
                for chunk in self._chunks(url):
                    digest.update(chunk)
                    received += file.write(chunk)
                    self._progress.advanced(blob.name, len(chunk))
                    if received > blob.size:
                        break
                _check(url, blob, received, digest.hexdigest())
        finally:
            self._progress.finished(blob.name)
        return path

    def _chunks(self, url: str) -> Iterator[bytes]:
        if (path := _local(url)) is not None:
            yield from _pieces(path, url)
            return
        with self._request(url, {}) as response:
            _judge(response)
            yield from response.iter_raw(_CHUNK)

    def _ask(self, url: str, kept: KeptAnswer | None) -> KeptAnswer:
        headers = {"If-None-Match": kept.etag} if kept and kept.etag else {}
        if kept and kept.last_modified and not headers:
            headers = {"If-Modified-Since": kept.last_modified}
        with self._request(url, headers) as response:
            if response.status_code == 304 and kept is not None:
                return kept
            _judge(response)
            body = _document(url, _as_sent(response))
            _check_document(url, body)
            etag, modified = response.headers.get("etag", ""), response.headers.get("last-modified", "")
        return KeptAnswer(url=url, body=body, etag=etag, last_modified=modified)

    @contextmanager
    def _request(self, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        import httpx2

        with self._lock:
            gate = self._hosts[urlsplit(url).netloc]
            client = self._client = self._client or _client(self._transport, self._timeout)
        with gate:
            try:
                response = _answer(client, client.build_request("GET", url, headers=headers))
                try:
                    yield response
                finally:
                    response.close()
            except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
                raise InputError(f"{without_password(url)}: {error}", resolution=_GIVE_ADDRESS) from error
            except httpx2.ReadTimeout as error:
                raise TemporaryFailure(
                    f"{_host(url)} accepts the connection and sends nothing for {self._timeout:g} s",
                    details=[without_password(url)],
                    resolution=_NO_ANSWER,
                ) from error
            except httpx2.TransportError as error:
                raise _no_answer(url, error) from error
            except httpx2.RequestError as error:
                raise Unavailable(
                    f"{_host(url)} does not answer with a file",
                    details=[without_password(url), f"{type(error).__name__}: {error}"],
                    resolution="check the address given with --mirror: a proxy or the mirror's redirects "
                    "may be at fault",
                ) from error

    def _retried(self, call: Callable[[], _T]) -> _T:
        """The call, again after a growing pause while its failure is one that passes."""
        import stamina

        for attempt in stamina.retry_context(
            on=_pause, attempts=ATTEMPTS, timeout=120, wait_initial=0.5, wait_max=20
        ):
            with attempt:
                return call()
        raise AssertionError("stamina ends by returning or raising")


class _Busy(TemporaryFailure):
    """The server answered that it has no time now; `pause_s` is what it asked for, 0 where it named none."""

    pause_s: float = 0.0


def _pause(error: Exception) -> bool | float:
    if isinstance(error, _Busy) and error.pause_s:
        return error.pause_s if error.pause_s <= LONGEST_PAUSE_S else False
    return isinstance(error, TemporaryFailure)


def _answer(client: httpx2.Client, request: httpx2.Request) -> httpx2.Response:
    """The answer at the end of all redirects, its body still to be read.

    The library would read the body of each redirect into memory, whatever its size.
    """
    import httpx2

    for _ in range(_REDIRECTS + 1):
        response = client.send(request, stream=True)
        if response.next_request is None:
            return response
        response.close()
        request = response.next_request
    raise httpx2.TooManyRedirects(f"more than {_REDIRECTS} redirects", request=request)


def _as_sent(response: httpx2.Response) -> Iterator[bytes]:
    """The body in pieces. One that is compressed, though we asked for it as it is, is refused unread.

    What it would unpack to is the server's choice.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Unavailable(
            f"{response.url.host} sends a file that is encoded ({encoding[:40]}), which was not asked for",
            details=[without_password(str(response.url))],
            resolution="check the address given with --mirror, and the proxy: one of them changes files",
        )
    return response.iter_bytes(_CHUNK)


def _document(url: str, pieces: Iterable[bytes]) -> bytes:
    """A whole document. Raises Unavailable as soon as it is larger than any can be."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > DOCUMENT_LIMIT:
            raise Unavailable(
                f"{_host(url)} sends more than {DOCUMENT_LIMIT >> 20} MiB where a repository's signed file "
                "should be",
                details=[without_password(url)],
                resolution="check the address given with --mirror",
            )
    return bytes(body)


def _client(transport: httpx2.BaseTransport | None, timeout: float) -> httpx2.Client:
    import ssl

    import httpx2
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx2.Client(
            verify=context,
            timeout=timeout,
            transport=transport,
            headers={"User-Agent": f"driverforge/{__version__}", "Accept-Encoding": "identity"},
        )
    except (ValueError, httpx2.InvalidURL) as error:
        raise InputError(
            f"a proxy of the environment is no address: {error}",
            resolution="correct http_proxy, https_proxy or all_proxy, e.g. http://proxy.site:3128",
        ) from error


def _no_answer(url: str, error: httpx2.TransportError) -> Unavailable:
    details = [without_password(url), f"{type(error).__name__}: {error}"]
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Unavailable(
            f"{_host(url)} shows a certificate that this machine does not trust",
            details=details,
            resolution="add your site's authority to the system's, or name its file: "
            "SSL_CERT_FILE=/path/ca.pem",
        )
    if type(error).__name__ == "ProxyError":
        return Unavailable(
            f"the proxy does not let us through to {_host(url)}",
            details=details,
            resolution="check http_proxy, https_proxy and no_proxy, and what the proxy allows; the mirror "
            "itself was not asked",
        )
    return TemporaryFailure(
        f"{_host(url)} does not answer",
        details=details,
        resolution=_NO_ANSWER,
    )


def _judge(response: httpx2.Response) -> None:
    status, url = response.status_code, without_password(str(response.url))
    if status == 200:
        return
    answer = f"{url}: HTTP {status} {response.reason_phrase}"
    if status in (404, 410):
        raise NotThere(
            f"the mirror has no {url}",
            details=[answer],
            resolution="check the address given with --mirror, and the suite",
        )
    if status in _BUSY:
        error = _Busy(
            f"{_host(url)} is busy or broken{asked_to_wait(response.headers)}",
            details=[answer],
            resolution="run the same command again later",
        )
        error.pause_s = retry_after(response.headers.get("retry-after", ""), time.time())
        raise error
    if status == 407:
        raise Unavailable(
            "the proxy wants a login",
            details=[answer],
            resolution="write it into the proxy's address: http://USER:PASSWORD@proxy",
        )
    raise Unavailable(
        f"{_host(url)} refuses the request",
        details=[answer],
        resolution="check the proxy and the mirror's access rules",
    )


def _check_document(url: str, body: bytes) -> None:
    """Raises Unavailable for a web page with status 200.

    A captive portal or a filtering proxy answers so in the mirror's place.
    """
    start = body[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        raise Unavailable(
            f"{_host(url)} answers with a web page where a repository's file should be",
            details=[without_password(url)],
            resolution="open the address in a browser: a proxy or a network's login page may stand between; "
            "or name a mirror with --mirror",
        )


def _check(url: str, blob: Blob, received: int, digest: str) -> None:
    if digest != blob.sha256:
        raise TemporaryFailure(
            f"{blob.name} is not what the signed index says",
            details=[
                without_password(url),
                f"expected {blob.size} bytes, sha256 {blob.sha256}",
                f"received {received} bytes, sha256 {digest}",
            ],
            resolution="the mirror may be in the middle of an update: run the same command again later, or "
            "use another mirror",
        )


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def _check_address(url: str) -> None:
    try:
        urlsplit(url)
    except ValueError as error:
        raise InputError(f"{url!r} is no address: {error}", resolution=_GIVE_ADDRESS) from error


def _local(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _pieces(path: Path, url: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                yield piece
    except (FileNotFoundError, NotADirectoryError):
        raise NotThere(
            f"the mirror has no {without_password(url)}",
            resolution="check the address given with --mirror, and the suite",
        ) from None
    except OSError as error:
        raise Unavailable(
            f"cannot read {url}: {error.strerror}", resolution="give yourself the right to read it"
        ) from error
