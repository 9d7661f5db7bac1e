"""Referrers at registries with and without OCI's list of them: what is attached is there once, and stays."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driverforge_core.errors import TemporaryFailure, Unsupported
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import (
    Artifact,
    attach,
    content_of,
    referrers,
    referrers_tag,
    settled_referrers,
)
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response
from support.fakes.fakeengine import store_image
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer
from support.fakes.turns import Turns

SLOTS = ("one", "two", "three")
DRIVER = Reference.parse(f"{HOST}/driver:1")


def client(registry: MemoryRegistry) -> RegistryClient:
    return RegistryClient(Session(registry))


def image(registry: MemoryRegistry) -> Reference:
    return DRIVER.with_digest(store_image(registry, DRIVER, {}))


def artifact(slot: str, content: bytes = b"{}") -> Artifact:
    said = (("said", f"{slot}"),)
    return Artifact(media_type=f"application/{slot}", content=content, slot=slot, annotations=said)


@pytest.mark.parametrize("lists", [0, 1, 100], ids=["by tag", "in pages", "at once"])
def test_what_is_attached_is_listed_with_its_type_and_annotations(lists: int) -> None:
    registry = MemoryRegistry(lists_referrers=lists)
    place = image(registry)
    made = [attach(client(registry), place, artifact(slot, slot.encode()), SLOTS) for slot in SLOTS]
    found = referrers(client(registry), place, SLOTS)
    assert sorted(one.digest for one in found) == sorted(one.digest for one in made)
    assert {one.artifact_type for one in found} == {f"application/{slot}" for slot in SLOTS}
    assert {one.annotations for one in found} == {(("said", slot),) for slot in SLOTS}
    contents = {content_of(client(registry), place, one, limit=100) for one in found}
    assert contents == {slot.encode() for slot in SLOTS}


def test_a_registry_that_lists_them_has_no_tag_more_than_before() -> None:
    registry = MemoryRegistry(lists_referrers=5)
    attach(client(registry), image(registry), artifact("one"), SLOTS)
    assert [tag for _, tag in registry.manifests if ":" not in tag] == ["1"]


def test_the_index_is_where_other_clients_look_for_it() -> None:
    registry = MemoryRegistry()
    place = image(registry)
    made = attach(client(registry), place, artifact("one"), SLOTS)
    media_type, data = registry.manifests["driver", place.digest.replace(":", "-")]
    assert media_type == OCI_INDEX
    (entry,) = json.loads(data)["manifests"]
    assert entry == {
        "mediaType": OCI_MANIFEST,
        "digest": made.digest,
        "size": made.size,
        "artifactType": "application/one",
        "annotations": {"said": "one"},
    }
    subject = json.loads(registry.manifests["driver", made.digest][1])["subject"]
    assert subject["digest"] == place.digest


def test_the_same_artifact_twice_is_there_once() -> None:
    registry = MemoryRegistry()
    place = image(registry)
    for _ in range(2):
        attach(client(registry), place, artifact("one"), SLOTS)
    assert len(referrers(client(registry), place, SLOTS)) == 1


def test_entries_of_other_clients_stay_with_keys_that_we_do_not_know() -> None:
    registry = MemoryRegistry()
    place = image(registry)
    theirs = {"mediaType": OCI_MANIFEST, "digest": "sha256:" + "a" * 64, "size": 9, "data": "e30="}
    registry.add_manifest("driver", referrers_tag(place.digest), OCI_INDEX, {"manifests": [theirs]})
    attach(client(registry), place, artifact("one"), SLOTS)
    kept = json.loads(registry.manifests["driver", referrers_tag(place.digest)][1])["manifests"]
    assert kept[0] == theirs
    assert len(kept) == 2


def test_a_tag_that_is_no_index_is_an_error_that_names_it() -> None:
    registry = MemoryRegistry()
    place = image(registry)
    store_image(registry, DRIVER.with_tag(referrers_tag(place.digest)), {"other": "image"})
    with pytest.raises(Unsupported, match="is no index") as told:
        attach(client(registry), place, artifact("one"), SLOTS)
    assert referrers_tag(place.digest) in told.value.brief


@pytest.mark.parametrize("status", [400, 404, 405, 406])
def test_a_registry_that_does_not_know_the_question_is_asked_by_tag(status: int) -> None:
    def no_list(request: Request) -> Response | None:
        return answer(status) if "/referrers/" in request.url else None

    registry = MemoryRegistry(trouble=no_list)
    place = image(registry)
    made = attach(client(registry), place, artifact("one"), SLOTS)
    assert [one.digest for one in referrers(client(registry), place)] == [made.digest]


def test_a_web_page_in_place_of_the_list_is_none() -> None:
    def page(request: Request) -> Response | None:
        html = {"content-type": "text/html"}
        return answer(200, b"<html>", html) if "/referrers/" in request.url else None

    registry = MemoryRegistry(trouble=page)
    assert referrers(client(registry), image(registry)) == ()


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_registry_that_refuses_or_is_busy_has_not_said_that_there_are_none(status: int) -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(status))
    with pytest.raises(Exception, match=rf"\b{status}\b"):
        referrers(client(registry), DRIVER.with_digest("sha256:" + "0" * 64))


def test_a_registry_that_takes_images_alone_is_named_as_that() -> None:
    def images_alone(request: Request) -> Response | None:
        artifact = isinstance(request.body, bytes) and b"artifactType" in request.body
        return answer(400, b'{"errors": [{"code": "MANIFEST_INVALID"}]}') if artifact else None

    registry = MemoryRegistry(trouble=images_alone)
    with pytest.raises(Unsupported, match="does not take artifacts") as told:
        attach(client(registry), image(registry), artifact("one"), SLOTS)
    assert "MANIFEST_INVALID" in told.value.details[-1]


class Killed(Exception):
    pass


# more requests than any of it takes
@pytest.mark.parametrize("requests", range(1, 30))
@pytest.mark.parametrize("lists", [0, 9], ids=["by tag", "by the registry"])
def test_after_a_kill_at_any_request_the_next_run_finds_or_attaches_it(requests: int, lists: int) -> None:
    registry = MemoryRegistry(lists_referrers=lists)
    place = image(registry)
    left = [requests]

    def dies(_: Request) -> Response | None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return None

    registry.trouble = dies
    with suppress(Killed):
        attach(client(registry), place, artifact("one", b"first run"), SLOTS)
    registry.trouble = lambda _: None
    if not settled_referrers(client(registry), place, SLOTS):
        attach(client(registry), place, artifact("one", b"second run"), SLOTS)
    # as a client sees it that knows no slots
    assert len(referrers(client(registry), place)) == 1


@given(stretches=st.lists(st.integers(1, 20), min_size=1, max_size=9))
# the second has read the index before the first wrote it, and writes after the first was content
@example(stretches=[13, 14, 30, 30])
@settings(deadline=None)
def test_of_three_writers_of_one_image_in_any_order_none_is_lost(stretches: list[int]) -> None:
    order = [writer for at, count in enumerate(stretches) for writer in [at % 3] * count]
    registry, turns = MemoryRegistry(), Turns(order)
    place = image(registry)

    def write(writer: int) -> None:
        try:
            attach(turns.of(registry, writer), place, artifact(SLOTS[writer]), SLOTS)
        finally:
            turns.end(writer)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    found = referrers(client(registry), place)
    assert {one.artifact_type for one in found} == {f"application/{slot}" for slot in SLOTS}
    assert len(found) == 3


def test_writers_without_an_end_are_an_error_that_says_when_to_try_again() -> None:
    registry = MemoryRegistry()
    place = image(registry)
    tag = referrers_tag(place.digest)

    def another_clears_it(request: Request) -> Response | None:
        if request.method == "GET" and request.url.endswith(tag):
            registry.manifests.pop(("driver", tag), None)
        return None

    registry.trouble = another_clears_it
    with pytest.raises(TemporaryFailure, match="changed by others 10 times"):
        attach(client(registry), place, artifact("one"), SLOTS)
