"""The base of all models, and the scalars of Kubernetes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)"
    r"|(\.[0-9]+))))?$"
)
_INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


class Block(BaseModel):
    """A part of a custom resource. A field that is not written is None, unless it has a published default.

    Field names are the API's in Python's spelling. Values are never converted: 'true' is no boolean.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        use_attribute_docstrings=True,
    )


def _whole(value: str | float) -> int | str | float:
    if isinstance(value, float):
        raise ValueError("write a number with a fraction as text, e.g. '0.5'")  # noqa: TRY004
    return value


Quantity = Annotated[
    int | str | float, AfterValidator(_whole), WithJsonSchema({**_INT_OR_STRING, "pattern": _QUANTITY})
]
"""An amount of CPU or memory: '500m', '100Mi', 2."""

IntOrString = Annotated[int | str, WithJsonSchema(dict(_INT_OR_STRING))]
"""A count or a percentage: 1, '25%'."""

Positive = Annotated[int, Field(ge=1, json_schema_extra={"format": "int32"})]
Count = Annotated[int, Field(ge=0)]


def rules(*checks: tuple[str, str]) -> dict[str, JsonValue]:
    """The schema's key for CEL rules, each with the message of a refusal."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in checks]}
