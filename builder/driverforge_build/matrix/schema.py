"""The published JSON schema of matrix.yaml, for editors: keys, descriptions and allowed words.

It is looser than the loader on purpose: a row may be partial (`like`, or an override of a built-in row), and
what needs two rows to judge is the loader's.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from driverforge_build.matrix.fields import Row
from driverforge_build.matrix.model import MODELS, Keep, Section

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema as JSON data, keys in the order of the models."""
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
