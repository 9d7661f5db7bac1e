"""The builder's one way to the web: httpx2 behind the registry client's `Transport`, for mirrors too.

Connections are kept, proxies and authorities come from the environment and the system's store, and a host
gets a few requests at a time. An answer has to come, and to go on coming: a server that lets byte after byte
drip is left.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Self
from urllib.parse import unquote, urlsplit

import httpcore2
import httpx2
import truststore

from driverforge_build.ports import ClientCertificate
from driverforge_core import __version__
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.auth import Login
from driverforge_oci.http import proxy_for, tls_context
from driverforge_oci.transport import (
    Following,
    Request,
    Response,
    Retrying,
    Spent,
    host_of,
    is_web_address,
    without_secrets,
)

REQUESTS_PER_MIRROR = 4
"""At the same time. A crawl that opened more had its address banned by a kernel mirror."""
REQUESTS_PER_REGISTRY = 8
REQUESTS_IN_ALL = 2000
"""Of a mirror in one run. A first lock of all that Red Hat's CDN has of three releases makes about half of
that.
"""
TIMEOUT_S = 30.0
"""For a connection, and between two pieces of an answer."""
GRACE_S = 60.0
"""For an answer, and a second more for each SLOWEST bytes of its content that have come."""
SLOWEST = 16 << 10
_PIECE = 1 << 18
_Way = tuple[str, ClientCertificate | None, bool]
"""A proxy or '', what is shown to the host, and whether with TLS."""
_CHECK = "check the name, the network and the proxy (http_proxy, https_proxy, no_proxy)"

Told = Callable[[str, float], object]
"""Hears why there is a pause, and how many seconds it takes."""


def mirror_transport(
    environ: Mapping[str, str], told: Told, certificates: Mapping[str, ClientCertificate] | None = None
) -> Retrying:
    """For package mirrors: redirects are followed. `certificates` are shown to hosts, by the host."""
    web = HttpxTransport(
        environ, at_once=REQUESTS_PER_MIRROR, in_all=REQUESTS_IN_ALL, certificates=certificates
    )
    return Retrying(inner=Following(web), wait=time.sleep, now=time.time, told=told)


def registry_transport(
    environ: Mapping[str, str], told: Told, *, at_once: int = REQUESTS_PER_REGISTRY
) -> Retrying:
    """For registries, whose client follows redirects itself."""
    web = HttpxTransport(environ, at_once=at_once)
    return Retrying(inner=web, wait=time.sleep, now=time.time, told=told)


class HttpxTransport:
    """One request, one answer: redirects and error statuses are answers too. Several threads may share one.

    Environment: proxies as `proxy_for` reads them; SSL_CERT_FILE, SSL_CERT_DIR: the authorities to trust
    instead of the system's. A login in an address is sent as its header. `certificates` are looked at for
    each new connection. `wire` replaces the network. Connections end with the last user. `in_all` is how many
    requests a host may get, 0 for any number; one more raises Spent.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        at_once: int = REQUESTS_PER_MIRROR,
        in_all: int = 0,
        timeout: float = TIMEOUT_S,
        grace: float = GRACE_S,
        wire: httpx2.BaseTransport | None = None,
        certificates: Mapping[str, ClientCertificate] | None = None,
    ) -> None:
        self._environ = dict(environ)
        self._timeout, self._grace = timeout, grace
        self._lock = threading.Lock()
        self._gates: dict[str, threading.BoundedSemaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(at_once)
        )
        self._in_all, self._asked = in_all, Counter[str]()
        self._wire = wire
        self._certificates = {} if certificates is None else certificates
        self._wires: dict[_Way, httpx2.BaseTransport] = {}
        weakref.finalize(self, _close, self._wires)

    def send(self, request: Request) -> Response:
        host = host_of(request.url)
        with self._lock:
            gate, wire = self._gates[host], self._wire_to(request.url)
            if self._asked[host] == self._in_all > 0:
                raise Spent(
                    f"{host} was asked {self._in_all} times, and a run asks a host no more than that",
                    details=[f"not asked for any more: {without_secrets(request.url)}"],
                    resolution="if the matrix names only what you want, run the same command again: what was "
                    "downloaded is kept; else leave systems out with --select",
                )
            self._asked[host] += 1
        with ExitStack() as held:
            held.enter_context(gate)
            pace = _Pace(self._timeout + request.slack_s, self._grace + request.slack_s)
            exchange = _Exchange(request, pace)
            with exchange.failures():
                answer = wire.handle_request(exchange.wired())
            held.callback(answer.close)
            if answer.status_code == 407:
                raise Unavailable(
                    "the proxy wants a login",
                    details=[f"{exchange.asked}: HTTP 407"],
                    resolution="write it into the proxy's address: http://USER:PASSWORD@proxy",
                )
            exchange.begun = True
            assert isinstance(answer.stream, httpx2.SyncByteStream)
            # the body holds the connection, the gate and this transport
            body = _Body(exchange.received(answer.stream), exchange.failures, (held.pop_all(), self))
            return Response(status=answer.status_code, headers=dict(answer.headers), body=body)

    def _wire_to(self, url: str) -> httpx2.BaseTransport:
        if self._wire is not None:
            return self._wire
        proxy, certificate = proxy_for(url, self._environ), self._certificates.get(host_of(url))
        key = proxy, certificate, _is_secure(url)
        if key not in self._wires:
            ours = self._tls(url) if certificate is None else _identified(certificate, self._environ)
            through = _proxy(proxy, self._tls(proxy)) if proxy else None
            wire = httpx2.HTTPTransport(verify=ours, proxy=through)
            # httpx2 hands no network to its pool, which would take one
            wire._pool._network_backend = _PacedNetwork()  # noqa: SLF001
            self._wires[key] = wire
        return self._wires[key]

    def _tls(self, url: str) -> ssl.SSLContext:
        """How an address is asked; one of no authorities for plain http, which are slow to read."""
        ca_file = self._environ.get("SSL_CERT_FILE", "")
        if ca_file and _is_secure(url):
            return tls_context(ca_file)
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_secure(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def _identified(certificate: ClientCertificate, environ: Mapping[str, str]) -> ssl.SSLContext:
    """TLS that shows a certificate. Raises InputError for one that cannot be read."""
    ca_file = str(certificate.authorities or environ.get("SSL_CERT_FILE", ""))
    tls = tls_context(ca_file)
    try:
        tls.load_cert_chain(certificate.certificate, certificate.key)
    except OSError as error:
        raise InputError(
            f"the client certificate {certificate.certificate} cannot be used: {error}",
            details=[f"its key: {certificate.key}"],
            resolution="give the folder of a registered host's certificate and key: --entitlement DIR",
        ) from error
    return tls


def _proxy(address: str, tls: ssl.SSLContext) -> httpx2.Proxy:
    """Raises InputError for an address that cannot be asked."""
    try:
        if is_web_address(address):
            return httpx2.Proxy(address, ssl_context=tls if _is_secure(address) else None)
    # a host name that cannot be encoded, a control character
    except httpx2.InvalidURL:
        pass
    raise InputError(
        f"a proxy of the environment is no address that can be used: {without_secrets(address)}",
        resolution="correct http_proxy, https_proxy or all_proxy, e.g. http://proxy.site:3128",
    )


def _close(wires: dict[_Way, httpx2.BaseTransport]) -> None:
    for wire in wires.values():
        wire.close()


class _Pace(float):
    """The timeout of one exchange, in seconds: the longest pause between two pieces.

    httpcore2 hands it on, as it is, to each read and write of the connection; so it can know when the whole
    has to be there.
    """

    def __new__(cls, timeout: float, _grace: float) -> Self:
        return super().__new__(cls, timeout)

    def __init__(self, _timeout: float, grace: float) -> None:
        self._began, self._grace, self.moved = time.monotonic(), grace, 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def left(self) -> float:
        """Seconds for the next piece, 0 where it is too late for any."""
        return min(float(self), max(0.0, self._grace + self.moved / SLOWEST - self.seconds))


def _timed(timeout: float | None) -> float | None:
    if not isinstance(timeout, _Pace):
        return timeout
    if not (left := timeout.left()):
        raise httpcore2.ReadTimeout("too slow")
    return left


class _PacedStream(httpcore2.NetworkStream):
    """A connection that keeps the pace of the exchange that it is used for."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        # the pool asks for 64 KB, however much is there
        return self._stream.read(max(max_bytes, _PIECE), _timed(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._stream.write(piece, _timed(timeout))
            if isinstance(timeout, _Pace):
                timeout.moved += len(piece)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _PacedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


class _PacedNetwork(httpcore2.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        return _PacedStream(super().connect_tcp(host, port, timeout, local_address, socket_options))


@dataclass(slots=True)
class _Exchange:
    """A request under way, and what its failures mean. `begun`: the answer's headers are there."""

    request: Request
    pace: _Pace
    begun: bool = False

    @property
    def asked(self) -> str:
        return f"{self.request.method} {without_secrets(self.request.url)}"

    def wired(self) -> httpx2.Request:
        parts = urlsplit(self.request.url)
        headers = {"User-Agent": f"driverforge/{__version__}", "Accept-Encoding": "identity"}
        if parts.username is not None:
            login = Login(user=unquote(parts.username), password=unquote(parts.password or ""))
            headers["Authorization"] = login.basic
        body = self.request.body
        timeouts = dict.fromkeys(("connect", "read", "write"), self.pace)
        return httpx2.Request(
            self.request.method,
            self.request.url,
            headers=headers | dict(self.request.headers),
            content=body if body is None or isinstance(body, bytes) else _sent(body),
            extensions={"timeout": timeouts},
        )

    def received(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """The content. It earns time; what is around it does not: interim answers, names of chunks, fields.

        A server could send those without an end.
        """
        for piece in content:
            self.pace.moved += len(piece)
            yield piece

    @contextmanager
    def failures(self) -> Iterator[None]:
        try:
            yield
        # a host name that cannot be encoded is a UnicodeError
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
            raise InputError(
                f"{without_secrets(self.request.url)} is no address that can be asked: {error}",
                resolution="give an http://, https:// or file:// address",
            ) from error
        except httpx2.TransportError as error:
            raise self._failure(error) from error

    def _failure(self, error: httpx2.TransportError) -> Unavailable:
        host, details = host_of(self.request.url), [self.asked, f"{type(error).__name__}: {error}"]
        # its text quotes the header that is not sent, and that may be the login
        if isinstance(error, httpx2.LocalProtocolError):
            return TemporaryFailure(
                f"{host} was not asked: the request would not be HTTP",
                details=[self.asked],
                resolution="look for control characters in the login, or in what the token service gives",
            )
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Unavailable(
                f"{host} shows a certificate that this machine does not trust",
                details=details,
                resolution="add your site's authority to the system's, or name its file: "
                "SSL_CERT_FILE=/path/ca.pem",
            )
        if isinstance(error, httpx2.ProxyError):
            return Unavailable(
                f"the proxy does not let us through to {host}",
                details=details,
                resolution="check http_proxy, https_proxy and no_proxy, and what the proxy allows; the host "
                "itself was not asked",
            )
        return TemporaryFailure(f"{host} {self._trouble(error)}", details=details, resolution=_CHECK)

    def _trouble(self, error: httpx2.TransportError) -> str:
        if not self.pace.left():
            return f"is too slow: {self.pace.moved} bytes moved in {self.pace.seconds:.0f} s"
        if isinstance(error, httpx2.ReadTimeout):
            return f"accepts the connection and sends nothing for {self.pace:g} s"
        if self.begun:
            return "broke the connection in the middle of an answer"
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, socket.gaierror):
            # the pool raises its error anew `from None`
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            return f"does not answer: a name does not resolve, the host's or its proxy's ({cause.strerror})"
        return f"does not answer: {error}"


def _sent(body: tuple[bytes, ...] | Callable[[], BinaryIO]) -> Iterator[bytes]:
    if isinstance(body, tuple):
        yield from body
        return
    with body() as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _Body:
    """An answer's content, read piece by piece; what fails half-way is an error of ours."""

    def __init__(
        self,
        pieces: Iterator[bytes],
        failures: Callable[[], AbstractContextManager[None]],
        held: tuple[ExitStack, object],
    ) -> None:
        self._pieces = filter(None, pieces)
        self._failures = failures
        self._held = held
        self._kept = b""

    def read(self, size: int, /) -> bytes:
        if not self._kept:
            with self._failures():
                self._kept = next(self._pieces, b"")
        data, self._kept = self._kept[:size], self._kept[size:]
        return data

    def close(self) -> None:
        self._held[0].close()
