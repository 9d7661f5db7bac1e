"""What a run of `driverforge verify` found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_build.lock.pins import LockedPackage
from driverforge_build.verify.judge import Check, Kind, Outcome
from driverforge_build.verify.modules import ImageModule
from driverforge_core.errors import DriverforgeError

SCHEMA = 1


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
    """The outcome for one cell: `tried` and `checks`, or the `error` that kept it from being tried."""

    cell: str
    seconds: float
    tried: TriedImage | None = None
    checks: tuple[Check, ...] = ()
    error: DriverforgeError | None = None

    @property
    def passed(self) -> bool:
        return not self.error and bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def result(self) -> str:
        return "passed" if self.passed else "error" if self.error else "failed"


def document(proofs: Sequence[Proof]) -> dict[str, Any]:
    """The whole report as JSON-able values; data/verify.schema.json describes it."""
    return {"schema": SCHEMA, "cells": [_cell(proof) for proof in proofs]}


def _cell(proof: Proof) -> dict[str, Any]:
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
        "error": proof.error.document() if proof.error else None,
    }


def _module(module: ImageModule) -> dict[str, Any]:
    signature = module.signature
    return {
        "module": module.path,
        "sha256": module.sha256,
        "signer": signature.signer if signature else "",
        "key_id": signature.key_id.hex() if signature else "",
        "signature_digest": signature.digest if signature else "",
    }


def report_schema() -> dict[str, Any]:
    """The schema of `document`. Readers ignore keys that they do not know: more may come."""
    text, flag = {"type": "string"}, {"type": "boolean"}
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    error = _object(
        brief=text,
        details={"type": "array", "items": text},
        resolution=text,
        exit_status={"type": "integer"},
    )
    check = _object(
        module=text,
        kind={"enum": [kind.value for kind in Kind]},
        outcome={"enum": [outcome.value for outcome in Outcome]},
        passed=flag,
        reason=text,
        log={"type": "array", "items": text},
    )
    cell = _object(
        cell=text,
        result={"enum": ["passed", "failed", "error"]},
        seconds={"type": "number"},
        reference=text,
        image=text,
        kernel=text,
        machine=text,
        packages=_list(name=text, version=text, sha256=digest),
        modules=_list(module=text, sha256=digest, signer=text, key_id=text, signature_digest=text),
        checks={"type": "array", "items": check},
        error={"anyOf": [error, {"type": "null"}]},
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "driverforge verify --json",
        **_object(schema={"const": SCHEMA}, cells={"type": "array", "items": cell}),
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


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
        if proof.error:
            yield from (f"  {line}" for line in proof.error.render().splitlines())
    failed = sum(not proof.passed for proof in proofs)
    yield f"{len(proofs) - failed} passed, {failed} failed"
