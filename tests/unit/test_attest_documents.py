"""SBOM, provenance and envelopes, read by others: CycloneDX's schema, purl's and in-toto's own libraries."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.attest.attached import Kind, is_enveloped, kind_of
from driverforge_build.attest.ci import pipeline
from driverforge_build.attest.provenance import BuildSpan, Origin, provenance
from driverforge_build.attest.purl import package_purl
from driverforge_build.attest.sbom import sbom
from driverforge_build.attest.statement import about, enveloped, opened, statement, to_be_signed
from driverforge_build.matrix import load_matrix
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.files import ContextFile
from driverforge_build.render.library import THIRD_PARTY
from driverforge_build.render.requirements import BaseImage
from driverforge_build.render.spec import image_specs
from driverforge_build.render.templates import AnyImage
from driverforge_build.render.toolkit import ToolkitSpec
from driverforge_oci.client import Descriptor
from driverforge_oci.reference import Reference
from support.samples.synthetic import all_cells, synthetic_lock, synthetic_package

MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
PLACE = Reference.parse("registry.site:5000/nvidia/driver@sha256:" + "1" * 64)
ORIGIN = Origin(
    builder="https://ci.site/runner",
    invocation="https://ci.site/jobs/1",
    source="https://git.site/images",
    revision="c0ffee",
    files=(("site.yaml", "2" * 64),),
)
BUILT = BuildSpan(
    started=datetime(2026, 11, 22, 3, tzinfo=timezone.utc),
    finished=datetime(2026, 11, 22, 3, 20, tzinfo=timezone.utc),
)
# of each family; packages, an archive, a distribution's own modules; with a kernel and without
KEYS = (
    "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64",
    "debian12-amd64-535.261.03-jit",
    "debian12-amd64-580.178.04-6.1.0-50-cloud-amd64",
    "ubuntu24.04-amd64-580.173.02-6.8.0-106-generic",
    "rhel9-amd64-535.309.01-5.14.0-687.5.1.el9_8.x86_64",
    "rocky9-amd64-535.309.01-jit",
    "ol9-amd64-535.309.01-jit",
    "sles15.7-amd64-580.178.04-jit",
    "amzn2023-amd64-580.178.04-jit",
    "toolkit-1.20.2-amd64",
)
TOOLKIT = ToolkitSpec(
    id=KEYS[-1],
    os="debian12",
    arch="amd64",
    family="debian",
    base=BaseImage(name="registry.site/debian:12", digest=""),
    python="/usr/bin/python3",
    version="1.20.2",
    pins={"userspace": (synthetic_package("python3", "3.11.2-1", "amd64", "bookworm"),)},
    packages_only=(),
    artifacts={"deb/usr/bin/nvidia-ctk": ContextFile(content=b"nvidia-ctk")},
    epoch=0,
)


def context(key: str, given: Given | None = None) -> BuildContext:
    image: AnyImage = TOOLKIT
    if key != TOOLKIT.id:
        (image,) = image_specs([CELLS[key]], LOCK, given=given)
    return context_of(image, resources.templates())


def bom(key: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(sbom(context(key), PLACE))
    return document


def origin_of(key: str, origin: Origin = ORIGIN, built: BuildSpan | None = BUILT) -> dict[str, Any]:
    made = provenance(context(key), PLACE, origin, name="driver:1", sbom="sha256:" + "3" * 64, built=built)
    document: dict[str, Any] = json.loads(made)
    return document


@pytest.mark.parametrize("key", KEYS)
def test_the_sbom_is_valid_by_cyclonedxs_own_schema(key: str) -> None:
    validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="cyclonedx-python-lib has the schema"
    )
    from cyclonedx.schema import SchemaVersion

    validator = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(sbom(context(key), PLACE).decode()) is None
    broken = bom(key) | {"serialNumber": "1"}
    assert validator.validate_str(json.dumps(broken)) is not None


@pytest.mark.parametrize("key", KEYS)
def test_every_purl_is_as_packageurls_own_library_writes_it(key: str) -> None:
    library = pytest.importorskip("packageurl", reason="packageurl-python reads purls")
    made = bom(key)
    parts = [made["metadata"]["component"], *made["components"]]
    for named in [part["purl"] for part in parts if "purl" in part]:
        assert library.PackageURL.from_string(named).to_string() == named


@pytest.mark.parametrize(
    ("os", "manager", "version", "expected"),
    [
        ("debian12", "deb", "1:2.0+dfsg-1~deb12u1", "pkg:deb/debian/x@1:2.0%2Bdfsg-1~deb12u1"),
        ("ubuntu24.04", "deb", "2.0-1", "pkg:deb/ubuntu/x@2.0-1"),
        ("rhel9", "rpm", "3:550.163.01-1.el9", "pkg:rpm/redhat/x@550.163.01-1.el9"),
        ("rocky9", "rpm", "0:1-1.el9", "pkg:rpm/rocky/x@1-1.el9"),
        ("sles15.7", "rpm", "1-150700.1", "pkg:rpm/suse/x@1-150700.1"),
    ],
)
def test_a_purl_has_the_epoch_where_its_type_wants_it(
    os: str, manager: str, version: str, expected: str
) -> None:
    named = package_purl(synthetic_package("x", version, "amd64", "main"), os, manager)
    before, _, qualifiers = named.partition("?")
    assert before == expected
    assert ("epoch=3" in qualifiers) == version.startswith("3:")


def packages(key: str) -> set[str]:
    return {part["name"] for part in bom(key)["components"] if part.get("purl", "").startswith("pkg:deb")}


def test_the_sbom_has_what_is_in_the_image_and_not_what_built_it() -> None:
    jit, precompiled = packages("debian12-amd64-535.261.03-jit"), packages(KEYS[0])
    assert {"kmod", "libcuda1", "firmware-nvidia-gsp"} <= precompiled
    assert {"gcc-12", "make", "nvidia-open-kernel-dkms"} <= jit - precompiled
    assert not any(name.startswith("linux-headers") for name in jit | precompiled)


@pytest.mark.parametrize("key", KEYS)
def test_the_sbom_has_the_python_packages_of_the_images_library(key: str) -> None:
    library = "root/opt/driverforge/lib/"
    held = {
        path.removeprefix(library).partition("/")[0].removesuffix(".py")
        for path in context(key).entries
        if path.startswith(library)
    }
    others = {distribution for name, distribution in THIRD_PARTY.items() if name in held}
    python = {part["name"] for part in bom(key)["components"] if "pkg:pypi/" in part.get("purl", "")}
    assert python == {"driverforge", *others}
    assert bool(others) == (key == TOOLKIT.id)


def test_each_package_has_its_files_sha256_and_the_base_its_digest() -> None:
    base = "registry.site/debian:12@sha256:" + "b" * 64
    made = context(KEYS[0], Given(bases={"debian12": base}))
    components = json.loads(sbom(made, PLACE))["components"]
    assert components[0]["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    hashes = {part["name"]: part["hashes"][0]["content"] for part in components if "hashes" in part}
    for package in made.image.pins["userspace"]:
        assert hashes[package.name] == package.sha256


def test_the_archive_and_the_modules_are_drivers() -> None:
    drivers = [part for part in bom(KEYS[2])["components"] if part["type"] == "device-driver"]
    assert {part["name"] for part in drivers} >= {"nvidia-driver", "nvidia-kernel-modules-open"}
    (kernel,) = {part["properties"][0]["value"] for part in drivers if "properties" in part}
    assert kernel == "6.1.0-50-cloud-amd64"


def test_licences_of_what_is_ours_and_nvidias_are_named() -> None:
    def licences(key: str) -> dict[str, object]:
        parts = bom(key)["components"]
        return {part["name"]: part["licenses"] for part in parts if "licenses" in part}

    driver, toolkit = licences(KEYS[2]), licences(TOOLKIT.id)
    assert driver["nvidia-kernel-modules-open"] == [{"expression": "MIT OR GPL-2.0-only"}]
    assert driver["nvidia-driver"] == driver["nvidia-kernel-modules-proprietary"]
    assert driver["driverforge"] == toolkit["nvidia-container-toolkit"] == [{"expression": "Apache-2.0"}]
    # what these packages declare themselves
    assert (toolkit["tomlrt"], toolkit["PyYAML"]) == ([{"expression": "MIT"}], [{"license": {"name": "MIT"}}])


def test_the_same_image_has_the_same_sbom_and_another_one_another() -> None:
    made = context(KEYS[0])
    assert sbom(made, PLACE) == sbom(made, PLACE)
    other = json.loads(sbom(made, PLACE.with_digest("sha256:" + "4" * 64)))
    assert other["serialNumber"] != bom(KEYS[0])["serialNumber"]


@pytest.mark.parametrize("key", KEYS)
def test_the_provenance_is_one_by_in_totos_own_library(key: str) -> None:
    pytest.importorskip("in_toto_attestation", reason="in-toto-attestation reads statements")
    import in_toto_attestation.predicates.provenance.v1.provenance_pb2 as slsa
    import in_toto_attestation.v1.statement_pb2 as in_toto
    from google.protobuf.json_format import ParseDict

    made = origin_of(key)
    # they refuse what they do not know
    read = ParseDict(made, in_toto.Statement())
    assert read.subject[0].digest["sha256"] == "1" * 64
    said = ParseDict(made["predicate"], slsa.Provenance())
    assert said.run_details.builder.id == "https://ci.site/runner"
    assert said.run_details.metadata.finished_on.ToDatetime() == BUILT.finished.replace(tzinfo=None)


@pytest.mark.parametrize("key", KEYS)
def test_every_download_of_the_build_is_an_input_by_its_sha256(key: str) -> None:
    definition = origin_of(key)["predicate"]["buildDefinition"]
    stated = {one.get("digest", {}).get("sha256") for one in definition["resolvedDependencies"]}
    image = context(key).image
    pinned = {package.sha256 for packages in image.pins.values() for package in packages}
    assert pinned | {"2" * 64} <= stated
    assert definition["externalParameters"] == {
        "cell": key,
        "source": {"uri": "git+https://git.site/images", "digest": {"gitCommit": "c0ffee"}},
    }


def test_who_has_not_built_an_image_states_no_times() -> None:
    metadata = origin_of(KEYS[0], replace(ORIGIN, invocation=""), None)["predicate"]["runDetails"]["metadata"]
    assert metadata == {}


GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "site/images",
    "GITHUB_WORKFLOW_REF": "site/images/.github/workflows/driver.yml@refs/heads/main",
    "GITHUB_RUN_ID": "7",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_SHA": "c0ffee",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_PROJECT_URL": "https://gitlab.site/images",
    "CI_RUNNER_ID": "12",
    "CI_JOB_URL": "https://gitlab.site/images/-/jobs/3",
    "CI_COMMIT_SHA": "c0ffee",
}


def test_a_pipeline_says_who_builds() -> None:
    assert pipeline(GITHUB) == Origin(
        builder="https://github.com/site/images/.github/workflows/driver.yml@refs/heads/main",
        invocation="https://github.com/site/images/actions/runs/7/attempts/2",
        source="https://github.com/site/images",
        revision="c0ffee",
    )
    assert pipeline(GITLAB) == Origin(
        builder="https://gitlab.site/images/-/runners/12",
        invocation="https://gitlab.site/images/-/jobs/3",
        source="https://gitlab.site/images",
        revision="c0ffee",
    )


@pytest.mark.parametrize("environ", [{}, {"GITHUB_ACTIONS": "true"}, {"GITLAB_CI": "true"}])
def test_what_nobody_says_is_not_made_up(environ: dict[str, str]) -> None:
    assert pipeline(environ) == Origin()


def test_what_is_signed_is_dsses_encoding() -> None:
    # protocol.md: PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body
    assert to_be_signed(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


SAID = json.dumps(statement("driver", PLACE.digest, "https://slsa.dev/provenance/v1", {})).encode()


def test_an_envelope_gives_back_its_statement_and_signature() -> None:
    found = opened(enveloped(SAID, b"signature"))
    assert found is not None
    assert (found.payload, found.signatures) == (SAID, (b"signature",))
    assert about(found.document, PLACE.digest)
    assert not about(found.document, "sha256:" + "0" * 64)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"payloadType": "application/vnd.in-toto+json"}',
        b'{"payloadType": "application/vnd.in-toto+json", "payload": 1, "signatures": []}',
        b'{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": [{"sig": 1}]}',
        json.dumps({"payloadType": "text/plain", "payload": base64.b64encode(SAID).decode()}).encode(),
        b"[" * 100_000,
    ],
)
def test_what_is_no_statement_is_none(data: bytes) -> None:
    assert opened(data) is None


def referrer(artifact_type: str, **annotations: str) -> Descriptor:
    return Descriptor(
        media_type="m",
        digest="d",
        size=1,
        artifact_type=artifact_type,
        annotations=tuple((name.replace("_", "."), value) for name, value in annotations.items()),
    )


BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SLSA = "https://slsa.dev/provenance/v1"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (referrer("application/vnd.cyclonedx+json"), Kind.SBOM),
        (referrer("application/spdx+json"), Kind.SBOM),
        (referrer("application/vnd.cncf.notary.signature"), Kind.SIGNATURE),
        (
            referrer(BUNDLE, dev_sigstore_bundle_predicateType=SLSA),
            Kind.PROVENANCE,
        ),
        (referrer(BUNDLE), Kind.OTHER),
        (referrer("application/vnd.site.thing"), Kind.OTHER),
    ],
)
def test_what_others_attached_is_known_by_its_type(found: Descriptor, kind: Kind) -> None:
    assert kind_of(found) is kind
    assert not is_enveloped(found)


def test_an_envelope_may_be_in_the_other_alphabet_of_base64() -> None:
    """github.com/secure-systems-lab/dsse, envelope.md: either standard or URL-safe encoding is allowed."""
    said, signature = SAID.replace(b'"driver"', b'"driver?~~>"'), bytes(range(248, 256))
    envelope = json.loads(enveloped(said, signature))
    sig = base64.urlsafe_b64encode(signature).decode()
    envelope |= {"payload": base64.urlsafe_b64encode(said).decode(), "signatures": [{"sig": sig}]}
    assert "-" in sig
    found = opened(json.dumps(envelope).encode())
    assert found is not None
    assert (found.payload, found.signatures) == (said, (signature,))


def test_an_envelope_counts_by_its_type_and_by_what_is_in_it() -> None:
    payload = json.dumps({"_type": "https://in-toto.io/Statement/v1"}).encode()
    envelope = json.loads(enveloped(payload, b"signature"))
    assert opened(json.dumps(envelope).encode()) is not None
    assert opened(json.dumps({**envelope, "payloadType": "text/plain"}).encode()) is None
    assert opened(enveloped(b'{"_type": "a letter"}', b"signature")) is None
