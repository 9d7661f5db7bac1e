"""Reading mirrors by http, https and file addresses.

Requests are conditional, digests are checked while bytes arrive, and a download whose connection broke goes
on where it was.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from driverforge_build.fetch.cache import Cache, KeptAnswer
from driverforge_build.fetch.headers import HeaderTexts
from driverforge_build.fetch.packagefile import unpack_package
from driverforge_build.fetch.responses import (
    DOCUMENT_LIMIT,
    check_document,
    check_encoding,
    check_end,
    conditional_headers,
    judge,
    length,
)
from driverforge_build.ports import (
    Algorithm,
    Blob,
    ClientCertificate,
    DatedDocument,
    LastRead,
    Listed,
    Measured,
    NotThere,
    ReadHeaders,
    Sum,
)
from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure, Unavailable
from driverforge_oci.transport import (
    Request,
    Response,
    Retrying,
    host_of,
    is_web_address,
    without_secrets,
)


class Part:
    """What has come of a file so far, with the sum that it is known by and its sha256."""

    def __init__(self, file: IO[bytes], algorithm: Algorithm) -> None:
        self._file = file
        self._algorithms = {algorithm, Algorithm.SHA256}
        self.restart()

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.size, self._sums = 0, {one: hashlib.new(one.value) for one in self._algorithms}

    def add(self, chunk: bytes) -> None:
        self._file.write(chunk)
        for one in self._sums.values():
            one.update(chunk)
        self.size += len(chunk)

    def digest(self, algorithm: Algorithm) -> str:
        return self._sums[algorithm].hexdigest()

    def request(self, url: str) -> Request:
        """For what is missing."""
        headers = {"Range": f"bytes={self.size}-"} if self.size else {}
        return Request(method="GET", url=url, headers=headers)

    def check(self, response: Response, url: str) -> None:
        """Raises where the answer is neither a part nor the whole. Whether it is the right part, the digest
        tells.
        """
        if response.status == 416:
            self.restart()
            raise TemporaryFailure(
                f"{host_of(url)} has no such part of the file any more",
                details=[f"{without_secrets(url)}: HTTP 416"],
                resolution="the mirror may be in the middle of an update: run the same command again later",
            )
        if response.status != 206 or not self.size:
            judge(response, url)
            self.restart()


_T = TypeVar("_T")

STEP = 1 << 20
"""Bytes. A download that got so much further before its host failed is gone on with."""
_CHUNK = 1 << 16
_ONLINE = "run once without --offline"


class DownloadListener(Protocol):
    """Who is told about downloads; sizes in bytes, `total` 0 where unknown."""

    def download(self, name: str, total: int) -> AbstractContextManager[Callable[[int], object]]:
        """Lasts as long as the download; what it gives is called with the size of each piece."""

    def waiting(self, why: str, seconds: float) -> object: ...


class Quiet:
    """Progress that goes nowhere."""

    @contextmanager
    def download(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
        yield lambda _: None

    def waiting(self, why: str, seconds: float) -> object: ...


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Fetcher:
    """Downloads into a cache. Without a transport it answers from the cache alone.

    `certificates` are what the transport shows to hosts, by the host; `now` is UTC and aware. Several threads
    may share one.
    """

    def __init__(
        self,
        cache: Cache,
        transport: Retrying | None,
        *,
        progress: DownloadListener | None = None,
        certificates: MutableMapping[str, ClientCertificate] | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.cache = cache
        self._texts = HeaderTexts(cache)
        self._transport = transport
        self._progress = progress or Quiet()
        self._now = now
        self._certificates = {} if certificates is None else certificates

    def document(self, url: str) -> bytes:
        """What stands at an address now.

        The kept copy where the server says that it is the same, or when offline. Raises NotThere,
        TemporaryFailure (after some attempts), or Unavailable offline without a copy.
        """
        return self.dated_document(url).body

    def dated_document(self, url: str) -> DatedDocument:
        """As `document`. A kept copy is as old as the last answer that it was still the same."""
        kept = self.cache.document(url)
        if self._transport is None:
            if kept is None:
                raise Unavailable(f"{without_secrets(url)} is not in the cache", resolution=_ONLINE)
            return DatedDocument(body=kept.body, last_read=LastRead(fresh=False, time=kept.read))
        request = Request(method="GET", url=url, headers=conditional_headers(kept))
        received = self._received(lambda: request, lambda answer: self._document(url, answer, kept))
        fresh = replace(received, read=f"{self._now():%Y-%m-%dT%H:%M:%SZ}")
        if _local(url) is None:
            try:
                self.cache.keep(fresh)
            except StorageFailed:
                # of a copy that is still the same, the date alone stays behind: no reason to stop a run
                if received is not kept:
                    raise
        return DatedDocument(body=fresh.body, last_read=LastRead(fresh=True, time=fresh.read))

    def blob(self, blob: Blob) -> Path:
        """The path of a file with that very content; downloaded unless it is kept already."""
        if (kept := self.cache.blob(blob.sha256)) is not None:
            return kept
        return self.cache.blob_path(self._fetch(blob.listed))

    def file(self, url: str, *, sha256: str, size: int) -> Path:
        """The same, as driverforge_mirror asks for it."""
        return self.blob(Blob(urls=(url,), sha256=sha256, size=size))

    def pinned(self, file: Listed) -> Blob:
        """The file by its sha256. One with another sum is downloaded for that, and kept, but once."""
        if file.sum.algorithm is Algorithm.SHA256:
            sha256: str | None = file.sum.digest
        else:
            sha256 = self.cache.sha256_of(file.sum)
        if sha256 is None:
            sha256 = self._fetch(file)
            self.cache.keep_sha256(file.sum, sha256)
        return Blob(urls=file.urls, sha256=sha256, size=file.size)

    def measured(self, url: str, *, head: int, limit: int) -> Measured:
        """What a file is that may be anything: no copy is kept, and a broken download begins anew."""
        if self._transport is None and _local(url) is None:
            raise Unavailable(f"{without_secrets(url)} is not in the cache", resolution=_ONLINE)
        request = Request(method="GET", url=url)
        return self._received(lambda: request, lambda answer: self._measured(url, answer, head, limit))

    def identify(self, url: str, certificate: ClientCertificate) -> None:
        """Show a certificate to the host of an address, whenever it is asked."""
        self._certificates[host_of(url)] = certificate

    def headers(self, package: Blob, names: Collection[str], *, abi: str | None = None) -> ReadHeaders:
        """Headers out of a package. It is downloaded for what is asked for first, and not kept."""
        found = self._texts.kept(package.sha256, names, abi)
        while found is None:
            deb = self.blob(package)
            try:
                found = self._texts.read(package.sha256, deb, names, abi)
                deb.unlink(missing_ok=True)
            except FileNotFoundError:
                # another run that shares the cache has read the package, and removed it
                found = self._texts.kept(package.sha256, names, abi)
        return found

    def unpack(self, package: Blob, target: Path) -> None:
        """Put the files of a package below a folder; the package is kept."""
        unpack_package(self.blob(package), target)

    def _received(self, ask: Callable[[], Request], take: Callable[[Response], _T]) -> _T:
        url = ask().url
        if (path := _local(url)) is not None:
            return take(_opened(path, url))
        assert self._transport is not None
        return self._transport.receive(ask, take)

    def _document(self, url: str, response: Response, kept: KeptAnswer | None) -> KeptAnswer:
        # the suite and the file
        name = "/".join(without_secrets(url).split("/")[-2:])
        with closing(response.body), self._progress.download(name, 0) as advanced:
            if response.status == 304 and kept is not None:
                return kept
            judge(response, url)
            check_encoding(response, url)
            body = bytearray()
            while len(body) <= DOCUMENT_LIMIT and (piece := response.body.read(_CHUNK)):
                body += piece
                advanced(len(piece))
        check_document(url, body)
        return KeptAnswer(
            url=url,
            body=bytes(body),
            etag=response.headers.get("etag", ""),
            last_modified=response.headers.get("last-modified", ""),
        )

    def _measured(self, url: str, response: Response, head: int, limit: int) -> Measured:
        name, digest, size, start = without_secrets(url).rpartition("/")[2], hashlib.sha256(), 0, bytearray()
        with closing(response.body), self._progress.download(name, length(response)) as advanced:
            judge(response, url)
            check_encoding(response, url)
            if _local(url) is None:
                check_end(response, url)
            while piece := response.body.read(_CHUNK):
                digest.update(piece)
                size += len(piece)
                start += piece[: max(0, head - len(start))]
                advanced(len(piece))
                if size > limit:
                    raise Unavailable(
                        f"{without_secrets(url)} has more than {limit} bytes", resolution="check the address"
                    )
        return Measured(sha256=digest.hexdigest(), size=size, head=bytes(start))

    def _fetch(self, file: Listed) -> str:
        """Download a file into the cache; its sha256."""
        if self._transport is None:
            raise Unavailable(f"{file.name} is not in the cache", details=[str(file.sum)], resolution=_ONLINE)
        *others, last = file.urls
        for url in others:
            with suppress(NotThere):
                return self._download(url, file)
        return self._download(last, file)

    def _download(self, url: str, wanted: Listed) -> str:
        with self.cache.new_blob(lambda: part.digest(Algorithm.SHA256)) as file:
            part = Part(file, wanted.sum.algorithm)
            while True:
                before = part.size
                try:
                    self._received(
                        lambda: part.request(url), lambda answer: self._append(part, answer, url, wanted)
                    )
                    break
                except TemporaryFailure:
                    if part.size < before + STEP:
                        raise
        return part.digest(Algorithm.SHA256)

    def _append(self, part: Part, response: Response, url: str, wanted: Listed) -> None:
        """Take the rest of a file, or the whole where the server gives no parts."""
        with closing(response.body), self._progress.download(wanted.name, wanted.size) as advanced:
            part.check(response, url)
            advanced(part.size)
            # one piece more than there should be shows that it is another file
            while part.size <= wanted.size and (chunk := response.body.read(_CHUNK)):
                part.add(chunk)
                advanced(len(chunk))
        algorithm = wanted.sum.algorithm
        if (found := Sum(algorithm=algorithm, digest=part.digest(algorithm))) != wanted.sum:
            received = part.size
            part.restart()
            raise TemporaryFailure(
                f"{wanted.name} is not what the signed index says",
                details=[
                    without_secrets(url),
                    f"expected {wanted.size} bytes, {wanted.sum}",
                    f"received {received} bytes, {found}",
                ],
                resolution="the mirror may be in the middle of an update: run the same command again later, "
                "or use another mirror",
            )


def _local(url: str) -> Path | None:
    """The path of a file:// address, None for a web address. Raises InputError for anything else."""
    if url.startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    if not is_web_address(url):
        raise InputError(
            f"{without_secrets(url)} is no address", resolution="give an http://, https:// or file:// address"
        )
    return None


def _opened(path: Path, url: str) -> Response:
    try:
        return Response(status=200, headers={}, body=path.open("rb"))
    except (FileNotFoundError, NotADirectoryError):
        return Response(status=404, headers={}, body=io.BytesIO())
    except OSError as error:
        raise Unavailable(
            f"cannot read {url}: {error.strerror}", resolution="give yourself the right to read it"
        ) from error
