"""The port through which the client speaks HTTP, and what is done around any transport: retries.

A transport sends one request and gives one answer, whatever its status; it follows no redirect and adds no
credentials.
"""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from driverforge_core.errors import TemporaryFailure

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
    as it is, the last failure raised.
    """

    inner: Transport
    wait: Callable[[float], object]
    now: Callable[[], float]
    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 60.0

    def send(self, request: Request) -> Response:
        pause = self.first_pause
        for _ in range(self.attempts - 1):
            response, asked = None, 0.0
            try:
                response = self.inner.send(request)
            except TemporaryFailure:
                if request.method == "POST":
                    raise
            if response is not None:
                if not self._again(request, response.status):
                    return response
                asked = retry_after(response.headers.get("retry-after", ""), self.now())
                if asked > self.longest_pause:
                    return response
                response.body.close()
            self.wait(max(asked, pause))
            pause = min(pause * 2, self.longest_pause)
        return self.inner.send(request)

    def _again(self, request: Request, status: int) -> bool:
        return status == 429 or (status in (500, 502, 503, 504) and request.method != "POST")


def retry_after(value: str, now: float) -> float:
    """Seconds that a Retry-After header asks to wait, 0 where it says nothing readable."""
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (TypeError, ValueError):
        return 0.0
