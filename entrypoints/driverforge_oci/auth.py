"""Logins, and the Bearer and Basic schemes of registries.

Sources: distribution's "Token Authentication Specification" and "OAuth2 Token Authentication".
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable
from driverforge_oci import jsontext
from driverforge_oci.transport import Request, Response, Transport, asked_to_wait, is_web_address

# a name begins where no letter stands before it: else a header of letters alone is read for minutes
_PARAMETER = re.compile(r'(?<![A-Za-z])([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_TOKEN_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What a registry takes: user and password, or an identity token (OAuth2 refresh token).

    Never shown by repr.
    """

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


Credentials = Mapping[str, Login]
"""Logins by 'host[:port]' or 'host[:port]/path/prefix'."""

LoginFor = Callable[[str, str], "Login | None"]
"""The login for a host and a repository on it; None where nobody has one. Raises CommandFailed, InputError.
"""


def nobody(_host: str, _repository: str) -> Login | None:
    """For registries that let everybody in."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A WWW-Authenticate header: `scheme` in lower case, its parameters by lower-case name."""

    scheme: str
    parameters: Mapping[str, str]


def find_login(credentials: Credentials, host: str, repository: str) -> Login | None:
    """The login with the longest matching path prefix; containers-auth.json(5)."""
    path = f"{host}/{repository}"
    while path:
        if path in credentials:
            return credentials[path]
        path = path.rpartition("/")[0]
    return None


def parse_challenge(header: str) -> Challenge | None:
    """Read WWW-Authenticate (RFC 9110 §11.6.1); of several challenges Bearer counts, else Basic.

    None where neither is there.
    """
    for scheme in ("bearer", "basic"):
        if found := re.search(rf"(?:^|,)\s*{scheme}(?:\s+|$)", header, re.IGNORECASE):
            rest = re.split(
                r",\s*(?:bearer|basic)\s", header[found.end() :], maxsplit=1, flags=re.IGNORECASE
            )[0]
            values = {
                name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
                for name, quoted, plain in _PARAMETER.findall(rest)
            }
            return Challenge(scheme=scheme, parameters=values)
    return None


def fetch_token(
    transport: Transport,
    challenge: Challenge,
    scopes: tuple[str, ...],
    login: Login | None,
    *,
    plain_http: bool,
) -> str:
    """Ask the challenge's realm for a token with these scopes.

    An identity token goes by POST (OAuth2), a password by GET with Basic, nothing for an anonymous token.
    `plain_http` says that the registry itself is spoken to without TLS; otherwise a login is not sent to a
    realm without it. Raises NotPermitted where the login is refused, TemporaryFailure where the token service
    has trouble, Unavailable for an answer without a token.
    """
    realm = challenge.parameters.get("realm", "")
    if not is_web_address(realm):
        raise Unavailable(
            f"the registry names no token service: realm {realm[:200]!r}",
            resolution="a proxy may answer in its place; else tell who runs it",
        )
    if login and realm.startswith("http://") and not plain_http:
        raise NotPermitted(
            f"the registry wants the login sent unencrypted, to {realm}",
            resolution="ask who runs the registry",
        )
    response = transport.send(_token_request(realm, challenge.parameters.get("service", ""), scopes, login))
    where = urllib.parse.urlsplit(realm).netloc
    if response.status != 200:
        response.body.close()
        kind = NotPermitted if response.status in (400, 401, 403) else TemporaryFailure
        raise kind(
            f"the token service {where} answers {response.status}{asked_to_wait(response.headers)}",
            resolution="" if login else "log in: docker login HOST",
        )
    return _token(response, where)


def _token_request(realm: str, service: str, scopes: tuple[str, ...], login: Login | None) -> Request:
    if login and login.identity_token:
        form = {
            "grant_type": "refresh_token",
            "service": service,
            "client_id": "driverforge",
            "scope": " ".join(scopes),
        }
        body = urllib.parse.urlencode({**form, "refresh_token": login.identity_token}).encode()
        return Request(
            method="POST", url=realm, headers={"Content-Type": "application/x-www-form-urlencoded"}, body=body
        )
    query = urllib.parse.urlencode(
        [*([("service", service)] if service else []), *(("scope", scope) for scope in scopes)]
    )
    url = realm + ("&" if "?" in realm else "?") + query if query else realm
    return Request(method="GET", url=url, headers={"Authorization": login.basic} if login else {})


def _token(response: Response, where: str) -> str:
    try:
        answer = jsontext.parse(response.read(_TOKEN_LIMIT))
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError):
        token = None
    # no header may end in a blank
    token = token.strip(" ") if isinstance(token, str) else ""
    if not token or not (token.isascii() and token.isprintable()):
        raise Unavailable(
            f"the token service {where} answers without a token",
            resolution="check the registry's address; log in again",
        )
    return token
