"""Pushing: a tag that is written once, a tag that moves, and a registry that does not answer is never taken
for an empty one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.app.push import push_all
from driverforge_build.matrix import load_matrix
from driverforge_build.ports import BuiltImage
from driverforge_build.publish.alias import Member, VersionsDiffer, join
from driverforge_build.publish.lookup import made_from
from driverforge_build.publish.upload import Publisher, PushReport
from driverforge_build.render.bake import immutable_tag_of, local_reference
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable, UsageError
from driverforge_oci.client import OCI_INDEX, RegistryClient
from driverforge_oci.presence import Unknown
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound, Session
from driverforge_oci.transport import Request, Response
from support.fakes.fakeengine import FakeEngine, store_image
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer
from support.fakes.turns import Turns
from support.samples.synthetic import all_cells, synthetic_lock

MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
BASES = {"debian12": "registry.site/debian:12", "debian13": "registry.site/debian:13"}
GIVEN = Given(matrix=Path("site.yaml"), bases=BASES)


def context(key: str, given: Given | None = None) -> BuildContext:
    (image,) = image_specs([CELLS[key]], LOCK, given=given)
    return context_of(image, resources.templates())


JIT = context("debian12-amd64-535.261.03-jit")
PRECOMPILED = context("debian12-amd64-535.261.03-6.1.0-50-cloud-amd64")


def built(
    *contexts: BuildContext, trouble: Callable[[Request], Response | None] = lambda _: None
) -> FakeEngine:
    engine = FakeEngine(registry=MemoryRegistry(trouble=trouble))
    for made in contexts:
        reference = local_reference(made)
        labels = {"io.driverforge.inputs": made.inputs}
        engine.images[reference] = BuiltImage(
            reference=reference, id="sha256:1", size=1, layers=(), labels=labels
        )
    return engine


def client(engine: FakeEngine) -> RegistryClient:
    return RegistryClient(Session(engine.registry))


def publisher(engine: FakeEngine) -> Publisher:
    return Publisher(registry=HOST, engine=engine, client=client(engine), given=GIVEN)


def push(engine: FakeEngine, made: BuildContext = JIT) -> PushReport:
    return publisher(engine).push(made, lambda _: None)


@pytest.mark.parametrize(
    ("key", "alias"),
    [
        ("debian12-amd64-535.261.03-jit", "535.261.03-debian12"),
        ("debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64", "535-6.12.95_deb12-cloud-amd64-debian12"),
        ("ubuntu24.04-amd64-580.173.02-6.8.0-106-generic", "580-6.8.0-106-generic-ubuntu24.04"),
        (
            "rhel9-arm64-550.163.01-5.14.0-687.5.1.el9_8.aarch64+64k",
            "550.163.01-5.14.0-687.5.1.el9_8.aarch64_64k-rhel9",
        ),
    ],
)
def test_alias_is_the_tag_that_the_operator_asks_for(key: str, alias: str) -> None:
    assert context(key).image.alias_tag == alias


def test_push_writes_the_immutable_tag_and_lets_the_alias_stand_for_it() -> None:
    engine = built(PRECOMPILED)
    report = push(engine, PRECOMPILED)
    assert engine.pushed == [f"{HOST}/driver:{immutable_tag_of(PRECOMPILED)}"]
    assert (report.sent, report.moved) == (True, True)
    assert report.alias == f"{HOST}/driver:535-6.1.0-50-cloud-amd64-debian12"
    media_type, data = engine.registry.manifests["driver", "535-6.1.0-50-cloud-amd64-debian12"]
    assert media_type == OCI_INDEX
    (entry,) = json.loads(data)["manifests"]
    assert entry["digest"] == report.digest
    assert entry["platform"] == {"os": "linux", "architecture": "amd64"}


def test_what_the_registry_has_is_not_sent_again() -> None:
    engine = built(JIT)
    push(engine)
    engine.images.clear()  # the second time not even the engine needs it
    again = push(engine)
    assert len(engine.pushed) == 1
    assert (again.sent, again.moved) == (False, False)


def test_an_immutable_tag_with_other_content_is_never_overwritten() -> None:
    engine = built(JIT)
    place = Reference.parse(f"{HOST}/driver:{immutable_tag_of(JIT)}")
    store_image(engine.registry, place, {"io.driverforge.inputs": "0" * 64})
    before = dict(engine.registry.manifests)
    with pytest.raises(InputError, match="never overwritten") as caught:
        push(engine)
    assert f"its inputs: {'0' * 64}" in caught.value.details
    assert engine.registry.manifests == before
    assert engine.pushed == []


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_does_not_say_gets_nothing(status: int) -> None:
    engine = built(JIT, trouble=lambda _: answer(status))
    with pytest.raises(Unavailable, match="does not say") as caught:
        push(engine)
    assert caught.value.exit_code == 75
    # asking again is no use where a login is missing
    assert isinstance(caught.value, TemporaryFailure) == (status not in (401, 403))
    assert engine.pushed == []


def test_an_image_that_is_not_built_names_the_command() -> None:
    with pytest.raises(UsageError, match="has not been built") as caught:
        push(built())
    shared = "--matrix, --lock, --base, --sign-certificate and --toolkit-artifacts"
    assert caught.value.details == (f"push takes the same {shared} as build",)
    assert caught.value.resolution.endswith(
        "driverforge build --matrix site.yaml --base debian12=registry.site/debian:12 --select "
        "debian12-amd64-535.261.03-jit"
    )


def test_an_image_built_on_another_base_is_not_found_and_the_option_is_named() -> None:
    engine = built(JIT)
    with pytest.raises(UsageError, match="has not been built") as caught:
        push(engine, context(JIT.image.id, Given(bases={"debian12": "registry.site/debian:12"})))
    assert "--base" in caught.value.details[0]


def test_an_image_built_from_something_else_is_refused() -> None:
    engine = built(JIT)
    local = local_reference(JIT)
    engine.images[local] = replace(engine.images[local], labels={"io.driverforge.inputs": "1" * 64})
    with pytest.raises(InputError, match="was not built from"):
        push(engine)


ALIAS = Reference.parse(f"{HOST}/driver:580-6.8.0-106-generic-ubuntu24.04")


def member(engine: FakeEngine, arch: str, version: str = "580.173.02", *, stored: bool = True) -> Member:
    """The image of an architecture, whose immutable tag the registry has if it is `stored`."""
    place = ALIAS.with_tag(f"{version}-{arch}")
    found = {
        "io.driverforge.inputs": version,
        "io.driverforge.cell": f"ubuntu24.04-{arch}-{version}-6.8.0-106-generic",
    }
    if stored:
        store_image(engine.registry, place, found, arch=arch)
    return Member(platform=f"linux/{arch}", reference=place, inputs=version, version=version)


def test_an_index_keeps_other_architectures() -> None:
    engine = FakeEngine()
    registry = client(engine)
    join(registry, ALIAS, [member(engine, "arm64")])
    before = join(registry, ALIAS, [member(engine, "amd64")])
    assert [child.platform for child in registry.get_manifest(ALIAS).children] == [
        "linux/amd64",
        "linux/arm64",
    ]
    again = join(registry, ALIAS, [member(engine, "amd64")])
    assert (again.moved, again.digest, again.images) == (False, before.digest, before.images)


def test_an_index_keeps_no_attestations_and_nothing_that_names_no_platform() -> None:
    """They belong to the index that named them; `docker buildx` writes them."""
    engine = FakeEngine()
    registry = client(engine)
    join(registry, ALIAS, [member(engine, "arm64")])
    media_type, data = engine.registry.manifests["driver", ALIAS.tag]
    document = json.loads(data)
    (image,) = document["manifests"]
    unknown = {"os": "unknown", "architecture": "unknown"}
    document["manifests"] += [{**image, "platform": unknown}, {**image, "platform": {}}]
    engine.registry.manifests["driver", ALIAS.tag] = (media_type, json.dumps(document).encode())
    joined = join(registry, ALIAS, [member(engine, "amd64")])
    assert sorted(joined.images) == ["linux/amd64", "linux/arm64"]
    assert len(registry.get_manifest(ALIAS).children) == 2


def test_a_member_that_the_registry_does_not_speak_of_leaves_the_index_as_it_is() -> None:
    """It may be there: an index without it would be a loss."""
    silent = threading.Event()

    def trouble(request: Request) -> Response | None:
        return answer(403) if silent.is_set() and request.url.endswith("-amd64") else None

    engine = FakeEngine(registry=MemoryRegistry(trouble=trouble))
    members = [member(engine, arch) for arch in ("amd64", "arm64")]
    silent.set()
    with pytest.raises(Unavailable, match="does not say whether it has"):
        join(client(engine), ALIAS, members)
    assert ("driver", ALIAS.tag) not in engine.registry.manifests


def test_an_alias_that_is_a_plain_image_becomes_an_index_with_both() -> None:
    engine = FakeEngine()
    registry = client(engine)
    old = store_image(engine.registry, ALIAS, {}, arch="arm64")
    join(registry, ALIAS, [member(engine, "amd64")])
    assert registry.resolve(ALIAS, "linux/arm64").digest == old


def test_what_the_registry_lacks_is_not_in_the_index_and_nothing_makes_none() -> None:
    engine = FakeEngine()
    amd64, arm64 = member(engine, "amd64"), member(engine, "arm64", stored=False)
    assert join(client(engine), ALIAS, [arm64]).digest == ""
    assert list(join(client(engine), ALIAS, [amd64, arm64]).images) == ["linux/amd64"]


def test_what_an_alias_stands_for_from_an_earlier_time_is_not_found() -> None:
    """`index` says of it that it is missing, and covered.json does not have it."""
    engine = FakeEngine()
    join(client(engine), ALIAS, [member(engine, "arm64")])
    late = replace(member(engine, "arm64", stored=False), reference=ALIAS.with_tag("other"))
    joined = join(client(engine), ALIAS, [member(engine, "amd64"), late])
    assert sorted(joined.images) == ["linux/amd64", "linux/arm64"]
    assert joined.found == {"linux/amd64"}


@pytest.mark.parametrize(("status", "passing"), [(403, False), (503, True)])
def test_labels_that_cannot_be_read_are_asked_for_again_where_that_may_help(
    status: int, passing: bool
) -> None:
    engine = FakeEngine(
        registry=MemoryRegistry(trouble=lambda request: answer(status) if "/blobs/" in request.url else None)
    )
    there = member(engine, "amd64")
    told = made_from(client(engine), there.reference, there.inputs, there.platform)
    assert isinstance(told, Unknown)
    assert told.passing is passing


def test_an_index_of_two_drivers_is_refused_and_both_are_named() -> None:
    engine = FakeEngine()
    registry = client(engine)
    before = join(registry, ALIAS, [member(engine, arch, "580.159.04") for arch in ("amd64", "arm64")])
    newer, late = member(engine, "amd64"), member(engine, "arm64", stored=False)
    with pytest.raises(VersionsDiffer) as told:
        join(registry, ALIAS, [newer, late])
    assert "580.173.02 on linux/amd64, 580.159.04 on linux/arm64" in told.value.brief
    assert "Where none is to come any more, delete the tag" in told.value.resolution
    assert registry.head_manifest(ALIAS).digest == before.digest
    both = join(registry, ALIAS, [newer, member(engine, "arm64")])
    assert both.moved
    assert registry.resolve(ALIAS, "linux/arm64").digest == both.images["linux/arm64"]


def test_an_image_whose_alias_would_stand_for_two_drivers_is_there_and_the_alias_waits() -> None:
    newer = context("ubuntu24.04-amd64-580.173.02-6.8.0-106-generic")
    engine = built(newer)
    before = join(client(engine), ALIAS, [member(engine, "arm64", "580.159.04")])
    report = push(engine, newer)
    assert (report.sent, report.moved, report.alias_digest) == (True, False, "")
    assert "580.173.02 on linux/amd64, 580.159.04 on linux/arm64" in report.waiting
    assert report.lines()[1] == f"{ALIAS} (not moved: {report.waiting})"
    assert client(engine).head_manifest(ALIAS).digest == before.digest
    assert client(engine).resolve(Reference.parse(report.reference), "linux/amd64").digest == report.digest


# one of them does some requests, then the other one: single requests by turns seldom hurt
stretches = st.lists(st.integers(1, 14), min_size=1, max_size=8)


@given(stretches=stretches)
@example(stretches=[7, 14, 14])
def test_of_two_writers_in_any_order_no_entry_is_lost(stretches: list[int]) -> None:
    order = [writer for at, count in enumerate(stretches) for writer in [at % 2] * count]
    engine, turns = FakeEngine(), Turns(order)
    archs = ("amd64", "arm64")
    family = [member(engine, arch, stored=False) for arch in archs]

    def write(writer: int) -> None:
        try:
            registry = turns.of(engine.registry, writer)
            with suppress(NotFound):
                registry.get_manifest(ALIAS)  # what a build before the push takes
            member(engine, archs[writer])
            join(registry, ALIAS, family)
        finally:
            turns.end(writer)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (0, 1)))
    children = client(engine).get_manifest(ALIAS).children
    assert [child.platform for child in children] == ["linux/amd64", "linux/arm64"]


@pytest.mark.parametrize(("keep_going", "pushed"), [(False, 0), (True, 1)])
def test_keep_going_pushes_the_others(keep_going: bool, pushed: int) -> None:
    engine = built(PRECOMPILED)
    reports, errors = push_all(
        [JIT, PRECOMPILED], publisher(engine), keep_going=keep_going, progress=lambda _: None
    )
    assert len(reports) == pushed
    assert list(errors) == [JIT.image.id]
    assert isinstance(errors[JIT.image.id], DriverforgeError)


def test_the_alias_stands_for_what_a_builder_pushed() -> None:
    engine = built()
    place = publisher(engine).member(JIT).reference
    digest = store_image(engine.registry, place.with_tag(""), {"io.driverforge.inputs": JIT.inputs})
    report, image = publisher(engine).from_builder(JIT, digest)
    assert report.sent
    assert (image.id, image.reference) == (digest, str(place))
    alias = place.with_tag(JIT.image.alias_tag)
    assert client(engine).resolve(alias, "linux/amd64").digest == digest


def test_a_builder_that_pushed_nothing_is_not_believed() -> None:
    with pytest.raises(Unavailable, match="the registry does not have it"):
        publisher(built()).from_builder(JIT, "sha256:" + "0" * 64)


def test_a_builder_that_pushed_something_else_moves_no_alias() -> None:
    engine = built()
    place = publisher(engine).member(JIT).reference
    digest = store_image(engine.registry, place.with_tag(""), {"io.driverforge.inputs": "0" * 64})
    with pytest.raises(InputError, match="made from other inputs"):
        publisher(engine).from_builder(JIT, digest)
    assert [key for _, key in engine.registry.manifests] == [digest], "no tag stands for it"
