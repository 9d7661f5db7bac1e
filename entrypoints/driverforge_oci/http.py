"""A real transport that needs nothing but the standard library: urllib.

It is for nodes, whose images have no other HTTP client. Nodes ask no registry yet, so no program uses it.
Builder and operator have transports over httpx2, and take proxies and authorities from here.

Proxies and CA files come from the environment, by the variables that users of curl and docker know.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import IO

from driverforge_core import __version__
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_oci.transport import Request, Response, Retrying, Transport, host_of, without_secrets

TIMEOUT = 30.0
"""Seconds for a connection, and between two pieces of an answer."""


def http_transport(
    environ: Mapping[str, str],
    *,
    timeout: float = TIMEOUT,
    told: Callable[[str, float], object] = lambda _why, _seconds: None,
) -> Transport:
    """A transport with retries, of which `told` hears.

    Environment: as `proxy_for` and `tls_context` read it. InputError where SSL_CERT_FILE cannot be used.
    """
    inner = UrllibTransport(environ, timeout=timeout)
    return Retrying(inner=inner, wait=time.sleep, now=time.time, told=told)


class UrllibTransport:
    """One request, one answer: redirects and error statuses are answers too."""

    def __init__(self, environ: Mapping[str, str], *, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._environ = dict(environ)
        proxies = {scheme: proxy for scheme in ("http", "https") if (proxy := _proxy(scheme, environ))}
        tls = urllib.request.HTTPSHandler(context=tls_context(environ.get("SSL_CERT_FILE", "")))
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects(), tls)
        self._proxied = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirects(), tls)

    def send(self, request: Request) -> Response:
        parts = urllib.parse.urlsplit(request.url)
        # a redirect may say file:
        if parts.scheme not in ("http", "https"):
            raise Unavailable(f"{without_secrets(request.url)} is not a web address")
        body = request.body() if callable(request.body) else request.body
        headers = {"User-Agent": f"driverforge/{__version__}", **request.headers}
        wire = urllib.request.Request(  # noqa: S310 -- http and https only
            request.url, data=body, headers=headers, method=request.method
        )
        opener = self._proxied if proxy_for(request.url, self._environ) else self._direct
        timeout = self._timeout + request.slack_s
        try:
            answer = opener.open(wire, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        # a host name that cannot be encoded is a UnicodeError
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, socket.gaierror):
                raise TemporaryFailure(
                    f"no answer from {host_of(request.url)}: a name does not resolve, the host's or its "
                    f"proxy's ({reason.strerror})",
                    details=[f"{request.method} {without_secrets(request.url)}"],
                    resolution="check the spelling of the host, this machine's DNS (/etc/resolv.conf, VPN), "
                    "HTTPS_PROXY and NO_PROXY",
                ) from error
            # a connection that cannot be made in time is an URLError
            why: object = reason or type(error).__name__
            if isinstance(error, TimeoutError):
                why = f"connected, but nothing came for {timeout:g} s (timed out)"
            raise TemporaryFailure(
                f"no answer from {host_of(request.url)}: {why}",
                details=[f"{request.method} {without_secrets(request.url)}"],
                resolution="check the name, the network, HTTPS_PROXY and NO_PROXY, and SSL_CERT_FILE for a "
                "private authority",
            ) from error
        finally:
            if body is not None and not isinstance(body, (bytes, tuple)):
                body.close()
        return Response(
            status=answer.status,
            # a registry may offer Bearer in one header and Basic in the next (RFC 9110 §5.3)
            headers={name.lower(): ", ".join(answer.headers.get_all(name, ())) for name in answer.headers},
            body=_Body(answer),
        )


class _Body:
    """A response's stream, whose failures half-way are ours."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        try:
            data = self._stream.read(size)
            # http.client checks in read() without a size only
            if len(data) < size and (missing := getattr(self._stream, "length", None)):
                raise http.client.IncompleteRead(data, missing)
        except (OSError, http.client.HTTPException) as error:
            raise TemporaryFailure(
                f"the connection broke in the middle of an answer: {error}", resolution="run it again"
            ) from error
        return data

    def close(self) -> None:
        self._stream.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send our Authorization header on to the redirect's host."""

    def redirect_request(self, *args: object) -> None:
        return None


def proxy_for(url: str, environ: Mapping[str, str]) -> str:
    """The proxy to ask for a URL, '' for none.

    HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY (names, suffixes, addresses, CIDR blocks, *) in either case,
    as curl has them.
    """
    parts = urllib.parse.urlsplit(url)
    no_proxy = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return "" if bypasses_proxy(parts.hostname or "", no_proxy) else _proxy(parts.scheme, environ)


def _proxy(scheme: str, environ: Mapping[str, str]) -> str:
    # HTTP_PROXY in capitals could be a request header in CGI; we are never run by a web server
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    proxy = next(filter(None, map(environ.get, names)), "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def bypasses_proxy(host: str, no_proxy: str) -> bool:
    """Whether `no_proxy` names the host; localhost and 127.0.0.0/8 always go direct.

    A leading dot or *. covers all names below.
    """
    name = host.lower().strip("[]")
    if is_loopback(name):
        return True
    return any(
        _covers(entry.strip().lower(), name) for entry in re.split(r"[,\s]+", no_proxy) if entry.strip()
    )


def is_loopback(host: str) -> bool:
    """localhost, 127.0.0.0/8 and ::1: registries there speak plain http, as docker has it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, name: str) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        suffix = entry.removeprefix("*").partition(":")[0].lstrip(".")
        return bool(suffix) and (name == suffix or name.endswith("." + suffix))


def tls_context(ca_file: str) -> ssl.SSLContext:
    """TLS with the authorities of SSL_CERT_FILE (PEM), of the system where that is ''."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise InputError(
            f"SSL_CERT_FILE={ca_file} cannot be used: {error}",
            resolution="name a readable PEM file with the authority's certificate",
        ) from error
