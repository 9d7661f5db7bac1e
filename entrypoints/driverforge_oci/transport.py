"""The port through which the client speaks HTTP, and what is done around any transport: retries.

A transport sends one request and gives one answer, whatever its status; it follows no redirect and adds no
credentials.
"""

from __future__ import annotations

import email.utils
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from driverforge_core.errors import TemporaryFailure

_YEAR = 365 * 86400.0

Body = bytes | Callable[[], BinaryIO]
"""What a request sends: bytes, or a way to open the stream, so that a second attempt sends all of it again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`url` is absolute. A body that is a stream needs its Content-Length in `headers`."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None


class Readable(Protocol):
    """A stream of bytes: what http.client's responses and io.BytesIO have in common."""

    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Header names are in lower case. Whoever gets a response closes its body."""

    status: int
    headers: Mapping[str, str]
    body: Readable

    def read(self, limit: int) -> bytes:
        """The body up to `limit` bytes, and close it."""
        try:
            return self.body.read(limit)
        finally:
            self.body.close()


class Transport(Protocol):
    def send(self, request: Request) -> Response:
        """Raises TemporaryFailure where no answer came.

        Name resolution, a refused connection, a timeout, TLS.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A transport that asks again on 429, 5xx and broken connections.

    It waits as long as Retry-After says, else ever longer. `wait` is called with seconds; `now` (seconds
    since the epoch) is needed for a Retry-After with a date (RFC 9110 §10.2.3). POST is repeated only when
    the registry itself says 429: a broken POST may have begun an upload already. The last answer is returned
    as it is, the last failure raised. A host that gave no answer to any attempt is not asked again: a plan
    of a thousand cells would wait for it a thousand times. `told` hears why there is a pause.
    """

    inner: Transport
    wait: Callable[[float], object]
    now: Callable[[], float]
    told: Callable[[str], object] = lambda _: None
    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 60.0
    silent: dict[str, TemporaryFailure] = field(default_factory=dict)

    def send(self, request: Request) -> Response:
        host = urllib.parse.urlsplit(request.url).netloc
        if (failure := self.silent.get(host)) is not None:
            raise TemporaryFailure(failure.brief, details=failure.details, resolution=failure.resolution)
        pause = self.first_pause
        for _ in range(self.attempts - 1):
            asked = 0.0
            try:
                response = self.inner.send(request)
            except TemporaryFailure as error:
                if request.method == "POST":
                    raise
                why = error.brief
            else:
                if not self._again(request, response.status):
                    return response
                asked = retry_after(response.headers.get("retry-after", ""), self.now())
                if asked > self.longest_pause:
                    return response
                response.body.close()
                why = f"{host} answers {response.status}"
            self.told(f"{why}; again in {max(asked, pause):g} s")
            self.wait(max(asked, pause))
            pause = min(pause * 2, self.longest_pause)
        try:
            return self.inner.send(request)
        except TemporaryFailure as error:
            self.silent[host] = error
            raise

    def _again(self, request: Request, status: int) -> bool:
        return status == 429 or (status in (500, 502, 503, 504) and request.method != "POST")


def is_web_address(url: str) -> bool:
    """Whether a URL that somebody sent can be asked: http or https, with a host, and a port if any."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def retry_after(value: str, now: float) -> float:
    """Seconds that a Retry-After header asks to wait, 0 where it says nothing readable; a year at most."""
    try:
        if value.strip().isdecimal():
            asked = float(value)
        else:
            asked = email.utils.parsedate_to_datetime(value).timestamp() - now
    except (TypeError, ValueError, OverflowError, OSError):
        return 0.0
    return min(max(0.0, asked), _YEAR)


def asked_to_wait(headers: Mapping[str, str]) -> str:
    """What a message says of a Retry-After header; '' where there is none."""
    later = headers.get("retry-after", "")
    return f" (Retry-After: {later[:40]})" if later else ""
