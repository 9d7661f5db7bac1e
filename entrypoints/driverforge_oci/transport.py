"""The port through which the client speaks HTTP, and what is done around any transport: retries.

A transport sends one request and gives one answer, whatever its status; it follows no redirect and adds no
credentials.
"""

from __future__ import annotations

import email.utils
import math
import random
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Protocol, TypeVar

from driverforge_core.errors import TemporaryFailure, Unavailable

_T = TypeVar("_T")
_YEAR = 365 * 86400.0
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a server that may have another answer later."""
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 10
_LONGEST = 8000
"""Characters of an address, as many as RFC 9110 §4.1 wants of everybody."""

Body = bytes | tuple[bytes, ...] | Callable[[], BinaryIO]
"""Content, in one piece or several, or a function that opens it."""
"""What a request sends: bytes, or a way to open the stream, so that a second attempt sends all of it again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`url` is absolute. A body that is a stream needs its Content-Length in `headers`.

    Its answer may take `slack_s` seconds more than a transport waits for others.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    slack_s: float = 0.0


class Readable(Protocol):
    """A stream of bytes; io.BytesIO is one."""

    def read(self, size: int, /) -> bytes:
        """What has come, `size` bytes at most; b'' at the end. Raises TemporaryFailure where it breaks."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Header names are in lower case. Whoever gets a response closes its body.

    `url` is where redirects led, '' where none was followed.
    """

    status: int
    headers: Mapping[str, str]
    body: Readable
    url: str = ""

    def read(self, limit: int) -> bytes:
        """The body up to `limit` bytes, and close it."""
        content = bytearray()
        try:
            while len(content) < limit and (piece := self.body.read(limit - len(content))):
                content += piece
        finally:
            self.body.close()
        return bytes(content)


class Transport(Protocol):
    def send(self, request: Request) -> Response:
        """Raises TemporaryFailure where no answer came.

        Name resolution, a refused connection, a timeout, TLS. Unavailable, InputError where asking again
        would not help.
        """


def jittered(pause: float) -> float:
    """About as long: clients that failed together do not come back together."""
    return pause * random.uniform(0.5, 1.5)  # noqa: S311 -- no secret


class _Again(Exception):
    """`answered`: the host did answer, so that it is there."""

    def __init__(self, why: str, asked: float = 0.0, *, answered: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.asked = asked
        self.answered = answered


class Spent(TemporaryFailure):
    """A host has had all requests that one run may make: only another run may ask it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A transport that asks again on 408, 425, 429, 5xx and broken connections.

    It waits ever longer, and as long as Retry-After says besides. `wait` is called with seconds; `now`
    (seconds since the epoch) is needed for a Retry-After with a date (RFC 9110 §10.2.3). POST and PATCH are
    repeated only when the registry itself says 429: what broke may have begun an upload already, or have
    brought it on. The last answer is returned as it is, the last failure raised.

    A host that gave no answer to any attempt, nor to others meanwhile, is not asked again: a plan of a
    thousand cells would wait for it a thousand times. The same goes for one that never gave any and let an
    attempt wait for `silence` seconds: whoever can do without an answer does not wait five times. A host that
    has given no good answer for `patience` seconds, whoever asked, is asked once for each request. One that
    says 429 and for how long, longer than a pause may be, is left alone until then. `told` hears why there is
    a pause, and how many seconds it takes.
    """

    inner: Transport
    wait: Callable[[float], object]
    now: Callable[[], float]
    told: Callable[[str, float], object] = lambda _why, _seconds: None
    jitter: Callable[[float], float] = jittered
    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 60.0
    patience: float = 240.0
    silence: float = math.inf
    silent: dict[str, TemporaryFailure] = field(default_factory=dict)
    troubled: dict[str, float] = field(default_factory=dict)
    """Since when a host has given no good answer."""
    heard: set[str] = field(default_factory=set)
    """Hosts that have given a good answer."""
    resting: dict[str, float] = field(default_factory=dict)
    """Until when a host wants to be left alone."""

    def send(self, request: Request) -> Response:
        return self.receive(lambda: request, lambda response: response)

    def receive(self, ask: Callable[[], Request], take: Callable[[Response], _T]) -> _T:
        """What `take` makes of the answer to the request of `ask`.

        Both are called again where that may help, `take` also for a TemporaryFailure of its own about an
        answer that was none.
        """
        pause, answered = self.first_pause, False
        for left in reversed(range(self.attempts)):
            try:
                return self._attempt(ask(), take, last=not left, answered=answered)
            except _Again as again:
                answered = answered or again.answered
                seconds = again.asked + self.jitter(pause)
                self.told(again.why, seconds)
                self.wait(seconds)
            pause = min(pause * 2, self.longest_pause)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, request: Request, take: Callable[[Response], _T], *, last: bool, answered: bool) -> _T:
        host = host_of(request.url)
        if (failure := self.silent.get(host)) is not None:
            # the first line names the request that failed, which is another one
            unasked = f"{request.method} {without_secrets(request.url)}: the host is not asked again"
            raise TemporaryFailure(
                failure.brief, details=[unasked, *failure.details[1:]], resolution=failure.resolution
            )
        if (left := self.resting.get(host, 0.0) - self.now()) > 0:
            raise TemporaryFailure(
                f"{host} wants to be asked again in {left:.0f} s",
                details=[f"{request.method} {without_secrets(request.url)}: not asked; it said 429 before"],
                resolution="run the same command again then",
            )
        tired = self.now() - self.troubled.get(host, self.now()) >= self.patience
        may_wait = not last and not tired
        may_repeat = request.method not in ("POST", "PATCH") and may_wait
        began = self.now()
        try:
            response = self.inner.send(request)
        except Spent:
            raise
        except TemporaryFailure as error:
            waited = host not in self.heard and self.now() - began >= self.silence
            # a good answer, whoever asked, has taken it out again
            others_heard = host not in self.troubled
            self.troubled.setdefault(host, self.now())
            if may_repeat and not waited:
                raise _Again(error.brief, answered=False) from error
            if not answered and (waited or (last and not others_heard)):
                self.silent[host] = error
            raise
        busy, refused = response.status in BUSY, response.status == 429
        if busy:
            self.troubled.setdefault(host, self.now())
        asked = retry_after(response.headers.get("retry-after", ""), _clock(response, self.now()))
        if refused and asked > self.longest_pause:
            self.resting[host] = self.now() + asked
        if busy and (may_repeat or (refused and may_wait)) and asked <= self.longest_pause:
            response.body.close()
            raise _Again(f"{host_of(response.url or request.url)} answers {response.status}", asked)
        try:
            taken = take(response)
        except TemporaryFailure as error:
            self.troubled.setdefault(host, self.now())
            if may_repeat and not busy:
                raise _Again(error.brief) from error
            raise
        if not busy:
            self.troubled.pop(host, None)
            self.heard.add(host)
        return taken


