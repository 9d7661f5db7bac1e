"""Manifests, blobs, tags, tokens and presence, against a registry in memory;
tests/engine/test_oci_registry.py has a real one.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from driverforge_core.errors import (
    DriverforgeError,
    InputError,
    NotPermitted,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_oci.auth import Credentials, Login, find_login
from driverforge_oci.client import DOCKER_LIST, OCI_INDEX, OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.presence import Absent, Present, Unknown, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound, Session
from driverforge_oci.transport import Request, Response
from support.fakes.memoryregistry import HOST, TOKEN_SERVICE, MemoryRegistry, answer

IMAGE = Reference.parse(f"{HOST}/driver:1")
LOGIN = Login(user="ci", password="secret")


def _client(registry: MemoryRegistry, credentials: Credentials | None = None) -> RegistryClient:
    return RegistryClient(Session(registry, partial(find_login, credentials or {})))


def _image(registry: MemoryRegistry, tag: str = "", *, arch: str = "amd64") -> str:
    config = json.dumps(
        {"architecture": arch, "config": {"Labels": {"version": "535.261.03", "arch": arch}}}
    ).encode()
    layer = b"layer of " + arch.encode()
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": registry.add_blob("driver", config),
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": registry.add_blob("driver", layer),
                "size": len(layer),
            }
        ],
    }
    return registry.add_manifest("driver", tag, OCI_MANIFEST, document)


def _index(registry: MemoryRegistry, tag: str, children: dict[str, str], media_type: str = OCI_INDEX) -> str:
    manifests = []
    for platform, digest in children.items():
        os, arch, *variant = platform.split("/")
        entry = {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": 1,
            "platform": {"os": os, "architecture": arch},
        }
        manifests.append(
            entry | ({"platform": {"os": os, "architecture": arch, "variant": variant[0]}} if variant else {})
        )
    return registry.add_manifest(
        "driver", tag, media_type, {"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}
    )


def test_presence_is_yes_or_no_only_when_the_registry_says_so() -> None:
    registry = MemoryRegistry()
    digest = _image(registry, "1")
    client = _client(registry)
    assert presence(client, IMAGE) == Present(digest)
    assert presence(client, IMAGE.with_digest(digest)) == Present(digest)
    assert presence(client, IMAGE.with_tag("2")) == Absent()
    assert registry.requests() == [
        "HEAD /v2/driver/manifests/1",
        f"HEAD /v2/driver/manifests/{digest}",
        "HEAD /v2/driver/manifests/2",
    ]


def _refuse(request: Request) -> Response | None:
    raise TemporaryFailure("no answer from registry.site: Name or service not known")


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (lambda request: answer(401), "refuses HEAD on driver (401)"),
        (lambda request: answer(403), "refuses HEAD on driver (403)"),
        (lambda request: answer(429), "answers 429"),
        (lambda request: answer(500), "answers 500"),
        (lambda request: answer(503), "answers 503"),
        (lambda request: answer(418), "answers 418, which was not expected"),
        (
            lambda request: answer(302, headers={"location": "/v2/driver/manifests/1"}),
            "redirects more than 10 times",
        ),
        (
            lambda request: answer(302, headers={"location": "http://elsewhere.site/"}),
            "sends us to a place without TLS",
        ),
        (_refuse, "Name or service not known"),
    ],
)
def test_everything_else_is_unknown_never_absent(
    trouble: Callable[[Request], Response | None], reason: str
) -> None:
    registry = MemoryRegistry(trouble=trouble)
    found = presence(_client(registry), IMAGE)
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_presence_needs_a_tag_or_a_digest() -> None:
    with pytest.raises(InputError, match="names no image"):
        presence(_client(MemoryRegistry()), Reference.parse(f"{HOST}/driver"))


def test_a_registry_without_digest_headers_is_asked_for_the_manifest() -> None:
    registry = MemoryRegistry()
    digest = _image(registry, "1")

    def trouble(request: Request) -> Response | None:
        if not request.url.endswith("/manifests/1"):
            return None
        media_type, data = registry.manifests["driver", "1"]
        return answer(
            200, b"" if request.method == "HEAD" else data, {"content-type": f"{media_type}; charset=utf-8"}
        )

    registry.trouble = trouble
    found = _client(registry).head_manifest(IMAGE)
    assert (found.digest, found.media_type, found.size) == (
        digest,
        OCI_MANIFEST,
        len(registry.manifests["driver", digest][1]),
    )


def test_manifests_are_checked_against_their_digest() -> None:
    registry = MemoryRegistry()
    digest = _image(registry, "1")
    registry.manifests["driver", digest] = (OCI_MANIFEST, b"{}")
    with pytest.raises(TemporaryFailure, match="other bytes") as caught:
        _client(registry).get_manifest(IMAGE.with_digest(digest))
    assert digest in caught.value.details[0]


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>"])
def test_a_manifest_that_is_none(data: bytes) -> None:
    registry = MemoryRegistry()
    registry.manifests["driver", "1"] = (OCI_MANIFEST, data)
    with pytest.raises(Unavailable, match="the manifest of"):
        _client(registry).get_manifest(IMAGE)


def test_an_index_is_followed_down_to_a_platform() -> None:
    registry = MemoryRegistry()
    amd64, arm64 = _image(registry, arch="amd64"), _image(registry, arch="arm64")
    inner = _index(registry, "", {"linux/arm64/v8": arm64}, DOCKER_LIST)
    _index(registry, "1", {"linux/amd64": amd64, "linux/arm64": inner})
    client = _client(registry)
    assert client.resolve(IMAGE, "linux/amd64").digest == amd64
    assert client.resolve(IMAGE, "linux/arm64").digest == arm64
    assert client.resolve(IMAGE.with_digest(amd64), "linux/arm64").digest == amd64
    with pytest.raises(Unsupported) as caught:
        client.resolve(IMAGE, "linux/riscv64")
    assert list(caught.value.details) == ["it has: linux/amd64, linux/arm64"]


def test_labels_come_from_the_platforms_configuration() -> None:
    registry = MemoryRegistry()
    _index(
        registry,
        "1",
        {"linux/amd64": _image(registry, arch="amd64"), "linux/arm64": _image(registry, arch="arm64")},
    )
    assert labels(_client(registry), IMAGE, "linux/arm64") == {"version": "535.261.03", "arch": "arm64"}
    with pytest.raises(NotFound):
        labels(_client(registry), IMAGE.with_tag("2"), "linux/arm64")


def test_blobs_are_streamed_and_checked() -> None:
    registry = MemoryRegistry()
    data = bytes(range(256)) * 10_000
    digest = registry.add_blob("driver", data)
    client, sink = _client(registry), io.BytesIO()
    assert client.get_blob(IMAGE, digest, sink) == len(data)
    assert sink.getvalue() == data
    registry.blobs["driver", digest] = data[:-1]
    with pytest.raises(TemporaryFailure, match="other bytes"):
        client.get_blob(IMAGE, digest, io.BytesIO())
    with pytest.raises(InputError, match="no sha256 or sha512 digest"):
        client.get_blob(IMAGE, "md5:00", io.BytesIO())


def test_a_redirected_blob_is_fetched_without_our_login() -> None:
    registry = MemoryRegistry(auth="basic", login=LOGIN, blob_host="cdn.site")
    digest = registry.add_blob("driver", b"x")
    sink = io.BytesIO()
    _client(registry, {HOST: LOGIN}).get_blob(IMAGE, digest, sink)
    assert sink.getvalue() == b"x"
    assert registry.log[-1].url == f"https://cdn.site/driver/{digest}"
    assert "Authorization" in registry.log[-2].headers


def test_a_place_that_a_redirect_leads_to_does_not_choose_where_the_login_goes() -> None:
    asks = {"www-authenticate": 'Bearer realm="https://thief.site/token"'}
    registry = MemoryRegistry(
        blob_host="cdn.site",
        trouble=lambda request: (
            None if request.url.startswith(f"https://{HOST}/") else answer(401, headers=asks)
        ),
    )
    digest = registry.add_blob("driver", b"x")
    with pytest.raises(NotPermitted):
        _client(registry, {HOST: LOGIN}).get_blob(IMAGE, digest, io.BytesIO())
    assert not [request for request in registry.log if "thief.site" in request.url]


@pytest.mark.parametrize("status", [403, 400, 503])
def test_a_place_that_a_redirect_leads_to_answers_for_itself(status: int) -> None:
    """A proxy may let us through to the registry alone: a login there would not help."""
    registry = MemoryRegistry(
        blob_host="cdn.site", trouble=lambda request: answer(status) if "cdn.site" in request.url else None
    )
    digest = registry.add_blob("driver", b"x")
    with pytest.raises(DriverforgeError, match=f"cdn.site, where {HOST} sends us, ") as refused:
        _client(registry).get_blob(IMAGE, digest, io.BytesIO())
    assert f"it led to https://cdn.site/driver/{digest}" in refused.value.details
    assert "docker login" not in refused.value.resolution


def test_a_push_sends_what_is_missing_and_nothing_twice() -> None:
    registry = MemoryRegistry()
    client = _client(registry)
    data = b"layer"
    digest = digest_of(data)
    assert client.put_blob(IMAGE, lambda: io.BytesIO(data), digest=digest, size=len(data))
    assert registry.requests() == [
        f"HEAD /v2/driver/blobs/{digest}",
        "POST /v2/driver/blobs/uploads/",
        "PUT /v2/driver/blobs/uploads/1",
    ]
    assert not client.put_blob(IMAGE, data, digest=digest, size=len(data))
    other = Reference.parse(f"{HOST}/copy:1")
    assert not client.put_blob(other, data, digest=digest, size=len(data), mount_from="driver")
    assert registry.blobs["copy", digest] == data
    assert client.put_blob(other, b"new", digest=digest_of(b"new"), size=3, mount_from="driver")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST}).encode()
    assert client.put_manifest(IMAGE, manifest, OCI_MANIFEST) == digest_of(manifest)
    assert client.get_manifest(IMAGE).data == manifest
    with pytest.raises(InputError, match="has the digest"):
        client.put_manifest(IMAGE.with_digest(digest), manifest, OCI_MANIFEST)


def test_a_refused_upload_shows_the_registrys_own_words() -> None:
    with pytest.raises(Unavailable) as caught:
        _client(MemoryRegistry()).put_blob(IMAGE, b"abc", digest=digest_of(b"abd"), size=3)
    assert "DIGEST_INVALID: provided digest did not match uploaded content" in caught.value.details


@pytest.mark.parametrize(
    "login", [LOGIN, Login(identity_token="refresh"), None], ids=["password", "identity-token", "anonymous"]
)
def test_tokens_are_fetched_once_for_each_scope(login: Login | None) -> None:
    registry = MemoryRegistry(auth="bearer", login=login)
    _image(registry, "1")
    client = _client(registry, {HOST: login} if login else {})
    assert isinstance(presence(client, IMAGE), Present)
    client.get_manifest(IMAGE)
    client.put_blob(IMAGE, b"x", digest=digest_of(b"x"), size=1)
    client.put_manifest(IMAGE, b"{}", OCI_MANIFEST)
    assert list(registry.tokens.values()) == ["repository:driver:pull", "repository:driver:pull,push"]
    assert [request.url.partition("?")[0] for request in registry.log].count(TOKEN_SERVICE) == 2


def test_an_expired_token_is_replaced() -> None:
    registry = MemoryRegistry(auth="bearer")
    _image(registry, "1")
    client = _client(registry)
    client.get_manifest(IMAGE)
    registry.tokens.clear()
    client.get_manifest(IMAGE)
    assert len(registry.tokens) == 1


def test_mounting_asks_for_both_repositories() -> None:
    registry = MemoryRegistry(auth="bearer")
    digest = registry.add_blob("driver", b"x")
    assert not _client(registry).put_blob(
        Reference.parse(f"{HOST}/copy:1"), b"x", digest=digest, size=1, mount_from="driver"
    )
    assert "repository:copy:pull,push repository:driver:pull" in registry.tokens.values()


@pytest.mark.parametrize(
    ("asked", "status"), [("&from=driver", 401), ("&from=driver", 403), ("driver%3Apull", 403)]
)
def test_a_repository_that_lets_nobody_mount_costs_the_mount_alone(asked: str, status: int) -> None:
    """The registry refuses it, or the token service does: logins may be of one repository each."""
    registry = MemoryRegistry(
        auth="bearer", trouble=lambda request: answer(status) if asked in request.url else None
    )
    digest = registry.add_blob("driver", b"x")
    assert _client(registry).put_blob(
        Reference.parse(f"{HOST}/copy:1"), b"x", digest=digest, size=1, mount_from="driver"
    )
    assert registry.blobs["copy", digest] == b"x"


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_wrong_login_is_refused_and_makes_presence_unknown(auth: str) -> None:
    registry = MemoryRegistry(auth=auth, login=LOGIN)
    _image(registry, "1")
    wrong = {HOST: Login(user="ci", password="wrong")}
    with pytest.raises(NotPermitted) as caught:
        _client(registry, wrong).get_manifest(IMAGE)
    assert "wrong" not in caught.value.render()
    assert isinstance(presence(_client(registry, wrong), IMAGE), Unknown)
    assert isinstance(presence(_client(registry), IMAGE), Unknown)
    assert isinstance(presence(_client(registry, {HOST: LOGIN}), IMAGE), Present)


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_threads_that_learn_of_the_login_at_the_same_time_are_all_let_in(auth: str) -> None:
    threads = 8
    everybody = threading.Barrier(threads, timeout=60)

    def together(request: Request) -> Response | None:
        if not request.url.startswith(TOKEN_SERVICE) and "Authorization" not in request.headers:
            everybody.wait()
        return None

    registry = MemoryRegistry(auth=auth, login=LOGIN, trouble=together)
    digest = _image(registry, "1")
    client = _client(registry, {HOST: LOGIN})
    with ThreadPoolExecutor(threads) as pool:
        assert (
            list(pool.map(lambda _: presence(client, IMAGE), range(threads))) == [Present(digest)] * threads
        )


def test_a_token_service_in_trouble_makes_presence_unknown() -> None:
    registry = MemoryRegistry(auth="bearer")
    for trouble, reason in (
        (answer(503), "auth.site answers 503"),
        (answer(200, b"{}"), "answers without a token"),
    ):
        registry.trouble = lambda request, given=trouble: (
            given if request.url.startswith(TOKEN_SERVICE) else None
        )  # type: ignore[misc]
        assert reason in repr(presence(_client(registry), IMAGE))


def test_a_login_is_not_sent_to_a_token_service_without_tls() -> None:
    registry = MemoryRegistry()
    challenge = {"www-authenticate": 'Bearer realm="http://auth.site/token",service="s"'}
    registry.trouble = lambda request: answer(401, headers=challenge)
    with pytest.raises(NotPermitted, match="unencrypted"):
        _client(registry, {HOST: LOGIN}).get_manifest(IMAGE)
    assert not [request for request in registry.log if request.url.startswith("http://")]


def test_which_registries_have_no_tls() -> None:
    session = Session(MemoryRegistry(), plain_http=["bench:5000"])
    plain = ["localhost:5000", "127.0.0.5:5000", "[::1]:5000", "bench:5000"]
    bases = {host: session.base(host) for host in ("registry.site", *plain, "docker.io")}
    assert [host for host, base in bases.items() if base.startswith("http://")] == plain
    assert bases["docker.io"] == "https://registry-1.docker.io"


def test_a_busy_registry_says_for_how_long() -> None:
    registry = MemoryRegistry(trouble=lambda request: answer(429, headers={"retry-after": "3600"}))
    with pytest.raises(TemporaryFailure) as caught:
        _client(registry).get_manifest(IMAGE)
    assert caught.value.brief == f"{HOST} answers 429 (Retry-After: 3600)"


def test_the_port_that_a_location_states_is_the_registrys_own() -> None:
    registry = MemoryRegistry(auth="basic", login=LOGIN)
    moved = MemoryRegistry(
        auth="basic", login=LOGIN, trouble=lambda request: _with_port(registry.send(request))
    )
    assert _client(moved, {HOST: LOGIN}).put_blob(IMAGE, b"x", digest=digest_of(b"x"), size=1)


def test_an_upload_to_another_host_gets_no_login() -> None:
    registry = MemoryRegistry(auth="basic", login=LOGIN)
    uploads: list[Request] = []

    def elsewhere(request: Request) -> Response:
        if request.url.startswith("https://cdn.site/"):
            uploads.append(request)
            return answer(201)
        response = registry.send(request)
        moved = {"location": f"https://cdn.site{response.headers.get('location', '')}"}
        return replace(response, headers={**response.headers, **moved})

    client = _client(MemoryRegistry(trouble=elsewhere), {HOST: LOGIN})
    client.put_blob(IMAGE, b"x", digest=digest_of(b"x"), size=1)
    assert "Authorization" in registry.log[-1].headers
    assert ["Authorization" in request.headers for request in uploads] == [False]


def _with_port(response: Response) -> Response:
    location = response.headers.get("location", "")
    return (
        replace(response, headers={**response.headers, "location": f"https://{HOST}:443{location}"})
        if location
        else response
    )


def test_tags_come_page_by_page() -> None:
    pages = {
        "/v2/driver/tags/list?n=1000": (["a", "b"], '</v2/driver/tags/list?n=1000&last=b>; rel="next"'),
        "/v2/driver/tags/list?n=1000&last=b": (["c"], ""),
    }

    def page(request: Request) -> Response | None:
        names, following = pages[request.url.partition("registry.site")[2]]
        return answer(200, json.dumps({"tags": names}).encode(), {"link": following} if following else {})

    client = RegistryClient(Session(MemoryRegistry(trouble=page)))
    assert client.tags(Reference.parse("registry.site/driver")) == ["a", "b", "c"]


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"tags": 5}'])
def test_what_is_no_list_of_tags_is_refused(body: bytes) -> None:
    client = RegistryClient(Session(MemoryRegistry(trouble=lambda _: answer(200, body))))
    with pytest.raises(Unavailable, match="gives no list of the tags"):
        client.tags(Reference.parse("registry.site/driver"))
