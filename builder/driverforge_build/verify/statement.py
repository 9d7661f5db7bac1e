"""The outcome as an in-toto statement that can go beside an image in its registry.

It is https://in-toto.io/Statement/v1 with the predicate https://in-toto.io/attestation/test-result/v0.1: the
kernel's packages and the modules are its `configuration`, the checks its tests.
"""

from __future__ import annotations

import json
from typing import Any

from driverforge_build.attest import statement as in_toto
from driverforge_build.verify.report import Proof, TriedImage


def statement(proof: Proof, tried: TriedImage, *, name: str = "", digest: str = "") -> dict[str, Any]:
    """What was found of the image `digest` ('sha256:…'), which is called `name`.

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
