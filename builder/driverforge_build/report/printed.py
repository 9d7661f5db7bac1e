"""The documents that our commands printed, read again: each is known by its keys, not by its file's name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from driverforge_build.documents.images import BuildCell, BuildDocument
from driverforge_build.documents.plans import PlanDocument
from driverforge_build.documents.proofs import VerifiedCell, VerifyDocument
from driverforge_build.documents.runs import CoveredDocument, CoveredImage
from driverforge_build.report.coverage import Documents
from driverforge_core.errors import InputError, UsageError

T = TypeVar("T")

_PLAN: TypeAdapter[PlanDocument] = TypeAdapter(PlanDocument)
_COVERED: TypeAdapter[CoveredDocument] = TypeAdapter(CoveredDocument)
_BUILD: TypeAdapter[BuildDocument] = TypeAdapter(BuildDocument)
_VERIFY: TypeAdapter[VerifyDocument] = TypeAdapter(VerifyDocument)


def read_documents(texts: Iterable[tuple[str, bytes]]) -> Documents:
    """What documents say together, each given as (name, text); of two about one cell the later one counts.

    A command that failed as a whole, or was killed before it wrote a word, says nothing of any cell.
    Raises InputError for what is none of them, UsageError where they are not about exactly one plan.
    """
    plans: dict[str, PlanDocument] = {}
    covered: dict[str, list[CoveredImage]] = {}
    built: dict[str, BuildCell] = {}
    verified: dict[str, VerifiedCell] = {}
    for name, text in texts:
        document = _parsed(name, text) if text else {"error": "killed"}
        if "error" in document:
            continue
        if "summary" in document:
            plans[name] = _checked(_PLAN, name, document)
        elif "kernels" in document:
            covered |= _checked(_COVERED, name, document)["kernels"]
        elif "engine" in document:
            cells = _checked(_BUILD, name, document)["cells"]
            built |= {cell["cell"]: cell for cell in cells if cell["result"]}
        else:
            verified |= {cell["cell"]: cell for cell in _checked(_VERIFY, name, document)["cells"]}
    if len(plans) != 1:
        raise UsageError(
            f"the page is about one plan, and {len(plans) or 'none'} of these documents is one",
            details=sorted(plans),
            resolution="driverforge plan --json >plan.json, with your --matrix, --lock and --registry",
        )
    (plan,) = plans.values()
    return Documents(plan=plan, covered=covered, built=built, verified=verified)


def _parsed(name: str, text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _strange(name, [str(error)]) from error
    if not isinstance(document, dict):
        raise _strange(name, [f"a JSON {type(document).__name__}, and not an object"])
    return document


def _checked(kind: TypeAdapter[T], name: str, document: dict[str, Any]) -> T:
    try:
        return kind.validate_python(document, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)[:10]
        details = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems]
        raise _strange(name, details) from error


def _strange(name: str, details: list[str]) -> InputError:
    return InputError(
        f"{name} is no document that a page can be made of",
        details=details,
        resolution="give what `plan --json`, `build --json` and `verify --json` of this version printed, and "
        "the covered.json of `index`",
    )
