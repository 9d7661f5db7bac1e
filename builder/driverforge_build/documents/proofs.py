"""JSON of `attestations` and `verify`: what is attached to an image, and how its modules did."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

from driverforge_build.documents.failures import Failure


class AttachedArtifact(TypedDict):
    """Something that refers to an image, by its own digest.

    `kind` is sbom, provenance, test-result or signature; `sent` is false where it was there already. `digest`
    is '' for a signature that the registry does not show.
    """

    kind: str
    digest: str
    signed: bool
    sent: bool


class Attestation(TypedDict):
    """What is attached to an image; `facts` is what it says, in a line.

    `trust` is `accepted` or `refused` by --verifier; without one it is `unchecked` where there is a signature
    that nobody looked at. What is about another image, or cannot be read, is `refused` in any case.
    """

    kind: Literal["sbom", "provenance", "test-result", "signature", "other"]
    digest: str
    media_type: str
    created: str
    trust: Literal["unsigned", "unchecked", "accepted", "refused"]
    reason: str
    facts: str


class AttestedImage(TypedDict):
    """The image of a platform, by its own digest. `lacks`: what --require found missing, a sentence each."""

    platform: str
    digest: str
    attached: list[Attestation]
    lacks: list[str]


class AttestationsDocument(TypedDict):
    """`driverforge attestations --json`."""

    schema: Literal[1]
    reference: str
    images: list[AttestedImage]


class KernelPackage(TypedDict):
    name: str
    version: str
    sha256: str


class TriedModule(TypedDict):
    """A module of an image, by its path there. What is about its signature is '' where it has none."""

    module: str
    sha256: str
    signer: str
    key_id: str
    signature_digest: str


class VerifyCheck(TypedDict):
    """One thing that was tried with a module; `log` is what the kernel said of it."""

    module: str
    kind: str
    outcome: str
    passed: bool
    reason: str
    log: list[str]


class VerifiedCell(TypedDict):
    """An image's proof. `image` is the engine's id, `machine` what ran the kernel; '' where not tried.

    `attached`: the statement that --attest looked after, `not_attached` why that failed.
    """

    cell: str
    result: Literal["passed", "failed", "error"]
    seconds: float
    reference: str
    image: str
    kernel: str
    machine: str
    packages: list[KernelPackage]
    modules: list[TriedModule]
    checks: list[VerifyCheck]
    error: Failure | None
    attached: AttachedArtifact | None
    not_attached: Failure | None


class VerifyDocument(TypedDict):
    """`driverforge verify --json`."""

    schema: Literal[1]
    cells: list[VerifiedCell]
