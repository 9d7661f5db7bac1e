"""`--attest` against Debian's docker-registry, which has no referrers API: what is attached, once, and read.

The signer is openssl with a key of the test's own: it stands in for cosign and for a company's signer, which
cannot be had here. Its signatures are real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.attest.attach import Attaching
from driverforge_build.cli import run
from driverforge_build.render.bake import immutable_tag_of
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import referrers, referrers_tag
from support.jsonschemas import check_document
from support.process import missing
from support.process import run as run_program
from support.samples.registrysite import AMD64, ARM64, KERNEL, RegistrySite, registry_site

PASSED, FAILED = (
    json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "driver", "digest": {"sha256": "DIGEST"}}],
            "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
            "predicate": {"result": result, "passedTests": ["nvidia.ko insert"]},
        }
    )
    for result in ("PASSED", "FAILED")
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RegistrySite]:
    if gone := missing("docker-registry", "setpriv", "openssl"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with registry_site(tmp_path) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Keys:
    """An openssl key pair, and the commands of a user who has it."""

    folder: Path
    name: str

    @property
    def signer(self) -> str:
        return f"openssl dgst -sha256 -sign {self.folder}/{self.name}.pem"

    @property
    def verifier(self) -> str:
        return f"openssl dgst -sha256 -verify {self.folder}/{self.name}.pub -signature"


def keys(folder: Path, name: str = "ours") -> Keys:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    run_program("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private))
    run_program("openssl", "ec", "-in", str(private), "-pubout", "-out", str(public))
    return Keys(folder, name)


def words_of(site: RegistrySite, *words: str, key: str = AMD64) -> list[str]:
    """A push of an image that the registry has: no engine is needed to attach."""
    return ["push", *site.given[:-1], key, "--engine", "nop", "--attest", *words]


def push(site: RegistrySite, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a push with --json said; its exit status is in `status`."""
    status = run(words_of(site, "--json", *words))
    document = json.loads(capsys.readouterr().out)
    check_document("push", document)
    return {**document, "status": status}


def attached(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (image,) = document["images"]
    return {one["kind"]: one for one in image["attached"]}


def read(
    place: str, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, str], list[str]]:
    """Exit status of `attestations`, trust by kind, and what the one image lacks."""
    capsys.readouterr()
    status = run(["attestations", place, "--json", *words])
    document = json.loads(capsys.readouterr().out)
    check_document("attestations", document)
    (image,) = document["images"]
    return status, {one["kind"]: one["trust"] for one in image["attached"]}, image["lacks"]


def at(site: RegistrySite, digest: str) -> Reference:
    return Reference.parse(f"{site.registry}/driver@{digest}")


