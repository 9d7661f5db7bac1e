"""A build that attaches: what it states of images that it has built and has not; what a failure leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.app.runner import CellReport, HowToRun, Pushing, Result, build_all, confirm_all
from driverforge_build.attest.attach import LIMIT, Attaching
from driverforge_build.attest.attached import KIND_KEY, PREDICATE_KEY, SLOTS, Kind, is_ours
from driverforge_build.attest.read import Finding, Trust, lack, read_image
from driverforge_build.attest.statement import (
    ENVELOPE_TYPE,
    PROVENANCE,
    STATEMENT,
    TEST_RESULT,
    enveloped,
    opened,
    to_be_signed,
)
from driverforge_build.matrix import load_matrix
from driverforge_build.ports import BuildJob
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import local_reference
from driverforge_build.render.context import context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure
from driverforge_oci.client import Descriptor, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach, content_of, referrers
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response
from support.fakes.fakeengine import FakeEngine
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer
from support.samples.synthetic import all_cells, synthetic_lock

MATRIX = load_matrix()
(_IMAGE,) = image_specs(
    [cell for cell in all_cells(MATRIX) if cell.key == "debian12-amd64-535.261.03-jit"],
    synthetic_lock(MATRIX),
)
JIT = context_of(_IMAGE, resources.templates())
LABELS = {JIT.image.id: {"io.driverforge.inputs": JIT.inputs, "io.driverforge.cell": JIT.image.id}}


@dataclass(slots=True)
class Scripted:
    """A signer that raises these errors before it works; its signature is the content backwards."""

    errors: list[DriverforgeError] = field(default_factory=list)

    def sign(self, content: bytes, *, image: str, predicate: str) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        return content[::-1]


class Backwards:
    def objection(self, content: bytes, signature: bytes) -> str:
        return "" if signature == content[::-1] else "another signature"


def client(engine: FakeEngine) -> RegistryClient:
    return RegistryClient(Session(engine.registry))


def publisher(engine: FakeEngine, signer: Scripted | None = None) -> Publisher:
    attaching = Attaching(client=client(engine), signer=signer)
    return Publisher(registry=HOST, engine=engine, client=client(engine), given=Given(), attaching=attaching)


def job() -> BuildJob:
    return BuildJob(
        cell=JIT.image.id,
        group="g",
        target="t",
        bake_file=Path("docker-bake.json"),
        reference=local_reference(JIT),
        log=Path("a.log"),
    )


def build(engine: FakeEngine, signer: Scripted | None = None) -> CellReport:
    pushing = Pushing(publisher=publisher(engine, signer), contexts={JIT.image.id: JIT})
    how = HowToRun(workers=1, keep_going=False, pushing=pushing, retries=2, wait=lambda _: None)
    (report,) = build_all([engine], [job()], how, lambda *_: None)
    return report


def place_of(report: CellReport) -> Reference:
    assert report.pushed
    return report.pushed.place


def metadata(engine: FakeEngine, report: CellReport) -> dict[str, str]:
    """What the one provenance of an image says of the run."""
    place = place_of(report)
    (one,) = [one for one in referrers(client(engine), place, SLOTS) if is_ours(one, Kind.PROVENANCE)]
    found = opened(content_of(client(engine), place, one, limit=1 << 20))
    assert found
    said: dict[str, str] = found.document["predicate"]["runDetails"]["metadata"]
    return said


@pytest.mark.parametrize("lists", [0, 5], ids=["by tag", "by the registry"])
def test_an_image_that_was_built_now_says_when(lists: int) -> None:
    engine = FakeEngine(registry=MemoryRegistry(lists_referrers=lists), labels=LABELS)
    report = build(engine)
    assert report.result is Result.BUILT
    assert report.pushed
    assert [one.kind for one in report.pushed.attached] == [Kind.SBOM, Kind.PROVENANCE]
    assert set(metadata(engine, report)) == {"startedOn", "finishedOn"}
    again = build(engine)
    assert again.result is Result.EXISTS
    assert again.pushed
    assert not any(one.sent for one in again.pushed.attached)


def test_an_image_of_an_earlier_run_says_no_time() -> None:
    engine = FakeEngine(labels=LABELS)
    build(FakeEngine(registry=engine.registry, labels=LABELS, images=engine.images))
    # a registry that forgot what refers to its images
    for name in [name for name in engine.registry.manifests if "-" in name[1] and "sha256" in name[1]]:
        del engine.registry.manifests[name]
    report = build(engine)
    assert report.result is Result.EXISTS
    assert metadata(engine, report) == {}


def test_a_signer_that_fails_leaves_the_image_and_what_was_attached_in_the_report() -> None:
    engine = FakeEngine(labels=LABELS)
    report = build(engine, Scripted([CommandFailed("the token is locked")]))
    assert report.result is Result.FAILED
    assert report.error
    assert report.error.brief == "the token is locked"
    assert report.pushed
    assert [(one.kind, one.sent) for one in report.pushed.attached] == [(Kind.SBOM, True)]
    (rest,) = confirm_all([(JIT, report.pushed.digest)], publisher(engine, Scripted()), retries=0)
    assert rest.pushed
    assert [(one.kind, one.sent, one.signed) for one in rest.pushed.attached] == [
        (Kind.SBOM, False, False),
        (Kind.PROVENANCE, True, True),
    ]


def test_a_signer_that_asks_for_patience_is_asked_again() -> None:
    engine = FakeEngine(labels=LABELS)
    report = build(engine, Scripted([TemporaryFailure("later"), TemporaryFailure("later")]))
    assert report.result is Result.BUILT
    assert [one.reason for one in report.attempts] == ["later", "later"]
    assert report.pushed
    assert [one.kind for one in report.pushed.attached] == [Kind.SBOM, Kind.PROVENANCE]


def test_what_is_signed_is_what_is_verified() -> None:
    engine = FakeEngine(labels=LABELS)
    report = build(engine, Scripted())
    found = read_image(client(engine), place_of(report), Backwards())
    assert {one.kind: one.trust for one in found} == {
        Kind.SBOM: Trust.ACCEPTED,
        Kind.PROVENANCE: Trust.ACCEPTED,
    }
    (signed,) = [one for one in found if one.kind is Kind.PROVENANCE]
    envelope = opened(signed.content)
    assert envelope
    assert envelope.signatures == (to_be_signed(envelope.payload)[::-1],)


def test_an_sbom_that_somebody_else_put_there_is_not_vouched_for() -> None:
    engine = FakeEngine(labels=LABELS)
    bare = replace(publisher(engine), attaching=None)
    engine.build(job(), lambda _: None)
    place = bare.push(JIT, lambda _: None).place
    theirs = Artifact(
        media_type="application/vnd.cyclonedx+json",
        content=b"{}",
        slot="theirs",
        annotations=((KIND_KEY, "sbom"),),
    )
    forged = attach(client(engine), place, theirs, ("theirs",)).digest
    report = build(engine, Scripted())
    assert report.pushed
    assert report.pushed.attached[0].digest != forged
    trust = {one.referrer.digest: one.trust for one in read_image(client(engine), place, Backwards())}
    assert trust.pop(forged) is Trust.REFUSED
    assert set(trust.values()) == {Trust.ACCEPTED}


def test_a_signed_statement_counts_as_what_it_says_that_it_is() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine, Scripted()))
    signed = next(one for one in read_image(client(engine), place) if one.kind is Kind.PROVENANCE)
    # whoever may push says in the annotation what it is to pass for
    theirs = Artifact(
        media_type=ENVELOPE_TYPE,
        content=signed.content,
        slot="theirs",
        annotations=((PREDICATE_KEY, TEST_RESULT),),
    )
    passed_off = attach(client(engine), place, theirs, ("theirs",)).digest
    found = {one.referrer.digest: one for one in read_image(client(engine), place, Backwards())}
    assert found[passed_off].trust is Trust.REFUSED
    assert found[passed_off].reason == "it is a statement of another kind: https://slsa.dev/provenance/v1"
    assert found[signed.referrer.digest].trust is Trust.ACCEPTED


def test_a_verifier_is_not_started_for_signatures_without_end() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine, Scripted()))
    signed = next(one for one in read_image(client(engine), place) if one.kind is Kind.PROVENANCE)
    envelope = json.loads(signed.content)
    envelope["signatures"] = [{"sig": "AAAA"}] * 100 + envelope["signatures"]
    theirs = Artifact(
        media_type=ENVELOPE_TYPE,
        content=json.dumps(envelope).encode(),
        slot="theirs",
        annotations=((PREDICATE_KEY, PROVENANCE),),
    )
    flooded = attach(client(engine), place, theirs, ("theirs",)).digest
    found = {one.referrer.digest: one for one in read_image(client(engine), place, Backwards())}
    assert (found[flooded].trust, found[flooded].reason) == (Trust.REFUSED, "it has 101 signatures")
    assert found[signed.referrer.digest].trust is Trust.ACCEPTED


def test_a_busy_registry_has_not_said_that_a_document_is_bad() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))

    def busy(request: Request) -> Response | None:
        return answer(503) if "/blobs/" in request.url else None

    engine.registry.trouble = busy
    with pytest.raises(TemporaryFailure):
        read_image(client(engine), place)


def test_a_document_that_is_gone_or_too_large_is_refused_and_the_others_are_read() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))
    largest = max(engine.registry.blobs, key=lambda name: len(engine.registry.blobs[name]))
    del engine.registry.blobs[largest]
    trust = {one.kind: one.trust for one in read_image(client(engine), place)}
    assert sorted(one.value for one in trust.values()) == ["refused", "unsigned"]


def test_whoever_may_push_cannot_fill_the_memory_of_who_reads() -> None:
    engine = FakeEngine(registry=MemoryRegistry(lists_referrers=100), labels=LABELS)
    place = place_of(build(engine))
    for number in range(5):
        content = json.dumps(f"{number}" * (LIMIT - 2)).encode()
        theirs = Artifact(media_type="application/vnd.cyclonedx+json", content=content, slot="theirs")
        attach(client(engine), place, theirs, ("theirs",))
    found = read_image(client(engine), place)
    assert len(found) == 7
    assert LIMIT <= sum(len(one.content) for one in found) <= 2 * LIMIT
    assert {one.trust for one in found if not one.content} == {Trust.REFUSED}


SBOM_TYPE = "application/vnd.cyclonedx+json"


def attached_by_others(engine: FakeEngine, place: Reference, kind: str, content: bytes) -> str:
    """The digest of what somebody who may push has attached to an image, as a provenance or as an SBOM."""
    said = ((PREDICATE_KEY, PROVENANCE),) if kind == ENVELOPE_TYPE else ()
    theirs = Artifact(media_type=kind, content=content, slot=f"theirs-{len(content)}", annotations=said)
    return attach(client(engine), place, theirs, (theirs.slot,)).digest


def vouching(place: Reference, sbom: str, *, accepted: bool) -> bytes:
    """A provenance of an image that names an SBOM, with a signature that the verifier accepts or does not."""
    payload = json.dumps(
        {
            "_type": STATEMENT,
            "subject": [{"digest": {"sha256": place.digest.removeprefix("sha256:")}}],
            "predicateType": PROVENANCE,
            "predicate": {
                "runDetails": {"byproducts": [{"digest": {"sha256": sbom.removeprefix("sha256:")}}]}
            },
        }
    ).encode()
    return enveloped(payload, to_be_signed(payload)[::-1] if accepted else b"nobody's")


@pytest.mark.parametrize(
    ("sbom", "accepted", "trust", "reason"),
    [
        (b"{}", True, Trust.ACCEPTED, ""),
        (b"{}", False, Trust.REFUSED, "no accepted provenance names it"),
        (b"no JSON", True, Trust.REFUSED, "it is no JSON"),
    ],
)
def test_an_sbom_counts_where_it_is_one_and_an_accepted_provenance_names_it(
    sbom: bytes, accepted: bool, trust: Trust, reason: str
) -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))
    theirs = attached_by_others(engine, place, SBOM_TYPE, sbom)
    attached_by_others(engine, place, ENVELOPE_TYPE, vouching(place, theirs, accepted=accepted))
    found = {one.referrer.digest: one for one in read_image(client(engine), place, Backwards())}
    assert (found[theirs].trust, found[theirs].reason) == (trust, reason)


def test_a_signed_statement_of_another_image_says_nothing_of_this_one() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))
    other = replace(place, digest="sha256:" + "1" * 64)
    theirs = attached_by_others(engine, place, ENVELOPE_TYPE, vouching(other, other.digest, accepted=True))
    found = {one.referrer.digest: one for one in read_image(client(engine), place, Backwards())}
    assert (found[theirs].trust, found[theirs].reason) == (Trust.REFUSED, "it is about another image")


@pytest.mark.parametrize(
    "content", [b"{}", b"no JSON", json.dumps({"payloadType": "application/vnd.in-toto+json"}).encode()]
)
def test_what_is_no_statement_is_refused(content: bytes) -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))
    theirs = attached_by_others(engine, place, ENVELOPE_TYPE, content)
    found = {one.referrer.digest: one for one in read_image(client(engine), place, Backwards())}
    assert (found[theirs].trust, found[theirs].reason) == (Trust.REFUSED, "it is no in-toto statement")


def test_a_verifier_takes_no_statement_without_a_signature() -> None:
    engine = FakeEngine(labels=LABELS)
    place = place_of(build(engine))
    found = {one.kind: one for one in read_image(client(engine), place, Backwards())}
    assert (found[Kind.PROVENANCE].trust, found[Kind.PROVENANCE].reason) == (
        Trust.REFUSED,
        "it is not signed",
    )
    assert found[Kind.SBOM].trust is Trust.REFUSED


@pytest.mark.parametrize(
    ("said", "why"), [("PASSED", ""), ("WARNED", ""), ("FAILED", "test-result FAILED"), (5, "not stated")]
)
def test_a_test_counts_as_passed_where_it_says_so(said: object, why: str) -> None:
    referrer = Descriptor(media_type="m", digest="sha256:" + "1" * 64, size=1)
    found = Finding(kind=Kind.TEST_RESULT, referrer=referrer, said={"predicate": {"result": said}})
    told = lack([found], Kind.TEST_RESULT, verified=False)
    assert told.endswith(why)
    assert bool(told) is bool(why)
