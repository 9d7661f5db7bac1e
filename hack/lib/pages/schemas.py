"""The published JSON schemas: of matrix.yaml, and of what `--json` prints, made from `documents`."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from driverforge_build.documents import failures, images, locks, plans, proofs, runs
from driverforge_build.matrix.fields import Row
from driverforge_build.matrix.model import MODELS, Keep, Section
from driverforge_mirror import shapes

DOCUMENTS: dict[str, type] = {
    "plan": plans.PlanDocument,
    "explain": plans.ExplainDocument,
    "generate": plans.GenerateDocument,
    "matrix": plans.MatrixDocument,
    "build": images.BuildDocument,
    "lock-report": locks.LockDocument,
    "push": images.PushDocument,
    "push-plan": images.PushPlanDocument,
    "index": images.IndexDocument,
    "covered": runs.CoveredDocument,
    "failure": failures.FailureDocument,
    "attestations": proofs.AttestationsDocument,
    "verify": proofs.VerifyDocument,
    "watch": runs.WatchDocument,
    "times": runs.TimesDocument,
    "mirror-lock": shapes.MirrorLockDocument,
    "mirror-inventory": shapes.MirrorInventoryDocument,
    "mirror-archive": shapes.MirrorArchiveDocument,
    "mirror-copy": shapes.MirrorCopyDocument,
    "mirror-volumes": shapes.MirrorVolumesDocument,
    "mirror-prune": shapes.MirrorPruneDocument,
    "mirror-shelf": shapes.MirrorShelfDocument,
}
"""Name of a schema file to the document that it describes."""

Schema = dict[str, Any]


def document_schema(document: type) -> Schema:
    """A document's schema as JSON data; sentences of docstrings in one line."""
    schema = TypeAdapter(document).json_schema(ref_template="#/$defs/{model}")
    for one in (schema, *schema.get("$defs", {}).values()):
        if "description" in one:
            one["description"] = _one_line(one["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def matrix_schema() -> Schema:
    """The schema of matrix.yaml as JSON data, keys in the order of the models.

    It is for editors, and looser than the loader on purpose: a row may be partial (`like`, or an override of
    a built-in row), and what needs two rows to judge is the loader's.
    """
    models: list[type[Row]] = [Keep, *MODELS.values()]
    references, top = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/$defs/{model}"
    )
    definitions: Schema = top["$defs"]
    for definition in definitions.values():
        _loosen(definition)
    for model in MODELS.values():
        _own(definitions, model.__name__)["like"] = {
            "type": "string",
            "description": "Id of a row of this list to take over; keys of this row override.",
        }
    sections = {
        section.value: {
            "type": "array",
            "items": references[MODELS[section], "validation"],
            "description": _one_line(MODELS[section].__doc__),
        }
        for section in Section
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "driverforge matrix",
        "description": "Which drivers on which operating systems and kernels. Values are text; quote "
        "numbers with dots.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "extends": {
                "enum": ["builtin"],
                "description": "Start from the catalogue that driverforge ships.",
            },
            "keep": references[Keep, "validation"],
            **sections,
        },
        "$defs": definitions,
    }


def _own(definitions: Schema, name: str) -> Schema:
    properties: Schema = definitions[name]["properties"]
    return properties


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _loosen(definition: Schema) -> None:
    if "description" in definition:
        definition["description"] = _one_line(definition["description"])
    if "id" in definition.get("properties", {}):
        definition["required"] = ["id"]
        definition["properties"]["remove"] = {"const": True, "description": "Take the row of this id away."}
