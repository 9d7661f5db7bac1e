"""What a run of `driverforge verify` found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from driverforge_build import junit
from driverforge_build.attest import statement as in_toto
from driverforge_build.documents.failures import failure
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.verify.judge import Check, Outcome
from driverforge_build.verify.modules import ImageModule
from driverforge_core.errors import DriverforgeError

if TYPE_CHECKING:
    from driverforge_build.attest.attached import Attached
    from driverforge_build.documents.proofs import TriedModule, VerifiedCell, VerifyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedImage:
    """What was tried, and on what.

    `image` is the engine's id of the image, 'sha256:…'. `packages` are the kernel's. `machine` says what ran
    it: 'QEMU 7.2.22, TCG (…)'.
    """

    reference: str
    image: str
    kernel: str
    packages: tuple[LockedPackage, ...]
    modules: tuple[ImageModule, ...]
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The outcome for one cell: `tried` and `checks`, or the `error` that kept it from being tried.

    `attached` is the statement about it that the registry has, `not_attached` why it has not.
    """

    cell: str
    seconds: float
    tried: TriedImage | None = None
    checks: tuple[Check, ...] = ()
    error: DriverforgeError | None = None
    attached: Attached | None = None
    not_attached: DriverforgeError | None = None

    @property
    def passed(self) -> bool:
        return not self.error and bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def result(self) -> Literal["passed", "failed", "error"]:
        return "passed" if self.passed else "error" if self.error else "failed"


def document(proofs: Sequence[Proof]) -> VerifyDocument:
    """The whole report, for programs."""
    return {"schema": 1, "cells": [_cell(proof) for proof in proofs]}


def _cell(proof: Proof) -> VerifiedCell:
    tried = proof.tried
    return {
        "cell": proof.cell,
        "result": proof.result,
        "seconds": round(proof.seconds, 1),
        "reference": tried.reference if tried else "",
        "image": tried.image if tried else "",
        "kernel": tried.kernel if tried else "",
        "machine": tried.machine if tried else "",
        "packages": [
            {"name": package.name, "version": package.version, "sha256": package.sha256}
            for package in (tried.packages if tried else ())
        ],
        "modules": [_module(module) for module in (tried.modules if tried else ())],
        "checks": [
            {
                "module": check.module,
                "kind": check.kind.value,
                "outcome": check.outcome.value,
                "passed": check.passed,
                "reason": check.reason,
                "log": list(check.log),
            }
            for check in proof.checks
        ],
        "error": failure(proof.error) if proof.error else None,
        "attached": proof.attached.document() if proof.attached else None,
        "not_attached": failure(proof.not_attached) if proof.not_attached else None,
    }


def _module(module: ImageModule) -> TriedModule:
    signature = module.signature
    return {
        "module": module.path,
        "sha256": module.sha256,
        "signer": signature.signer if signature else "",
        "key_id": signature.key_id.hex() if signature else "",
        "signature_digest": signature.digest if signature else "",
    }


def text(proofs: Sequence[Proof]) -> Iterator[str]:
    """The report for people: a line a cell, a line a check that says more than that all is as it should."""
    for proof in proofs:
        yield f"{proof.cell}  {proof.result}  {proof.seconds:.0f} s"
        if proof.tried:
            packages = ", ".join(f"{package.name} {package.version}" for package in proof.tried.packages)
            yield f"  {proof.tried.kernel} from {packages}, on {proof.tried.machine}"
        for check in proof.checks:
            if not check.passed or check.outcome is not Outcome.AS_DESCRIBED:
                mark = "warning" if check.warned else "ok" if check.passed else "FAILED"
                reason = f"  {check.reason}" if check.reason else ""
                yield f"  {mark:7} {check.name}  {check.outcome.value}{reason}"
            if not check.passed:
                yield from (f"          | {line}" for line in check.log[-10:])
        for error in (proof.error, proof.not_attached):
            if error:
                yield from (f"  {line}" for line in error.render().splitlines())
        if proof.attached:
            yield f"  {proof.attached.line()}"
    failed = sum(not proof.passed for proof in proofs)
    yield f"{len(proofs) - failed} passed, {failed} failed"


def suites(proofs: Sequence[Proof]) -> Iterator[junit.Suite]:
    """For JUnit: a suite a cell, a case a check. A cell that could not be tried has one case in error."""
    for proof in proofs:
        cases = [
            junit.JUnitCase(
                name=check.name,
                outcome=junit.Outcome.PASSED if check.passed else junit.Outcome.FAILED,
                word=check.outcome.value,
                message=check.reason,
                text="\n".join(check.log),
            )
            for check in proof.checks
        ]
        if error := proof.error:
            cases.append(
                junit.JUnitCase(
                    name="could not be tried",
                    outcome=junit.Outcome.ERROR,
                    word="error",
                    message=error.brief,
                    text=error.render(),
                )
            )
        yield junit.Suite(name=proof.cell, cases=cases, seconds=proof.seconds)


def statement(proof: Proof, tried: TriedImage, *, name: str = "", digest: str = "") -> dict[str, Any]:
    """What was found of the image `digest` ('sha256:…'), which is called `name`, for its registry.

    It is https://in-toto.io/Statement/v1 with the predicate
    https://in-toto.io/attestation/test-result/v0.1: the kernel's packages and the modules are its
    `configuration`, the checks its tests.

    Without these it is about the image as the engine has it. Who has pushed it names the manifest in the
    registry instead.
    """
    predicate = {
        "result": _result(proof),
        "configuration": [*_kernel(tried), *_modules(tried)],
        "passedTests": [check.name for check in proof.checks if check.passed and not check.warned],
        "warnedTests": [check.name for check in proof.checks if check.warned],
        "failedTests": [check.name for check in proof.checks if not check.passed],
    }
    return in_toto.statement(name or tried.reference, digest or tried.image, in_toto.TEST_RESULT, predicate)


def statement_text(document: dict[str, Any]) -> bytes:
    """A statement as it is written; the same one gives the same bytes."""
    return json.dumps(document, indent=1).encode() + b"\n"


def _result(proof: Proof) -> str:
    if not proof.passed:
        return "FAILED"
    return "WARNED" if any(check.warned for check in proof.checks) else "PASSED"


def _kernel(tried: TriedImage) -> list[dict[str, Any]]:
    return [
        {
            "name": package.path.rpartition("/")[2],
            "digest": {"sha256": package.sha256},
            "annotations": {"kernel": tried.kernel, "machine": tried.machine},
        }
        for package in tried.packages
    ]


def _modules(tried: TriedImage) -> list[dict[str, Any]]:
    found = []
    for module in tried.modules:
        signature = module.signature
        signed = (
            {"signer": signature.signer, "key_id": signature.key_id.hex(), "digest": signature.digest}
            if signature
            else {}
        )
        described = {"name": module.path, "digest": {"sha256": module.sha256}}
        found.append(described | ({"annotations": {"signature": signed}} if signed else {}))
    return found
