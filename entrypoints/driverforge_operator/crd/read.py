"""A custom resource's `spec` as its model, or everything that is wrong with it at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from driverforge_operator.crd.model import Block

Spec = TypeVar("Spec", bound=Block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a value: where it stands, as `spec.driver.image`, and what would be right."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def read_spec(model: type[Spec], spec: object) -> tuple[Spec | None, tuple[Problem, ...]]:
    """The spec, or None with every problem.

    The API server refuses most of this already; a dump, and an object from before a schema changed, went past
    no API server of ours.
    """
    try:
        return model.model_validate_json(_json(spec)), ()
    except ValidationError as error:
        return None, tuple(_problem(one) for one in error.errors(include_url=False))


def _json(spec: object) -> str:
    """The spec as text: strict models read lists as tuples from JSON only."""
    return json.dumps(spec if spec is not None else {})


def _problem(found: Any) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
    match found["type"]:
        case "extra_forbidden":
            what = "there is no such field; remove it, or look for its spelling: kubectl explain"
        case "literal_error":
            what = f"{found['input']!r} is none of {found['ctx']['expected']}"
        case "missing":
            what = "has to be there; write {} for the defaults"
        case _:
            what = f"{found['msg'][:1].lower()}{found['msg'][1:]}, not {found['input']!r}"
    return Problem(path=f"spec{path}", what=what)
