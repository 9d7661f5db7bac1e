"""Logins from docker's configuration, and challenges."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_oci.auth import Challenge, Login, find_login, parse_challenge
from driverforge_oci.dockerconfig import Configuration, load_configuration, parse_configuration


def _auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


CONFIG = json.dumps(
    {
        "auths": {
            "https://index.docker.io/v1/": _auth("hub:secret"),
            "registry.site": _auth("site:pass:word"),
            "registry.site/team": _auth("team:x"),
            "http://127.0.0.1:5000/v2/": _auth("local:x"),
            "token.site": {"identitytoken": "refresh", "auth": ""},
            "kubernetes.site": {"username": "pull", "password": "secret"},
            "helper.site": {},
        },
        "credsStore": "desktop",
    }
)


def test_logins_of_a_docker_configuration() -> None:
    found = parse_configuration(CONFIG, where="config.json").logins
    assert found == {
        "docker.io": Login(user="hub", password="secret"),
        "registry.site": Login(user="site", password="pass:word"),
        "registry.site/team": Login(user="team", password="x"),
        "127.0.0.1:5000": Login(user="local", password="x"),
        "token.site": Login(identity_token="refresh"),
        "kubernetes.site": Login(user="pull", password="secret"),
    }
    assert "pass:word" not in repr(found)


@pytest.mark.parametrize(
    ("host", "repository", "user"),
    [
        ("registry.site", "driver", "site"),
        ("registry.site", "team/driver", "team"),
        ("registry.site", "teamwork/driver", "site"),
        ("docker.io", "library/debian", "hub"),
        ("registry.site:5000", "driver", None),
    ],
)
def test_the_nearest_login_counts(host: str, repository: str, user: str | None) -> None:
    login = find_login(parse_configuration(CONFIG, where="config.json").logins, host, repository)
    assert (login.user if login else None) == user


@pytest.mark.parametrize(
    "text", ["", "[]", '{"auths": []}', '{"auths": {"a": "b"}}', '{"credHelpers": "x"}', '{"credHelpers": 5}']
)
def test_a_file_that_is_no_docker_configuration(text: str) -> None:
    with pytest.raises(InputError, match="is no docker configuration"):
        parse_configuration(text, where="config.json")


def test_a_damaged_login_is_named_but_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        parse_configuration('{"auths": {"registry.site": {"auth": "c2VjcmV0"}}}', where="config.json")
    assert "registry.site" in caught.value.render()
    assert "c2VjcmV0" not in caught.value.render()
    assert "secret" not in caught.value.render()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0"}, "/root/.docker/config.json"),
        ({"HOME": "/root", "DOCKER_CONFIG": "/cfg"}, "/cfg/config.json"),
        ({"HOME": "/root", "DOCKER_CONFIG": "/cfg", "REGISTRY_AUTH_FILE": "/auth.json"}, "/auth.json"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/user/0/containers/auth.json"),
    ],
)
def test_where_logins_are_looked_for(environ: dict[str, str], expected: str) -> None:
    asked = []

    def read(path: Path) -> str:
        asked.append(str(path))
        return "{}"

    assert load_configuration(environ, read=read) == Configuration(where=expected)
    assert asked == [expected]


def test_files_that_are_not_there_or_not_readable() -> None:
    def nothing(path: Path) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    def forbidden(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    assert load_configuration({"HOME": "/root", "XDG_RUNTIME_DIR": "/run"}, read=nothing) == Configuration()
    assert load_configuration({}, read=forbidden) == Configuration()
    with pytest.raises(InputError, match="Permission denied"):
        load_configuration({"HOME": "/root"}, read=forbidden)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            (
                'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
                'scope="repository:a/b:pull,push"'
            ),
            (
                "bearer",
                {
                    "realm": "https://auth.docker.io/token",
                    "service": "registry.docker.io",
                    "scope": "repository:a/b:pull,push",
                },
            ),
        ),
        ('Basic realm="basic-realm"', ("basic", {"realm": "basic-realm"})),
        ("BASIC", ("basic", {})),
        (
            'Basic realm="x", Bearer realm="https://t/",service=s',
            ("bearer", {"realm": "https://t/", "service": "s"}),
        ),
        ('Bearer realm="https://t/", Basic realm="x"', ("bearer", {"realm": "https://t/"})),
        ('Basic realm="a \\"quoted\\" name"', ("basic", {"realm": 'a "quoted" name'})),
        ("Negotiate", None),
        ("", None),
    ],
)
def test_challenges(header: str, expected: tuple[str, dict[str, str]] | None) -> None:
    found = parse_challenge(header)
    assert found == (Challenge(scheme=expected[0], parameters=expected[1]) if expected else None)
