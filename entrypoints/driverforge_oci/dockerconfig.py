"""Docker's config.json, and podman's auth.json: logins, and the programs that keep others.

Sources: docker's config.json; containers-auth.json(5). A Kubernetes pull secret (.dockerconfigjson) has the
same format.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_core.errors import InputError
from driverforge_oci import jsontext
from driverforge_oci.auth import Credentials, Login
from driverforge_oci.reference import DOCKER_HUB

_HUB_KEYS = ("index.docker.io", "registry-1.docker.io", DOCKER_HUB)
# it becomes part of a program's name, and must not lead elsewhere
_HELPER = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A file with logins. `where` is its path, for messages.

    `helpers` maps a registry to the NAME of the program docker-credential-NAME that keeps its login, '' where
    the file itself does; `store` is the NAME for all other registries, '' for none.
    """

    where: str = ""
    logins: Credentials = field(default_factory=dict)
    helpers: Mapping[str, str] = field(default_factory=dict)
    store: str = ""


def load_configuration(
    environ: Mapping[str, str], *, read: Callable[[Path], str] = lambda path: path.read_text("utf-8")
) -> Configuration:
    """The first file there is.

    $REGISTRY_AUTH_FILE, $DOCKER_CONFIG/config.json, ~/.docker/config.json, then auth.json of podman and its
    like. InputError for a file that is no such JSON.
    """
    home, runtime = environ.get("HOME", ""), environ.get("XDG_RUNTIME_DIR", "")
    candidates = [
        environ.get("REGISTRY_AUTH_FILE", ""),
        f"{environ['DOCKER_CONFIG']}/config.json" if environ.get("DOCKER_CONFIG") else "",
        f"{home}/.docker/config.json" if home else "",
        f"{runtime}/containers/auth.json" if runtime else "",
    ]
    for path in map(Path, filter(None, candidates)):
        try:
            text = read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InputError(
                f"{path} cannot be read: {error.strerror}",
                resolution="give yourself the right to read it, or log in again",
            ) from error
        except UnicodeDecodeError as error:
            raise _no_configuration(str(path)) from error
        return parse_configuration(text, where=str(path))
    return Configuration()


def parse_configuration(text: str, *, where: str) -> Configuration:
    """What a config.json says; entries without a login are left out.

    InputError names the entry, never its content.
    """
    try:
        document = jsontext.parse(text)
        auths, helpers, store = (document.get(key) for key in ("auths", "credHelpers", "credsStore"))
        entries = [] if auths is None else [(str(key), dict(value)) for key, value in auths.items()]
        named = {} if helpers is None else dict(helpers)
    except (ValueError, AttributeError, TypeError) as error:
        raise _no_configuration(where) from error
    found: dict[str, Login] = {}
    for key, value in entries:
        login = _login(value, where=f"{where}: auths: {key}")
        if login is not None:
            found[_normal_key(key)] = login
    return Configuration(
        where=where,
        logins=found,
        helpers={
            _normal_key(key): _helper(name, f"{where}: credHelpers: {key}") for key, name in named.items()
        },
        store=_helper(store, f"{where}: credsStore"),
    )


def _no_configuration(where: str) -> InputError:
    return InputError(f"{where} is no docker configuration", resolution="it is JSON with an object 'auths'")


def _helper(name: object, where: str) -> str:
    if name in (None, ""):
        return ""
    if not isinstance(name, str) or not _HELPER.fullmatch(name):
        raise InputError(
            f"{where}: {name!r} is not the name of a credential helper",
            resolution="write NAME for a program docker-credential-NAME that is on PATH",
        )
    return name


def _login(value: Mapping[str, object], *, where: str) -> Login | None:
    token = value.get("identitytoken")
    if isinstance(token, str) and token:
        return Login(identity_token=token)
    if not (encoded := value.get("auth")):
        user, password = value.get("username"), value.get("password")
        return (
            Login(user=user, password=password)
            if isinstance(user, str) and isinstance(password, str) and user
            else None
        )
    try:
        user, colon, password = base64.b64decode(str(encoded), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user, colon, password = "", "", ""
    if not colon:
        raise InputError(f"{where}: 'auth' is not base64 of user:password", resolution="log in again")
    return Login(user=user, password=password.rstrip("\0"))


def _normal_key(key: str) -> str:
    """'https://index.docker.io/v1/' and 'host/v2/' as older docker wrote them, and plain hosts and paths."""
    bare = re.sub(r"^https?://", "", key).rstrip("/")
    host, _, path = re.sub(r"/v[12]$", "", bare).partition("/")
    return (DOCKER_HUB if host in _HUB_KEYS else host) + (f"/{path}" if path else "")