@dataclass(frozen=True, slots=True)
class Following:
    """A transport that follows the redirects of GET and HEAD.

    A login stays with its host, be it in a header or in the address: a CDN must not see it.
    """

    inner: Transport

    def send(self, request: Request) -> Response:
        """As the inner one. Unavailable for redirects without an end, and one that leads from TLS to none."""
        asked = request.url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self.inner.send(request)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or request.method not in ("GET", "HEAD") or not location:
                return replace(response, url=request.url)
            response.body.close()
            request = _redirected(request, location)
        raise Unavailable(
            f"{host_of(asked)} redirects more than {_MAX_REDIRECTS} times",
            details=[without_secrets(asked), f"the last one leads to {without_secrets(request.url)}"],
            resolution="check the address: the server's redirects, or a proxy, lead in a circle",
        )


def _redirected(request: Request, location: str) -> Request:
    old, new, headers = request.url, joined(request.url, location), dict(request.headers)
    login, at, _ = urllib.parse.urlsplit(old).netloc.rpartition("@")
    if origin(new) != origin(old):
        headers.pop("Authorization", None)
    elif at and "@" not in urllib.parse.urlsplit(new).netloc:
        new = new.replace("://", f"://{login}@", 1)
    return replace(request, url=new, headers=headers)


def host_of(url: str) -> str:
    """'host[:port]' of an address, without the login that it may carry."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: what has to be the same for a login to be sent."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def joined(base: str, location: str) -> str:
    """A path or a Location, as an absolute URL.

    Unavailable where a server sent one that is none, or one without TLS where it has TLS itself.
    """
    try:
        url = urllib.parse.urljoin(base, location)
    except ValueError:
        url = ""
    if not is_web_address(url):
        raise Unavailable(
            f"{host_of(base)} sends us to an address that is none", details=[without_secrets(location)[:200]]
        )
    # urlsplit() knows HTTPS:// too
    if (urllib.parse.urlsplit(base).scheme, urllib.parse.urlsplit(url).scheme) == ("https", "http"):
        raise Unavailable(
            f"{host_of(base)} sends us to a place without TLS",
            details=[f"{without_secrets(base)} leads to {without_secrets(url)}"],
            resolution="a server behind a TLS proxy needs X-Forwarded-Proto, or its external URL configured",
        )
    return url


def without_secrets(url: str) -> str:
    """An address for people: without the login that it may carry, and the query, which may be signed.

    Also of a text that is no address because its password has a character that should be quoted.
    """
    scheme, colon, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login = ""
    if "@" in authority:
        login = authority.rpartition("@")[0]
    elif not re.fullmatch(r"(\[.*\]|[^:]*)(:\d*)?", authority):
        login = rest.rpartition("@")[0]
    if login:
        user, secret, _ = login.partition(":")
        rest = (f"{user}:***@" if secret else "***@") + rest[len(login) + 1 :]
    rest, query, _ = rest.partition("?")
    return scheme + colon + rest + ("?***" if query else "")


def is_web_address(url: str) -> bool:
    """Whether a URL that somebody sent can be asked: http or https, with a host, and a port if any."""
    try:
        parts = urllib.parse.urlsplit(url)
        # a UnicodeError for what is no name is a ValueError
        host = (parts.hostname or "").encode("idna")
        return parts.scheme in ("http", "https") and bool(host) and parts.port != 0 and len(url) <= _LONGEST
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


def _clock(response: Response, now: float) -> float:
    """What time it is for whoever sent an answer: a date in it may be of a clock that is wrong."""
    try:
        return email.utils.parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return now


def asked_to_wait(headers: Mapping[str, str]) -> str:
    """What a message says of a Retry-After header; '' where there is none."""
    later = headers.get("retry-after", "")
    return f" (Retry-After: {later[:40]})" if later else ""
