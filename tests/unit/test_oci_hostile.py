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
from driverforge_oci.dockerconfig import parse_configuration
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


def test_a_token_that_ends_in_a_blank_works() -> None:
    """No header may: the library that sends it would refuse, and quote it."""
    registry = MemoryRegistry(auth="bearer", tokens={"token": "repository:driver:pull"})
    image(registry, b"{}")
    token = json.dumps({"token": " token "}).encode()
    registry.trouble = lambda request: answer(200, token) if request.url.startswith(TOKEN_SERVICE) else None
    client(registry).get_manifest(IMAGE)
    assert registry.log[-1].headers["Authorization"] == "Bearer token"


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


NEVER = "sha256:" + "0" * 64


@pytest.mark.parametrize("stated", ["", "../../x", "md5:abc", "sha256:" + "1" * 64])
def test_a_portal_that_says_yes_to_everything_has_no_image(stated: str) -> None:
    """It answers so whatever is asked for, with or without a digest of its own."""
    headers = {"content-type": "text/html", "content-length": "6", "docker-content-digest": stated}
    registry = MemoryRegistry(trouble=lambda _: answer(200, b"<html>", headers))
    found = presence(client(registry), IMAGE.with_digest(NEVER))
    assert isinstance(found, Unknown)
    assert "gave other bytes" in found.reason


@pytest.mark.parametrize("stated", ["../../x", "md5:abc"])
def test_a_stated_digest_that_is_none_does_not_count(stated: str) -> None:
    registry = MemoryRegistry()
    digest = image(registry, b"{}")
    registry.trouble = lambda request: (
        answer(200, registry.manifests["driver", "1"][1], {"docker-content-digest": stated})
        if "/manifests/" in request.url
        else None
    )
    assert client(registry).head_manifest(IMAGE).digest == digest


@pytest.mark.parametrize(
    "digest", ["sha256:../../../x", "md5:" + "0" * 32, "", 5, None, "SHA256:" + "0" * 64]
)
def test_a_part_whose_digest_is_none_is_no_part(digest: object) -> None:
    """It would be asked for, and be the end of a path."""
    registry = MemoryRegistry()
    part = {"mediaType": OCI_MANIFEST, "digest": digest, "size": 1}
    registry.add_manifest("driver", "1", OCI_INDEX, {"mediaType": OCI_INDEX, "manifests": [part]})
    with pytest.raises(Unavailable, match="something that is no descriptor"):
        client(registry).resolve(IMAGE, "linux/amd64")


def listing(kind: str, names: int, link: str) -> Callable[[Request], Response]:
    """A page of a list that says where the rest is."""
    part = {"mediaType": OCI_MANIFEST, "digest": NEVER, "size": 1}
    content: dict[str, object] = {"tags": ["a" * 128] * names}
    if kind == "referrers":
        content = {"mediaType": OCI_INDEX, "manifests": [part] * names}
    body = json.dumps(content).encode()
    return lambda _: answer(200, body, {"content-type": OCI_INDEX, "link": link})


def listed(kind: str, registry: MemoryRegistry) -> object:
    ours = client(registry)
    return ours.tags(IMAGE) if kind == "tags" else ours.referrers(IMAGE.with_digest(NEVER))


@pytest.mark.parametrize("kind", ["tags", "referrers"])
@pytest.mark.parametrize(
    "link", ["https://other.site/v2/x", "https://registry.site:444/v2/x", "//other.site/x"]
)
def test_the_rest_of_a_list_is_at_no_other_host(kind: str, link: str) -> None:
    registry = MemoryRegistry(trouble=listing(kind, 1, f'<{link}>; rel="next"'))
    with pytest.raises(Unavailable, match="names another host for the rest of a list"):
        listed(kind, registry)
    assert len(registry.log) == 1


@pytest.mark.parametrize("kind", ["tags", "referrers"])
@pytest.mark.parametrize(
    ("names", "why"), [(1, "has more than 100 pages"), (100_000, "larger than 16 MiB")], ids=["many", "large"]
)
def test_a_list_without_an_end_is_an_error_and_no_shorter_list(kind: str, names: int, why: str) -> None:
    registry = MemoryRegistry(trouble=listing(kind, names, '</v2/driver/more>; rel="next"'))
    with pytest.raises(Unavailable, match=why):
        listed(kind, registry)
    assert len(registry.log) <= 100


def test_headers_that_are_read_for_minutes_by_a_careless_pattern() -> None:
    """Each of them fits into what HTTP clients take."""
    challenge = {"www-authenticate": "Basic " + "a" * 90_000}
    with pytest.raises(NotPermitted):
        client(MemoryRegistry(trouble=lambda _: answer(401, b"", challenge))).get_manifest(IMAGE)
    registry = MemoryRegistry(trouble=listing("tags", 1, "<" * 90_000))
    assert listed("tags", registry) == ["a" * 128]


@pytest.mark.parametrize(
    "location", ["https://é..x/", f"https://{'a' * 64}.site/", "https://registry.site/" + "a" * 8000]
)
def test_an_address_that_nobody_can_ask_is_the_servers_fault(location: str) -> None:
    registry = MemoryRegistry(trouble=headers_instead({"location": location}, 307))
    found = presence(client(registry), IMAGE)
    assert isinstance(found, Unknown)
    assert "sends us to an address that is none" in found.reason


def test_a_registry_that_stores_something_else_is_told() -> None:
    stored = answer(201, b"", {"docker-content-digest": NEVER})
    registry = MemoryRegistry(trouble=lambda request: stored if request.method == "PUT" else None)
    with pytest.raises(DriverforgeError, match="gave other bytes"):
        client(registry).put_manifest(IMAGE, b"{}", OCI_MANIFEST)


@pytest.mark.parametrize("media_type", ["a/b\r\nX-More: 1", "a/ä", "a", "a/b c", "/", ""])
def test_a_media_type_that_is_none_becomes_no_header(media_type: str) -> None:
    registry = MemoryRegistry()
    with pytest.raises(InputError, match="of no media type"):
        client(registry).put_manifest(IMAGE, b"{}", media_type)
    assert not registry.log
