"""A conversation with registries: addresses, tokens, redirects, and statuses turned into errors."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import replace

from driverforge_core.errors import DriverforgeError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_oci import jsontext
from driverforge_oci.auth import Challenge, LoginFor, fetch_token, nobody, parse_challenge
from driverforge_oci.http import is_loopback
from driverforge_oci.reference import DOCKER_HUB, Reference
from driverforge_oci.transport import (
    Body,
    Following,
    Request,
    Response,
    Transport,
    asked_to_wait,
    host_of,
    joined,
    origin,
    without_secrets,
)

_ERROR_LIMIT = 64 << 10
# of a text that is no error of the specification: a proxy's page, or noise
_TEXT_LIMIT = 2000


class NotFound(Unavailable):
    """The registry answered, and says that it has no such manifest, blob or repository (404)."""


class Session:
    """Sends requests below /v2/<repository>/, with the login that the registry asks for.

    `login_for` is asked when a registry wants a login. Tokens are kept for the session's life. `plain_http`
    names further hosts (host[:port]) without TLS; localhost, 127.0.0.0/8 and ::1 never have it.
    """

    def __init__(
        self, transport: Transport, login_for: LoginFor = nobody, *, plain_http: Collection[str] = ()
    ) -> None:
        self._transport = Following(transport)
        self._login_for = login_for
        self._plain_http = frozenset(plain_http)
        self._challenges: dict[str, Challenge] = {}
        self._tokens: dict[tuple[str, tuple[str, ...]], str] = {}

    def call(
        self,
        method: str,
        reference: Reference,
        path: str,
        *,
        expected: Collection[int],
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        scopes: tuple[str, ...] = (),
        slack_s: float = 0.0,
    ) -> Response:
        """One operation on a repository.

        `path` is below /v2/<repository>/, or an absolute URL that the registry gave (a Location). Returns the
        response when its status is in `expected`. Raises NotFound for 404, NotPermitted for 401 and 403,
        TemporaryFailure for 429, 5xx and where no answer came, Unavailable for anything else.
        """
        url = joined(f"{self.base(reference.host)}/v2/{reference.repository}/", path)
        wanted = scopes or (scope(reference, "pull"),)
        request = Request(method=method, url=url, headers=headers or {}, body=body, slack_s=slack_s)
        known = self._challenges.get(reference.host)
        response = self._send(request, reference, wanted)
        if (
            response.status == 401
            and self._is_home(response.url or url, reference.host)
            and self._learn(response, reference.host, known)
        ):
            self._tokens.pop((reference.host, wanted), None)
            response.body.close()
            response = self._send(request, reference, wanted)
        if response.status not in expected:
            raise _failure(request, response, reference)
        return response

    def base(self, host: str) -> str:
        """The registry's address: 'https://registry.site:5000', or http for hosts without TLS.

        Docker Hub's API has another host name than its references.
        """
        name = "registry-1.docker.io" if host == DOCKER_HUB else host
        plain = host in self._plain_http or is_loopback(urllib.parse.urlsplit(f"//{host}").hostname or "")
        return f"{'http' if plain else 'https'}://{name}"

    def _send(self, request: Request, reference: Reference, scopes: tuple[str, ...]) -> Response:
        headers = dict(request.headers)
        if self._is_home(request.url, reference.host) and (value := self._authorization(reference, scopes)):
            headers["Authorization"] = value
        return self._transport.send(replace(request, headers=headers))

    def _is_home(self, url: str, host: str) -> bool:
        """Whether a URL is the registry's own.

        The URL of an upload may be a CDN's, which must not see the login.
        """
        return origin(url) == origin(self.base(host))

    def _authorization(self, reference: Reference, scopes: tuple[str, ...]) -> str:
        challenge = self._challenges.get(reference.host)
        if challenge is None:
            return ""
        login = self._login_for(reference.host, reference.repository)
        if challenge.scheme == "basic":
            return login.basic if login else ""
        key = (reference.host, scopes)
        token = self._tokens.get(key)
        if token is None:
            plain = self.base(reference.host).startswith("http://")
            token = self._tokens[key] = fetch_token(
                self._transport, challenge, scopes, login, plain_http=plain
            )
        return f"Bearer {token}"

    def _learn(self, response: Response, host: str, known: Challenge | None) -> bool:
        """Remember how a registry wants to be asked; False where a further attempt would change nothing.

        `known` is the challenge before the request that it answers was sent: another thread may have learned
        it since.
        """
        challenge = parse_challenge(response.headers.get("www-authenticate", ""))
        if challenge is None or (challenge.scheme == "basic" and known == challenge):
            return False
        self._challenges[host] = challenge
        return True


def scope(reference: Reference, actions: str) -> str:
    """A token's scope: 'repository:driver:pull,push'."""
    return f"repository:{reference.repository}:{actions}"


def _failure(request: Request, response: Response, reference: Reference) -> DriverforgeError:
    where, details = reference.host, [f"{request.method} {request.url.partition('?')[0]}: {response.status}"]
    answering = host_of(response.url or request.url)
    elsewhere = answering if answering != host_of(request.url) else ""
    if elsewhere:
        where = f"{elsewhere}, where {reference.host} sends us,"
        details.append(f"it led to {without_secrets(response.url)}")
    details += _registry_errors(response)
    if response.status == 404:
        return NotFound(f"{reference.host} has no {reference}", details=details)
    if response.status in (401, 403) and elsewhere:
        return NotPermitted(
            f"{where} refuses {request.method} ({response.status})",
            details=details,
            resolution=f"let this machine, and its proxy, reach {elsewhere}: a login does not matter there",
        )
    if response.status in (401, 403):
        known = (
            "the login is not allowed to"
            if response.status == 403
            else "there is no login, or it is not accepted"
        )
        return NotPermitted(
            f"{reference.host} refuses {request.method} on {reference.repository} ({response.status})",
            details=details,
            resolution=f"{known}: docker login {reference.host}",
        )
    if response.status == 429 or response.status >= 500:
        return TemporaryFailure(
            f"{where} answers {response.status}{asked_to_wait(response.headers)}",
            details=details,
            resolution="try again later",
        )
    return Unavailable(f"{where} answers {response.status}, which was not expected", details=details)


def _registry_errors(response: Response) -> list[str]:
    """The errors of the answer's body (OCI distribution spec, "Error Codes"), else its text."""
    try:
        text = response.read(_ERROR_LIMIT).decode("utf-8", "replace")
    except TemporaryFailure as error:
        return [error.brief]
    try:
        return [
            f"{error['code']}: {error.get('message', '')} {error.get('detail') or ''}".rstrip()
            for error in jsontext.parse(text)["errors"]
        ]
    # what was just not too deep to be read may be too deep to be shown
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text[:_TEXT_LIMIT].splitlines()
