"""What a registry must not be able to do with its answers: end the program with a traceback, fill the memory,
or be asked for ever. Every answer is an error that says what is wrong, or counts as an empty value.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from driverforge_core.errors import DriverforgeError, InputError, NotPermitted, Unavailable
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.configuration import parse_configuration
from driverforge_oci.presence import Present, Unknown, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response
from support.fakes.memoryregistry import HOST, TOKEN_SERVICE, MemoryRegistry, answer

IMAGE = Reference.parse(f"{HOST}/driver:1")
DEEP = b"[" * 60_000


def client(registry: MemoryRegistry) -> RegistryClient:
    return RegistryClient(Session(registry))


def image(registry: MemoryRegistry, config: bytes) -> str:
    """A manifest at the tag 1 whose configuration has this content."""
    part = {"mediaType": "c", "digest": registry.add_blob("driver", config), "size": len(config)}
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": part, "layers": []}
    return registry.add_manifest("driver", "1", OCI_MANIFEST, document)


def test_an_error_that_is_nested_too_deep_is_still_that_error() -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(500, DEEP))
    with pytest.raises(DriverforgeError, match="answers 500"):
        client(registry).get_manifest(IMAGE)


def test_a_page_in_place_of_an_error_is_shown_in_part() -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(500, b"<p>\n" * 16_000))
    with pytest.raises(DriverforgeError) as caught:
        client(registry).get_manifest(IMAGE)
    assert len(caught.value.details) < 1000


def test_a_manifest_that_is_nested_too_deep() -> None:
    registry = MemoryRegistry()
    registry.manifests["driver", "1"] = (OCI_MANIFEST, DEEP)
    with pytest.raises(Unavailable, match="is not JSON") as caught:
        client(registry).get_manifest(IMAGE)
    assert caught.value.details == ("it is nested too deep",)


def test_a_token_that_is_nested_too_deep() -> None:
    registry = MemoryRegistry(auth="bearer")
    registry.trouble = lambda request: answer(200, DEEP) if request.url.startswith(TOKEN_SERVICE) else None
    with pytest.raises(Unavailable, match="answers without a token"):
        client(registry).get_manifest(IMAGE)


@pytest.mark.parametrize("config", [DEEP, b"[]", b"{", b"\xff"])
def test_a_configuration_that_is_none(config: bytes) -> None:
    registry = MemoryRegistry()
    image(registry, config)
    with pytest.raises(Unavailable, match=r"the configuration of \S+ cannot be read"):
        labels(client(registry), IMAGE, "linux/amd64")


@pytest.mark.parametrize(
    "config", [b'{"config": "x"}', b'{"config": {"Labels": ["x"]}}', b'{"config": {"Labels": {"x": {}}}}']
)
def test_labels_that_are_none_are_no_labels(config: bytes) -> None:
    registry = MemoryRegistry()
    image(registry, config)
    assert labels(client(registry), IMAGE, "linux/amd64") == {}


def test_a_docker_configuration_that_is_nested_too_deep() -> None:
    with pytest.raises(InputError, match="is no docker configuration"):
        parse_configuration(DEEP.decode(), where="config.json")


class Endless(io.RawIOBase):
    """A body without an end; it counts what was taken."""

    taken = 0

    def read(self, size: int = -1, /) -> bytes:
        assert 0 < size <= 8 << 20, "all of it was asked for"
        self.taken += size
        return b" " * size


@pytest.mark.parametrize("kind", ["manifests", "blobs"])
def test_an_answer_without_an_end_is_left(kind: str) -> None:
    registry, body = MemoryRegistry(), Endless()
    image(registry, b"{}")

    def trouble(request: Request) -> Response | None:
        return Response(status=200, headers={}, body=body) if f"/{kind}/" in request.url else None

    registry.trouble = trouble
    with pytest.raises(Unavailable, match="larger than 4 MiB"):
        labels(client(registry), IMAGE, "linux/amd64")
    assert body.taken <= 8 << 20


def test_indexes_in_indexes_come_to_an_end() -> None:
    registry = MemoryRegistry()
    digest = image(registry, b"{}")
    for _ in range(20):
        child = {
            "mediaType": OCI_INDEX,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", "architecture": "amd64"},
        }
        digest = registry.add_manifest(
            "driver", "1", OCI_INDEX, {"mediaType": OCI_INDEX, "manifests": [child]}
        )
    with pytest.raises(Unavailable, match="index of indexes"):
        client(registry).resolve(IMAGE, "linux/amd64")


@pytest.mark.parametrize(
    "document",
    [
        {"mediaType": OCI_INDEX, "manifests": 5},
        {"mediaType": OCI_INDEX, "manifests": {"a": 1}},
        {"mediaType": OCI_INDEX, "manifests": ["x"]},
        {"mediaType": OCI_INDEX, "manifests": [{"size": 1, "platform": "linux"}]},
        {"mediaType": OCI_INDEX, "manifests": [{"size": 1, "annotations": [1]}]},
        {"mediaType": OCI_MANIFEST, "config": 5},
    ],
)
def test_a_manifest_with_other_types_than_the_specification_has(document: dict[str, object]) -> None:
    registry = MemoryRegistry()
    registry.add_manifest("driver", "1", str(document["mediaType"]), document)
    with pytest.raises(DriverforgeError):
        labels(client(registry), IMAGE, "linux/amd64")


def headers_instead(headers: dict[str, str], status: int = 200) -> Callable[[Request], Response | None]:
    return lambda request: answer(status, headers=headers) if request.method == "HEAD" else None


@pytest.mark.parametrize("size", ["²", "9" * 5000, "-1", "many"])
def test_a_length_that_is_no_number_is_looked_up_in_the_manifest(size: str) -> None:
    registry = MemoryRegistry()
    digest = image(registry, b"{}")
    registry.trouble = headers_instead({"docker-content-digest": digest, "content-length": size})
    assert presence(client(registry), IMAGE) == Present(digest)


@pytest.mark.parametrize("location", ["http://[", "https://registry.site:99999/", "https://:5/", "file:///x"])
def test_a_redirect_to_no_address(location: str) -> None:
    registry = MemoryRegistry(trouble=headers_instead({"location": location}, 307))
    found = presence(client(registry), IMAGE)
    assert isinstance(found, Unknown)
    assert "sends us to an address that is none" in found.reason


@pytest.mark.parametrize("realm", ["https://[", "https://auth.site:x/", "/token", "https://"])
def test_a_token_service_at_no_address(realm: str) -> None:
    challenge = {"www-authenticate": f'Bearer realm="{realm}",service="s"'}
    found = presence(client(MemoryRegistry(trouble=lambda _: answer(401, headers=challenge))), IMAGE)
    assert isinstance(found, Unknown)
    assert "names no token service" in found.reason


def test_a_token_that_fits_into_no_header() -> None:
    registry = MemoryRegistry(auth="bearer")
    token = json.dumps({"token": "€"}).encode()
    registry.trouble = lambda request: answer(200, token) if request.url.startswith(TOKEN_SERVICE) else None
    with pytest.raises(Unavailable, match="answers without a token"):
        client(registry).get_manifest(IMAGE)


@pytest.mark.parametrize("sequence", ["\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\r\x00\u202e"], ids=ascii)
def test_a_registrys_words_are_no_commands_to_a_terminal(sequence: str) -> None:
    error = {"errors": [{"code": f"DENIED{sequence}", "message": sequence}]}
    registry = MemoryRegistry(
        trouble=lambda _: answer(403, json.dumps(error).encode(), {"retry-after": sequence})
    )
    with pytest.raises(NotPermitted) as caught:
        client(registry).get_manifest(IMAGE)
    told = caught.value.render()
    assert "DENIED" in told
    assert all(char.isprintable() or char == "\n" for char in told)
