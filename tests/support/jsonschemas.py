"""The published JSON schemas, held against what the commands really print.

jsonschema is imported where it is used: it takes two seconds, for formats that no schema of ours names, and
each process of a tier imports this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[2] / "builder/driverforge_build/data/reports"


def problems(schema: Any, document: object) -> Iterator[str]:
    """What a document breaks, such as "$.systems[0]: 'id' is a required property".

    Where there are alternatives, of each of them.
    """
    from jsonschema import Draft202012Validator

    waiting = list(Draft202012Validator(schema).iter_errors(document))
    while waiting:
        error = waiting.pop()
        yield f"{error.json_path}: {error.message}"
        waiting += error.context


def check_document(name: str, document: object) -> None:
    """Raises ValidationError where a document is not as its schema says, or has a key that it does not know.

    To readers an unknown key is no error; what we write ourselves has to be described whole.
    """
    from jsonschema import Draft202012Validator

    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(_closed(schema)).validate(json.loads(json.dumps(document)))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return {**closed, **{key: _closed(value) for key, value in schema.items()}}
