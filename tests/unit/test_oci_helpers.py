"""Credential helpers: which one is asked for which registry, what its answers mean, and that a failure names
the file, the key and the next step, and never what the helper said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from driverforge_core.errors import CommandFailed, InputError
from driverforge_oci.auth import Login
from driverforge_oci.client import RegistryClient
from driverforge_oci.dockerconfig import Configuration, parse_configuration
from driverforge_oci.helpers import Logins
from driverforge_oci.presence import presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry

SECRET = "correct horse"
CONFIG = {
    "auths": {
        "kept.site": {"username": "file", "password": "x"},
        "team.site/a": {"username": "a", "password": "x"},
    },
    "credHelpers": {
        "registry.site": "first",
        "https://index.docker.io/v1/": "hub",
        "plain.site": "",
        "team.site": "first",
    },
    "credsStore": "store",
}


class Helpers:
    """Programs by name, each with what it answers; they remember what they were asked."""

    def __init__(self, **answers: tuple[int, bytes] | Exception) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def __call__(self, argv: Sequence[str], given: bytes) -> tuple[int, bytes]:
        program, verb = argv
        assert verb == "get"
        name = program.removeprefix("docker-credential-")
        self.asked.append((name, given.decode()))
        answer = self.answers.get(name, (1, b"credentials not found in native keychain\n"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def found(user: str, secret: str = SECRET) -> tuple[int, bytes]:
    return 0, json.dumps({"ServerURL": "x", "Username": user, "Secret": secret}).encode()


def logins(helpers: Helpers, config: dict[str, object] | None = None) -> Logins:
    text = json.dumps(config or CONFIG)
    return Logins(lambda: parse_configuration(text, where="/root/.docker/config.json"), helpers)


@pytest.mark.parametrize(
    ("host", "asked", "login"),
    [
        ("registry.site", [("first", "registry.site")], Login(user="ci", password=SECRET)),
        ("docker.io", [("hub", "https://index.docker.io/v1/")], Login(identity_token=SECRET)),
        ("other.site:5000", [("store", "other.site:5000")], None),
        ("kept.site", [("store", "kept.site")], Login(user="file", password="x")),
        ("plain.site", [], None),
    ],
)
def test_which_helper_is_asked_for_what(host: str, asked: list[tuple[str, str]], login: Login | None) -> None:
    helpers = Helpers(first=found("ci"), hub=found("<token>"))
    assert logins(helpers)(host, "driver") == login
    assert helpers.asked == asked


def test_without_helpers_the_file_alone_counts() -> None:
    helpers = Helpers()
    assert Logins(Configuration, helpers)("registry.site", "driver") is None
    assert helpers.asked == []


def test_a_helper_is_asked_once_for_a_registry_and_only_when_a_login_is_wanted() -> None:
    helpers = Helpers(first=found("ci"))
    registry = MemoryRegistry(auth="basic", login=Login(user="ci", password=SECRET))
    client = RegistryClient(Session(registry, logins(helpers)))
    assert helpers.asked == []
    for tag in ("1", "2"):
        presence(client, Reference.parse(f"{HOST}/driver:{tag}"))
    assert len(helpers.asked) == 1
    assert registry.log[-1].headers["Authorization"] == Login(user="ci", password=SECRET).basic


WHERE = "/root/.docker/config.json: credHelpers: registry.site: the credential helper docker-credential-first"


@pytest.mark.parametrize(
    ("answer", "brief", "step"),
    [
        (
            FileNotFoundError(2, "No such file or directory"),
            "cannot be started: No such file or directory",
            "docker login registry.site",
        ),
        (TimeoutError(), "does not answer", "unlock"),
        (
            (1, b"keychain is locked: " + SECRET.encode()),
            "failed with exit status 1",
            "docker-credential-first get",
        ),
        ((0, SECRET.encode()), "answers with something that is no login", "docker-credential-first get"),
        ((0, b""), "answers with something that is no login", "docker-credential-first get"),
        ((0, b"[" * 100_000), "answers with something that is no login", "docker-credential-first get"),
        ((0, b"[]"), "answers with something that is no login", "docker-credential-first get"),
        ((0, json.dumps({"Username": "ci", "Secret": 5}).encode()), "no login", "get"),
        ((0, json.dumps({"Username": "", "Secret": SECRET}).encode()), "no login", "get"),
    ],
)
def test_a_helper_that_fails_is_told_with_file_key_and_next_step(
    answer: tuple[int, bytes] | Exception, brief: str, step: str
) -> None:
    helpers = Helpers(first=answer)
    ask = logins(helpers)
    for _ in range(2):
        with pytest.raises(CommandFailed) as caught:
            ask("registry.site", "driver")
        assert caught.value.brief.startswith(WHERE)
        assert brief in caught.value.brief
        assert step in caught.value.resolution
        assert SECRET not in caught.value.render()
    assert len(helpers.asked) == 1


def test_a_helper_that_fails_is_no_answer_of_the_registry() -> None:
    registry = MemoryRegistry(auth="basic", login=Login(user="ci", password=SECRET))
    client = RegistryClient(Session(registry, logins(Helpers(first=(3, b"")))))
    with pytest.raises(CommandFailed, match="exit status 3"):
        presence(client, Reference.parse(f"{HOST}/driver:1"))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"credsStore": "../evil"}, "credsStore"),
        ({"credsStore": 5}, "credsStore"),
        ({"credHelpers": {"registry.site": "a b"}}, "credHelpers: registry.site"),
        ({"credHelpers": {"registry.site": ["x"]}}, "credHelpers: registry.site"),
    ],
)
def test_a_name_that_is_no_helpers_is_wrong_input(config: dict[str, object], key: str) -> None:
    with pytest.raises(InputError) as caught:
        logins(Helpers(), config)("registry.site", "driver")
    assert caught.value.brief.startswith(f"/root/.docker/config.json: {key}: ")


def test_a_damaged_configuration_is_told_when_a_login_is_wanted() -> None:
    def load() -> Configuration:
        raise InputError("config.json is no docker configuration")

    ask: Callable[[str, str], Login | None] = Logins(load, Helpers())
    with pytest.raises(InputError):
        ask("registry.site", "driver")
