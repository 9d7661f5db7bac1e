"""Logins that programs keep: docker-credential-NAME, as docker's config.json names them.

Source: the protocol of docker-credential-helpers. `docker-credential-NAME get` reads the registry's address
and writes {"Username": …, "Secret": …}; the user name <token> says that the secret is an identity token.

What a helper says is never shown, not even where it fails: it may be a secret.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from driverforge_core.errors import CommandFailed
from driverforge_oci import jsontext
from driverforge_oci.auth import Login, find_login
from driverforge_oci.dockerconfig import Configuration
from driverforge_oci.reference import DOCKER_HUB

Ask = Callable[[Sequence[str], bytes], tuple[int, bytes]]
"""Runs a program that reads these bytes: its exit status, and what it wrote on standard output.

Raises OSError where it cannot be started, TimeoutError where it does not end.
"""

_HUB_ADDRESS = "https://index.docker.io/v1/"
_NO_USER = "<token>"
_NOT_FOUND = b"credentials not found in native keychain"


class Logins:
    """The logins of a configuration: of its helpers first, as docker has it, then its own.

    `load` is called when the first registry wants a login. A helper is asked once for a registry, and what it
    failed with is told again. Several threads may share one.
    """

    def __init__(self, load: Callable[[], Configuration], ask: Ask) -> None:
        self._load = load
        self._ask = ask
        self._configuration: Configuration | None = None
        self._answers: dict[str, Login | CommandFailed | None] = {}
        self._lock = threading.Lock()

    def __call__(self, host: str, repository: str) -> Login | None:
        """The login for a repository. Raises CommandFailed, and InputError for a damaged configuration."""
        with self._lock:
            if self._configuration is None:
                self._configuration = self._load()
            known = self._configuration
            if host not in self._answers:
                self._answers[host] = _asked(known, host, self._ask)
            answer = self._answers[host]
        if isinstance(answer, CommandFailed):
            raise CommandFailed(answer.brief, details=answer.details, resolution=answer.resolution)
        return answer or find_login(known.logins, host, repository)


def _asked(known: Configuration, host: str, ask: Ask) -> Login | CommandFailed | None:
    name, key = known.store, "credsStore"
    if host in known.helpers:
        name, key = known.helpers[host], f"credHelpers: {host}"
    if not name:
        return None
    program = f"docker-credential-{name}"
    address = _HUB_ADDRESS if host == DOCKER_HUB else host

    def failed(what: str, resolution: str) -> CommandFailed:
        return CommandFailed(
            f"{known.where}: {key}: the credential helper {program} {what}",
            details=[f"it was asked for the login of {address}", "what it said may be a secret"],
            resolution=resolution,
        )

    look = f"see what it says: echo {address} | {program} get"
    try:
        status, said = ask([program, "get"], address.encode())
    except TimeoutError:
        return failed("does not answer", f"it may wait for somebody to unlock it; {look}")
    except OSError as error:
        return failed(
            f"cannot be started: {error.strerror}",
            f"install it, or put it on PATH; or take that key out and run: docker login {host}",
        )
    if status:
        if said.strip() == _NOT_FOUND:
            return None
        return failed(f"failed with exit status {status}", look)
    return _login(said) or failed("answers with something that is no login", look)


def _login(said: bytes) -> Login | None:
    try:
        answer = jsontext.parse(said)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError):
        return None
    if not (isinstance(user, str) and isinstance(secret, str) and user and secret):
        return None
    return Login(identity_token=secret) if user == _NO_USER else Login(user=user, password=secret)
