"""Registries over httpx2, the operator's one HTTP library, behind the registry client's `Transport`."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx2

from driverforge_core import __version__
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.http import proxy_for, tls_context
from driverforge_oci.transport import Request, Response, host_of, is_web_address, without_secrets

TIMEOUT = 15.0
"""Seconds for a connection, and between two pieces of an answer."""


class RegistryTransport:
    """One request, one answer: redirects and error statuses are answers too. Several threads may share one.

    Environment: proxies as `proxy_for` reads them, SSL_CERT_FILE as `tls_context`; raises its InputError.
    Each request has a connection of its own, which ends with its answer's body.
    """

    def __init__(self, environ: Mapping[str, str], *, timeout: float = TIMEOUT) -> None:
        self._environ = dict(environ)
        self._timeout = timeout
        self._tls = tls_context(environ.get("SSL_CERT_FILE", ""))
        self._lock = threading.Lock()
        self._wires: dict[str, httpx2.HTTPTransport] = {}

    def send(self, request: Request) -> Response:
        # a redirect may say file:
        if urlsplit(request.url).scheme not in ("http", "https"):
            raise Unavailable(f"{without_secrets(request.url)} is not a web address")
        wire, timeout = self._wire_to(request.url), self._timeout + request.slack_s
        with ExitStack() as held:
            body = request.body
            content = held.enter_context(body()) if callable(body) else body
            headers = {"User-Agent": f"driverforge/{__version__}", "Accept-Encoding": "identity"}
            with _failures(request, timeout):
                answer = wire.handle_request(
                    httpx2.Request(
                        request.method,
                        request.url,
                        headers=headers | dict(request.headers),
                        content=content,
                        extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)},
                    )
                )
        return Response(status=answer.status_code, headers=dict(answer.headers), body=_Body(answer))

    def _wire_to(self, url: str) -> httpx2.HTTPTransport:
        proxy = proxy_for(url, self._environ)
        with self._lock:
            if proxy not in self._wires:
                # a registry may close a kept connection at the moment it is used again
                self._wires[proxy] = httpx2.HTTPTransport(
                    verify=self._tls,
                    proxy=_proxy(proxy, self._tls),
                    limits=httpx2.Limits(max_keepalive_connections=0),
                )
            return self._wires[proxy]


def _proxy(address: str, tls: ssl.SSLContext) -> httpx2.Proxy | None:
    """Raises InputError for an address that cannot be asked."""
    if not address:
        return None
    try:
        if is_web_address(address):
            return httpx2.Proxy(address, ssl_context=tls if urlsplit(address).scheme == "https" else None)
    # a control character
    except httpx2.InvalidURL:
        pass
    raise InputError(
        f"a proxy of the environment is no address that can be used: {without_secrets(address)}",
        resolution="correct http_proxy, https_proxy or all_proxy, e.g. http://proxy.site:3128",
    )


@contextmanager
def _failures(request: Request, timeout: float) -> Iterator[None]:
    try:
        yield
    # a host name that cannot be encoded is an InvalidURL or a UnicodeError
    except (httpx2.TransportError, httpx2.InvalidURL, UnicodeError) as error:
        asked = [f"{request.method} {without_secrets(request.url)}"]
        host = host_of(request.url)
        if name := _unresolved(error):
            raise TemporaryFailure(
                f"no answer from {host}: a name does not resolve, the host's or its proxy's "
                f"({name.strerror})",
                details=asked,
                resolution="check the spelling of the host, the cluster's DNS, HTTPS_PROXY and NO_PROXY",
            ) from error
        # its text quotes the header that is not sent, and that may be the login
        if isinstance(error, httpx2.LocalProtocolError):
            raise TemporaryFailure(
                f"{host} was not asked: the request would not be HTTP",
                details=asked,
                resolution="look for control characters in the login, or in what the token service gives",
            ) from error
        why: object = str(error) or type(error).__name__
        if isinstance(error, httpx2.ReadTimeout):
            why = f"connected, but nothing came for {timeout:g} s (timed out)"
        raise TemporaryFailure(
            f"no answer from {host}: {why}",
            details=asked,
            resolution="check the name, the network, HTTPS_PROXY and NO_PROXY, and SSL_CERT_FILE for a "
            "private authority",
        ) from error


def _unresolved(error: BaseException | None) -> socket.gaierror | None:
    while error is not None and not isinstance(error, socket.gaierror):
        # the pool raises its error anew `from None`
        error = error.__cause__ or error.__context__
    return error


class _Body:
    """An answer's content, as it was sent; what fails half-way is a failure of ours."""

    def __init__(self, answer: httpx2.Response) -> None:
        assert isinstance(answer.stream, httpx2.SyncByteStream)
        self._pieces = iter(answer.stream)
        self._kept = b""
        self._answer = answer

    def read(self, size: int, /) -> bytes:
        if not self._kept:
            try:
                self._kept = next(self._pieces, b"")
            except httpx2.TransportError as error:
                raise TemporaryFailure(
                    f"the connection broke in the middle of an answer: {error}", resolution="run it again"
                ) from error
        data, self._kept = self._kept[:size], self._kept[size:]
        return data

    def close(self) -> None:
        self._answer.close()