def test_sbom_and_provenance_are_attached_once(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    first = attached(push(site, capsys))
    assert {kind: (one["signed"], one["sent"]) for kind, one in first.items()} == {
        "sbom": (False, True),
        "provenance": (False, True),
    }
    before = {one.digest for one in referrers(site.client, place)}
    assert before == {one["digest"] for one in first.values()}
    again = attached(push(site, capsys))
    assert {kind: one["sent"] for kind, one in again.items()} == {"sbom": False, "provenance": False}
    assert {one.digest for one in referrers(site.client, place)} == before


def test_a_build_looks_after_images_that_it_does_not_build(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    words = ["build", *site.given[:-1], AMD64, "--push", "--attest", "--vcs-ref", "c0ffee", "--json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    check_document("build", document)
    (cell,) = document["cells"]
    assert cell["result"] == "exists"
    assert [one["kind"] for one in cell["pushed"]["attached"]] == ["sbom", "provenance"]
    assert len(referrers(site.client, place)) == 2


def test_each_architecture_has_its_own_and_the_alias_shows_both(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = {site.store(AMD64), site.store(ARM64)}
    for key in (AMD64, ARM64):
        assert run(words_of(site, key=key)) == 0
    capsys.readouterr()
    alias = f"{site.registry}/driver:535-{KERNEL}-debian12"
    assert run(["attestations", alias, "--json"]) == 0
    images = json.loads(capsys.readouterr().out)["images"]
    assert [image["platform"] for image in images] == ["linux/amd64", "linux/arm64"]
    assert {image["digest"] for image in images} == digests
    assert all({one["kind"] for one in image["attached"]} == {"sbom", "provenance"} for image in images)
    assert run(["attestations", alias, "--platform", "linux/arm64", "--require", "sbom"]) == 0
    said = capsys.readouterr().out
    assert "linux/arm64" in said
    assert "linux/amd64" not in said
    alone = str(at(site, images[0]["digest"]))
    assert run(["attestations", alone, "--platform", "linux/amd64", "--require", "sbom"]) == 0
    capsys.readouterr()
    assert run(["attestations", alone, "--platform", "linux/arm64", "--require", "sbom"]) == 78
    assert "is an image for linux/amd64, not for linux/arm64" in capsys.readouterr().err


def test_what_buildkit_attests_beside_an_image_is_no_image(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    size = len(site.client.get_manifest(place).data)
    entries = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": place.digest,
            "size": size,
            "platform": {"os": system, "architecture": arch},
        }
        for system, arch in (("linux", "amd64"), ("unknown", "unknown"))
    ]
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    site.client.put_manifest(place.with_tag("built"), index, OCI_INDEX)
    assert run(["attestations", str(place.with_tag("built")), "--json"]) == 0
    images = json.loads(capsys.readouterr().out)["images"]
    assert [image["platform"] for image in images] == ["linux/amd64"]


def test_a_signed_provenance_is_accepted_and_vouches_for_the_sbom(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place, ours, theirs = str(at(site, site.store(AMD64))), keys(tmp_path), keys(tmp_path, "theirs")
    assert attached(push(site, capsys, "--signer", ours.signer))["provenance"]["signed"]
    need = ("--require", "sbom", "--require", "provenance")
    assert read(place, capsys)[1] == {"sbom": "unsigned", "provenance": "unchecked"}
    status, trust, lacks = read(place, capsys, *need, "--verifier", ours.verifier)
    assert (status, trust, lacks) == (0, {"sbom": "accepted", "provenance": "accepted"}, [])
    status, trust, lacks = read(place, capsys, *need, "--verifier", theirs.verifier)
    assert (status, trust) == (1, {"sbom": "refused", "provenance": "refused"})
    assert lacks == ["no sbom that the verifier accepts", "no provenance that the verifier accepts"]


def test_what_was_attached_without_a_signer_is_attached_signed_later(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place, ours = at(site, site.store(AMD64)), keys(tmp_path)
    push(site, capsys)
    trust = read(str(place), capsys, "--verifier", ours.verifier)[1]
    assert trust == {"sbom": "refused", "provenance": "refused"}
    assert attached(push(site, capsys, "--signer", ours.signer))["provenance"]["sent"]
    assert len(referrers(site.client, place)) == 3
    # and the other way round nothing is
    assert not any(one["sent"] for one in attached(push(site, capsys)).values())
    assert read(str(place), capsys, "--require", "provenance", "--verifier", ours.verifier)[0] == 0


def script(folder: Path, text: str) -> str:
    path = folder / "signer.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "brief", "status"),
    [
        ("echo 'the token is locked' >&2; exit 3", "signer.sh of --signer exited 3", 70),
        ("echo later >&2; exit 75", "signer.sh of --signer exited 75", 75),
        ("echo Enter the password:", "signer.sh of --signer printed no signature", 70),
        ("echo '-----BEGIN SIGNATURE-----'", "signer.sh of --signer printed no signature", 70),
        ("true", "signer.sh of --signer printed no signature", 70),
        ("echo AAAA", "signer.sh of --signer printed no signature", 70),
        ("head --bytes 100000 /dev/zero", "signer.sh of --signer printed no signature", 70),
    ],
)
def test_a_signer_that_fails_costs_no_image_and_its_words_are_told(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, brief: str, status: int
) -> None:
    place, ours = at(site, site.store(AMD64)), keys(tmp_path)
    document = push(site, capsys, "--signer", script(tmp_path, text))
    assert document["status"] == status
    failed = document["failed"][AMD64]
    assert brief in failed["brief"]
    assert "only the rest is done" in failed["resolution"]
    if ">&2" in text:
        assert text.split()[1].strip("'") in " ".join(failed["details"])
    # what stands is reported, and the same command with a signer that works does the rest
    assert set(attached(document)) == {"sbom"}
    rest = attached(push(site, capsys, "--signer", ours.signer))
    assert {kind: one["sent"] for kind, one in rest.items()} == {"sbom": False, "provenance": True}
    assert len(referrers(site.client, place)) == 2


@pytest.mark.parametrize("option", ["--signer", "--image-signer"])
def test_a_signer_that_does_not_exist_is_told_with_the_option_before_anything_is_done(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    place = at(site, site.store(AMD64))
    assert run(words_of(site, option, "no-such-signer --key k")) == 69
    said = capsys.readouterr().err
    assert f"no-such-signer of {option} cannot be started" in said
    assert f"correct {option}" in said
    assert not referrers(site.client, place)


def test_a_signer_is_told_what_it_signs_and_may_print_base64(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place, ours = at(site, site.store(AMD64)), keys(tmp_path)
    text = f'echo "$DRIVERFORGE_IMAGE $DRIVERFORGE_PREDICATE_TYPE" >{tmp_path}/told\n{ours.signer} | base64'
    push(site, capsys, "--signer", script(tmp_path, text))
    assert (tmp_path / "told").read_text() == f"{place} https://slsa.dev/provenance/v1\n"
    assert read(str(place), capsys, "--require", "sbom", "--verifier", ours.verifier)[0] == 0


# They stand in for cosign 2 and for notation, which cannot be had here: a signature of the same kind in the
# same place, over nothing.
STANDS_IN = """
import sys
from driverforge_build.fetch.web import registry_transport
from driverforge_oci.client import OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import EMPTY, Artifact, artifact_manifest, attach, referrers_tag
from driverforge_oci.session import Session
client = RegistryClient(Session(registry_transport({}, lambda *_: None)))
image = Reference.parse(sys.argv[2])
signature = Artifact(media_type="application/vnd.cncf.notary.signature", content=b"{}", slot="notation")
if sys.argv[1] == "notation":
    attach(client, image, signature, ("notation",))
if sys.argv[1] == "cosign":
    client.put_blob(image, EMPTY, digest=digest_of(EMPTY), size=len(EMPTY))
    data = artifact_manifest(client.get_manifest(image), signature)
    client.put_manifest(image.with_tag(referrers_tag(image.digest) + ".sig"), data, OCI_MANIFEST)
print("called", file=open(sys.argv[0] + ".calls", "a"))
"""


@pytest.mark.parametrize(("kind", "calls"), [("notation", 1), ("cosign", 1), ("elsewhere", 2)])
def test_an_image_is_signed_once_where_its_signature_can_be_seen(
    site: RegistrySite,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    calls: int,
) -> None:
    site.store(AMD64)
    program = tmp_path / "stands_in.py"
    program.write_text(STANDS_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = ("--image-signer", f"{sys.executable} {program} {kind}")
    first, second = (attached(push(site, capsys, *words))["signature"] for _ in range(2))
    assert (first["sent"], bool(first["digest"])) == (True, kind != "elsewhere")
    assert (second["sent"], second["digest"]) == (kind == "elsewhere", first["digest"])
    assert len(Path(f"{program}.calls").read_text().splitlines()) == calls


def test_an_image_signer_that_fails_comes_after_what_was_attached(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    site.store(AMD64)
    document = push(site, capsys, "--image-signer", script(tmp_path, 'echo "no key for $1" >&2; exit 1'))
    assert document["status"] == 70
    assert set(attached(document)) == {"sbom", "provenance"}
    assert f"no key for {site.registry}/driver@sha256:" in document["failed"][AMD64]["details"][-1]


@pytest.mark.parametrize(
    "words",
    [
        ["push", "--registry", "registry.site/nvidia", "--signer", "true"],
        ["build", "--image-signer", "true"],
        ["push", "--registry", "r/x", "--builder-id", "https://ci.site"],
        ["build", "--attest"],
        ["verify", "--attest"],
        ["push", "--registry", "registry.site/nvidia", "--attest", "--signer", "'"],
        ["index", "--registry", "registry.site/nvidia", "--attested"],
    ],
)
def test_options_that_say_nothing_alone_are_a_usage_error(words: list[str]) -> None:
    assert run(words) == 64


def test_kills_at_any_moment_leave_nothing_twice_and_nothing_out(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    program = "import sys; from driverforge_build.cli import run; sys.exit(run(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, *words_of(site)]
    for moment in (0.5, 0.7, 0.8, 0.9, 1.0, 1.1):
        child = subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert push(site, capsys)["status"] == 0
    assert len(referrers(site.client, place)) == 2


def result(text: str, place: Reference) -> bytes:
    return text.replace("DIGEST", place.digest.partition(":")[2]).encode()


def covered(site: RegistrySite, *words: str, anew: bool = True) -> list[bool]:
    """Whether covered.json, made anew, has the images as tested."""
    file = site.folder / "covered.json"
    if anew:
        file.unlink(missing_ok=True)
    assert run(["index", *site.given, "--covered", str(file), *words]) == 0
    return [one["tested"] for one in json.loads(file.read_text())["kernels"][KERNEL]]


def test_covered_kernels_are_tested_where_the_newest_result_is_a_pass(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place, attaching = at(site, site.store(AMD64)), Attaching(client=site.client)
    assert covered(site, "--attested") == [False]
    assert attaching.attach_result(place, result(PASSED, place)).sent
    assert not attaching.attach_result(place, result(PASSED, place)).sent
    assert covered(site) == [False]
    assert covered(site, "--attested") == [True]
    assert read(str(place), capsys, "--require", "test-result")[0] == 0
    # who may push to a registry may attach: with a verifier that is not enough
    ours = keys(tmp_path)
    assert covered(site, "--attested", "--verifier", ours.verifier) == [False]
    assert covered(site, "--attested") == [True]
    assert attaching.attach_result(place, result(FAILED, place)).sent
    assert covered(site, anew=False) == [True], "nobody looked"
    assert covered(site, "--attested", "--verifier", ours.verifier, anew=False) == [True], (
        "nobody believed it"
    )
    assert covered(site, "--attested", anew=False) == [False]
    assert covered(site, "--attested") == [False]
    assert read(str(place), capsys, "--require", "test-result")[2] == ["test-result FAILED"]
    # a pass after the failure is news again
    assert attaching.attach_result(place, result(PASSED, place)).sent
    assert covered(site, "--attested") == [True]


def test_a_result_of_another_image_counts_for_none(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place, other = at(site, site.store(AMD64)), at(site, site.store(ARM64))
    Attaching(client=site.client).attach_result(place, result(PASSED, other))
    assert read(str(place), capsys)[1] == {"test-result": "refused"}
    assert covered(site, "--attested") == [False, False]


def test_the_documents_can_be_taken_out(
    site: RegistrySite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tag = f"{site.registry}/driver:{immutable_tag_of(site.context(AMD64))}"
    site.store(AMD64)
    push(site, capsys)
    assert run(["attestations", tag, "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "CycloneDX 1.6, 8 components" in said
    assert "by urn:x-driverforge:builder:unnamed" in said
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name.partition("-")[0] for name in names] == ["provenance", "sbom"]
    # a file for each artifact, whoever chose its contents: no digest is cut
    assert {len(name.rpartition("-")[2]) for name in names} == {64 + len(".json")}


def test_an_image_without_anything_and_one_that_is_not_there(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    assert run(["attestations", str(place)]) == 0
    assert "nothing is attached" in capsys.readouterr().out
    assert run(["attestations", f"{site.registry}/driver:no-such-tag"]) == 69
    assert run(["attestations", f"{site.registry}/driver"]) == 65


def test_tags_beside_the_image_are_of_its_digest(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    place = at(site, site.store(AMD64))
    push(site, capsys)
    tag = referrers_tag(place.digest)
    for name in (tag, f"{tag}.driverforge-sbom", f"{tag}.driverforge-provenance"):
        assert site.client.head_manifest(place.with_tag(name)).digest
