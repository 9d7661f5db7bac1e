"""Payload `image`: a driver image as base, pinned by digest, from the row of the matrix to the Dockerfile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.attest.provenance import Origin, provenance
from driverforge_build.attest.sbom import sbom
from driverforge_build.lock.compare import changes
from driverforge_build.lock.file import dump_lock, parse_lock
from driverforge_build.lock.pins import Lock, LockedBase
from driverforge_build.matrix import Cell, Matrix
from driverforge_build.matrix.asked import asked_of_repositories
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.plan.evidence import paragraphs
from driverforge_build.plan.rows import all_cells
from driverforge_build.publish.bases import FoundBase, WantedBase, find_bases
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts
from driverforge_oci.client import OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry
from support.samples.synthetic import all_cells as generated
from support.samples.synthetic import synthetic_lock

SITE = """\
extends: builtin
keep: {systems: [debian12, rhel9, ubuntu24.04], branches: ["580"]}
systems:
  - id: debian12
    drivers: [{id: "580", payload: image, image: "site/driver:{version}-{os}"}]
  - id: rhel9
    drivers: [{id: "580", payload: image, image: "site/driver:{version}-{os}"}]
"""
VERSION = "580.178.04"
NAME = f"site/driver:{VERSION}-debian12"
PIN = LockedBase(reference=NAME, digest="sha256:" + "1" * 64, index="sha256:" + "2" * 64)
MOVED = replace(PIN, digest="sha256:" + "4" * 64)
KEY = f"debian12-amd64-{VERSION}-jit"


def matrix(text: str = SITE) -> Matrix:
    return parse_matrix(text.encode(), name="site.yaml")


def lock(pin: LockedBase | None = PIN) -> Lock:
    whole = synthetic_lock(matrix())
    images = {VERSION: pin} if pin else {}
    return whole.with_targets([replace(whole.targets["debian12-amd64"], images=images)])


def cell_of(key: str = KEY, text: str = SITE) -> Cell:
    (found,) = (cell for cell in all_cells(matrix(text), lock()) if cell.key == key)
    return found


PRECOMPILED = next(
    cell.key
    for cell in all_cells(matrix(), lock())
    if cell.kernel and cell.key.startswith(f"debian12-amd64-{VERSION}-")
)


def context(key: str = KEY, pin: LockedBase | None = PIN) -> BuildContext:
    (image,) = image_specs([cell_of(key)], lock(pin), given=Given(bases={"debian12": "debian:mine"}))
    return context_of(image, resources.templates())


def judged(pin: LockedBase | None = PIN, text: str = SITE) -> Verdict:
    return Judge(matrix(text), lock(pin), today=date(2026, 11, 21)).verdict(cell_of(text=text))


def test_the_image_names_version_and_os_for_every_row_that_is_like_it() -> None:
    rows = {row.id: row.drivers[0].image_for(row.id) for row in matrix().rows}
    assert rows["debian12"] == NAME
    assert rows["rhel9"] == f"site/driver:{VERSION}-rhel9"
    assert rows["ubuntu24.04"] == ""


def test_what_is_asked_of_repositories_names_the_image_and_no_download() -> None:
    row = matrix().row("debian12")
    assert row is not None
    text = asked_of_repositories(matrix(), row, "amd64")
    assert f"  driver image    {NAME}\n" in text
    driver = text.partition("  driver image ")[2].partition("driver ")[0]
    assert "download" not in driver


def test_an_image_that_nobody_pinned_is_unknown_and_says_what_to_run() -> None:
    told = judged(None)
    assert told.state is State.UNKNOWN
    assert (
        told.reason
        == f"the driver image {NAME} is not pinned: when `lock` ran, no registry had it with this driver"
    )
    assert told.run.startswith(f"driverforge lock --select 'debian12-amd64-{VERSION}-*'")
    with pytest.raises(InputError) as caught:
        context(pin=None)
    assert f"{KEY}: the driver image {NAME} is not pinned" in caught.value.details


def test_a_pinned_image_is_built_and_the_systems_base_is_nobodys_business() -> None:
    told = judged()
    assert (told.state, told.warnings) == (State.BUILD, ())
    assert judged(replace(PIN, reference="site/driver:other")).state is State.UNKNOWN


def test_the_base_of_the_system_is_still_told_of_other_drivers() -> None:
    text = SITE.replace('["580"]', '["580", "595"]')
    both = matrix(text)
    whole = synthetic_lock(both)
    pins = whole.with_targets([replace(whole.targets["debian12-amd64"], images={VERSION: PIN})])
    judge = Judge(both, pins, today=date(2026, 11, 21))
    found = [cell for cell in generated(both) if cell.key.startswith("debian12-amd64-") and not cell.kernel]
    warned = {cell.driver.payload: judge.verdict(cell).warnings for cell in found}
    assert warned["image"] == ()
    assert ["nobody notices" in warning for warning in warned["runfile"]] == [True]


def test_a_row_that_was_packages_before_takes_no_firmware_of_theirs() -> None:
    text = SITE.replace('"580"', '"535"').replace("debian12, rhel9", "debian12").partition("  - id: rhel9")[0]
    both = matrix(text.replace('image, image: "', 'image, userspace: [], companions: [], image: "'))
    whole = synthetic_lock(both)
    (cell,) = (cell for cell in generated(both) if cell.key == "debian12-amd64-535.261.03-jit")
    pin = replace(PIN, reference="site/driver:535.261.03-debian12")
    target = replace(whole.targets["debian12-amd64"], images={"535.261.03": pin})
    (image,) = image_specs([cell], whole.with_targets([target]))
    made = context_of(image, resources.templates())
    dockerfile = made.entries["Dockerfile"].content.decode()
    assert "fetch-pinned extract" not in dockerfile
    assert "take-driver sources 535.261.03" in dockerfile


def test_an_image_that_names_its_digest_needs_no_lock() -> None:
    text = SITE.replace('"site/driver:{version}-{os}"', f"site/driver@sha256:{'7' * 64}")
    assert judged(None, text).state is State.BUILD


def test_the_dockerfile_stands_on_the_image_and_takes_the_driver_out_of_it() -> None:
    made = context()
    text = made.entries["Dockerfile"].content.decode()
    assert f"\nARG BASE_IMAGE={NAME}@{PIN.digest}\n" in text
    assert "ARCHIVE_URL" not in text
    assert f"take-driver userspace {VERSION} /usr/bin/python3 \\\n" in text
    folders = f"/usr/src/nvidia-{VERSION}/kernel-open /usr/src/nvidia-{VERSION}/kernel"
    assert f"take-driver sources {VERSION} /usr/bin/python3 {folders} \\\n" in text
    assert {"scripts/take-driver", "scripts/unpack-archive", "scripts/place-firmware"} <= made.entries.keys()
    labels = dict(made.image.labels)
    assert labels["org.opencontainers.image.base.name"] == NAME
    assert labels["org.opencontainers.image.base.digest"] == PIN.digest


def test_a_moved_image_is_another_image_and_its_modules_are_cached_apart() -> None:
    def digests(made: BuildContext) -> Mapping[str, str]:
        return ImageFacts.from_json(
            made.entries["jit/opt/driverforge/image.json"].content.decode()
        ).source_digests

    for key in (KEY, PRECOMPILED):
        assert context(key, MOVED).inputs != context(key).inputs
    assert context(pin=replace(PIN, index=MOVED.digest)).inputs == context().inputs, "another architecture's"
    assert digests(context(pin=MOVED)) != digests(context())
    assert set(digests(context())) == {"open", "proprietary"}


def test_sbom_and_provenance_name_the_image_that_the_driver_is_from() -> None:
    place = Reference.parse("registry.site/driver@sha256:" + "6" * 64)
    parts = {part["name"]: part for part in json.loads(sbom(context(), place))["components"]}
    assert parts[NAME]["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
    assert parts["nvidia-driver"]["purl"] == f"pkg:generic/nvidia-driver@{VERSION}"
    assert parts["nvidia-driver"]["properties"] == [{"name": "driverforge:from", "value": "base"}]
    made = provenance(context(), place, Origin(), name="driver:1", sbom="sha256:" + "3" * 64, built=None)
    base = json.loads(made)["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert base["digest"] == {"sha256": "1" * 64}


def test_explain_names_the_image_as_the_base() -> None:
    told = {one.title: one.lines for one in paragraphs(cell_of(), judged(), matrix(), lock(), {})}
    assert told["base image"] == (
        f"{NAME}@{PIN.digest}, which the driver comes from",
        f"  as the lock has it; the index over all architectures is {PIN.index}",
    )


def test_the_lock_reads_what_it_writes_and_tells_what_moved() -> None:
    text = dump_lock(lock())
    target = parse_lock(text).targets["debian12-amd64"]
    assert target.images == {VERSION: PIN}
    assert '"images"' not in dump_lock(lock(None))
    moved = replace(target, images={VERSION: MOVED})
    assert changes(target, moved) == [f"{VERSION}: driver image {NAME}@{PIN.digest} -> {NAME}@{MOVED.digest}"]
    damaged = json.loads(text)
    damaged["targets"]["debian12-amd64"]["images"][VERSION]["digest"] = "sha256:1"
    with pytest.raises(InputError, match="is damaged"):
        parse_lock(json.dumps(damaged))


def publish(registry: MemoryRegistry, *variables: str) -> str:
    config = registry.add_blob("driver", json.dumps({"config": {"Env": list(variables)}}).encode())
    described = {"mediaType": "application/json", "digest": config, "size": 1}
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
    return registry.add_manifest("driver", "580", OCI_MANIFEST, document)


def find(registry: MemoryRegistry) -> FoundBase:
    wanted = WantedBase(key="one", arch="amd64", reference=f"{HOST}/driver:580", locked=None, driver=VERSION)
    return find_bases(RegistryClient(Session(registry)), [wanted])["one"]


@pytest.mark.parametrize("variables", [(f"DRIVER_VERSION={VERSION}", "PATH=/bin"), ("PATH=/bin",), ()])
def test_an_image_of_this_driver_or_one_that_does_not_say_is_pinned(variables: tuple[str, ...]) -> None:
    registry = MemoryRegistry()
    digest = publish(registry, *variables)
    found = find(registry)
    assert found.base is not None
    assert (found.base.digest, found.problem) == (digest, "")


def test_an_image_whose_variables_cannot_be_read_is_told_and_not_pinned() -> None:
    registry = MemoryRegistry()
    described = {"mediaType": "application/json", "digest": f"sha256:{'8' * 64}", "size": 1}
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
    registry.add_manifest("driver", "580", OCI_MANIFEST, document)
    found = find(registry)
    assert found.base is None
    assert found.problem


def test_an_image_of_another_driver_is_told_and_not_pinned() -> None:
    registry = MemoryRegistry()
    publish(registry, "DRIVER_VERSION=580.65.06")
    found = find(registry)
    assert (found.base, found.problem) == (None, "it holds driver 580.65.06, as its DRIVER_VERSION says")
