"""Base images: what their tags stand for, by a registry that says so, or does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.compare import changes
from driverforge_build.lock.file import dump_lock, parse_lock
from driverforge_build.lock.pins import Lock, LockedBase
from driverforge_build.matrix import load_matrix
from driverforge_build.publish.bases import FoundBase, Freshness, WantedBase, find_bases
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import InputError
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer
from support.samples.locks import target
from support.samples.synthetic import all_cells, synthetic_lock

PLATFORMS = {
    "amd64": {"os": "linux", "architecture": "amd64"},
    "arm64": {"os": "linux", "architecture": "arm64", "variant": "v8"},
}
NAME = f"{HOST}/debian:12"
OTHER = LockedBase(reference=NAME, digest="sha256:" + "1" * 64, index="sha256:" + "2" * 64)


def image(registry: MemoryRegistry, arch: str, tag: str = "") -> str:
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": {}, "layers": [], "x": arch}
    return registry.add_manifest("debian", tag, OCI_MANIFEST, document)


def publish(registry: MemoryRegistry, *archs: str) -> tuple[str, dict[str, str]]:
    """An index of these architectures behind the tag: its digest, and those of its images."""
    digests = {arch: image(registry, arch) for arch in archs}
    platforms = {"amd64": {"architecture": "amd64"}, "arm64": {"architecture": "arm64", "variant": "v8"}}
    entries = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", **platforms[arch]},
        }
        for arch, digest in digests.items()
    ]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    return registry.add_manifest("debian", "12", OCI_INDEX, index), digests


def find(
    registry: MemoryRegistry | None, *archs: str, reference: str = NAME, locked: LockedBase | None = None
) -> dict[str, FoundBase]:
    wanted = [WantedBase(key=arch, arch=arch, reference=reference, locked=locked) for arch in archs]
    return find_bases(RegistryClient(Session(registry)) if registry else None, wanted)


def test_each_architecture_has_its_own_digest_and_the_registry_is_asked_once() -> None:
    registry = MemoryRegistry()
    index, digests = publish(registry, "amd64", "arm64")
    found = find(registry, "amd64", "arm64")
    assert {arch: one.base.digest for arch, one in found.items() if one.base} == digests
    assert {one.base.index for one in found.values() if one.base} == {index}
    assert {one.freshness for one in found.values()} == {Freshness.FRESH}
    assert registry.requests() == ["GET /v2/debian/manifests/12"]


def test_a_base_without_an_index_is_its_own_digest() -> None:
    registry = MemoryRegistry()
    digest = image(registry, "amd64", "12")
    assert find(registry, "amd64")["amd64"].base == LockedBase(reference=NAME, digest=digest, index=digest)


def test_a_name_without_a_tag_is_its_latest() -> None:
    registry = MemoryRegistry()
    digest = image(registry, "amd64", "latest")
    base = find(registry, "amd64", reference=f"{HOST}/debian")["amd64"].base
    assert base == LockedBase(reference=f"{HOST}/debian", digest=digest, index=digest)


def test_a_base_that_names_its_digest_is_not_looked_up() -> None:
    registry = MemoryRegistry()
    assert find(registry, "amd64", reference=f"{HOST}/debian@sha256:{'3' * 64}") == {}
    assert registry.requests() == []


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_a_registry_that_does_not_say_leaves_the_digest_and_is_told(status: int) -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(status))
    (kept,) = find(registry, "amd64", locked=OTHER).values()
    assert (kept.base, kept.freshness) == (OTHER, Freshness.STALE)
    assert kept.problem
    (none,) = find(registry, "amd64").values()
    assert (none.base, none.freshness) == (None, Freshness.UNKNOWN)


def test_the_digest_of_another_base_is_not_kept() -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(500))
    (found,) = find(registry, "amd64", locked=replace(OTHER, reference="debian:11")).values()
    assert found.base is None


def test_a_base_that_lost_an_architecture_says_so() -> None:
    registry = MemoryRegistry()
    publish(registry, "amd64")
    assert find(registry, "arm64")["arm64"].problem == "it has no image for linux/arm64"


def test_offline_nothing_is_asked() -> None:
    (found,) = find(None, "amd64", locked=OTHER).values()
    assert (found.base, found.problem) == (OTHER, "no registry was asked")


def test_the_lock_reads_what_it_writes_and_an_earlier_lock_has_none() -> None:
    whole = target(base=OTHER)
    text = dump_lock(Lock(targets={whole.key: whole}))
    assert parse_lock(text).targets[whole.key].base == OTHER
    assert '"base"' not in dump_lock(Lock(targets={whole.key: target()}))


@pytest.mark.parametrize("damage", ["sha256:1", "1" * 64, "sha512:" + "1" * 128])
def test_a_damaged_digest_is_an_input_error(damage: str) -> None:
    whole = target(base=replace(OTHER, digest=damage))
    with pytest.raises(InputError, match="is damaged"):
        parse_lock(dump_lock(Lock(targets={whole.key: whole})))


def test_a_moved_base_is_a_change_of_the_lock() -> None:
    moved = target(base=replace(OTHER, digest="sha256:" + "4" * 64))
    assert changes(target(base=OTHER), moved) == [f"base: {NAME}@{OTHER.digest} -> {NAME}@sha256:{'4' * 64}"]
    assert changes(target(), target(base=OTHER)) == [f"base: not pinned -> {NAME}@{OTHER.digest}"]
    assert changes(moved, replace(moved, base=replace(OTHER, digest=moved.base.digest))) == []  # type: ignore[union-attr]


MATRIX = load_matrix()
SYNTHETIC = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
JIT = CELLS["debian12-amd64-535.261.03-jit"]


def context(base: LockedBase | None, arch: str = "amd64", **bases: str) -> BuildContext:
    lock = SYNTHETIC.with_targets([replace(SYNTHETIC.targets[f"debian12-{arch}"], base=base)])
    (made,) = image_specs([JIT], lock, given=Given(bases=bases))
    return context_of(made, resources.templates())


def test_an_image_stands_on_the_locked_digest_and_says_so() -> None:
    base = replace(OTHER, reference=JIT.os.base)
    made = context(base)
    dockerfile = made.entries["Dockerfile"].content.decode()
    assert f"\nARG BASE_IMAGE={JIT.os.base}@{base.digest}\n" in dockerfile
    labels = dict(made.image.labels)
    assert labels["org.opencontainers.image.base.name"] == JIT.os.base
    assert labels["org.opencontainers.image.base.digest"] == base.digest
    assert "org.opencontainers.image.base.digest" not in dict(context(None).image.labels)


def test_a_moved_base_is_another_image_and_one_that_moved_elsewhere_is_not() -> None:
    base = replace(OTHER, reference=JIT.os.base)
    plain = context(base).inputs
    assert context(replace(base, digest="sha256:" + "4" * 64)).inputs != plain
    assert context(replace(base, index="sha256:" + "4" * 64)).inputs == plain, "another architecture's"
    unpinned = context(None).inputs
    assert context(replace(base, reference="debian:11")).inputs == unpinned
    assert context(base, arch="arm64").inputs == unpinned


def test_a_base_that_the_user_names_has_the_digest_of_that_name_alone() -> None:
    theirs = f"site/debian:12@sha256:{'5' * 64}"
    assert str(context(OTHER, debian12=theirs).image.base) == theirs
    assert str(context(OTHER, debian12=NAME).image.base) == f"{NAME}@{OTHER.digest}"
    assert str(context(OTHER, debian12="site/debian:12").image.base) == "site/debian:12"
