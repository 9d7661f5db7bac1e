"""One row's tree against its model, and pydantic's findings in words: what, and what to write instead."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from driverforge_build.matrix.fields import Row
from driverforge_build.matrix.merge import near
from driverforge_build.matrix.yamltree import Listing, Mark, Node, Problem, Scalar, Table


def validated(
    model: type[Row], node: Node, mark: Mark, problems: list[Problem], *, complete: bool
) -> Row | None:
    """The row of a tree; None where it has problems, which are added to `problems`.

    `complete=False`: lines were dropped, so keys that are missing are not told.
    """
    try:
        return model.model_validate(plain(node))
    except ValidationError as error:
        found = error.errors(include_url=False)
        nameless = {
            details["loc"][:-1]
            for details in found
            if details["type"] == "missing" and details["loc"][-1] == "id"
        }
        for details in found:
            if (
                details["type"] == "missing"
                and details["loc"][-1] != "id"
                and details["loc"][:-1] in nameless
            ):
                # with its id the row may take these from a row below it
                continue
            place = _place(model, node, mark, details["loc"])
            # pydantic counts the valid entries of a list: one with only wrong entries is not short, they are
            # told one by one
            follows = (
                details["type"] == "too_short" and isinstance(place.node, Listing) and bool(place.node.items)
            )
            if not follows and (complete or details["type"] != "missing"):
                problems.append(Problem(mark=place.mark, text=_explain(details, place)))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What an error is about: the model that owns the key, the key, and the value with its place."""

    owner: type[Row]
    name: str
    node: Node
    mark: Mark


def plain(node: Node) -> Any:
    """A tree as lists, dictionaries and text."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Listing):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, value in node.items.items()}


def _place(model: type[Row], node: Node, mark: Mark, path: tuple[int | str, ...]) -> _Place:
    location = [part for part in path if part != "[key]"]
    owner = model
    for depth, part in enumerate(location):
        if isinstance(node, Table) and isinstance(part, str) and part in node.items:
            mark, node = node.keys[part], node.items[part]
        elif isinstance(node, Listing) and isinstance(part, int):
            node = node.items[part]
            mark = node.mark
        if depth < len(location) - 1 and isinstance(part, str) and part in owner.model_fields:
            owner = row_model(owner.model_fields[part].annotation) or owner
    name = next((part for part in reversed(location) if isinstance(part, str)), "")
    return _Place(owner=owner, name=name, node=node, mark=mark)


def row_model(annotation: object) -> type[Row] | None:
    """The row model inside `tuple[Row, ...]`, `Row | None` and the like."""
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, Row):
        return annotation
    return next(
        (found for argument in get_args(annotation) if (found := row_model(argument)) is not None), None
    )


_SHAPES = {
    "string_type": "one value: `{name}: TEXT`",
    "tuple_type": "a list: `{name}: [ONE, TWO]` or `- ` lines below it",
    "dict_type": "KEY: VALUE lines below `{name}:`",
    "model_type": "KEY: VALUE lines (`- id: ...` for a row)",
}


def _explain(details: ErrorDetails, place: _Place) -> str:
    kind, context, name, node = details["type"], details.get("ctx", {}), place.name, place.node
    if kind == "extra_forbidden":
        return f"unknown key {name!r}{near(name, place.owner.model_fields)}"
    if kind == "missing":
        field = place.owner.model_fields[name].description or "see the documentation"
        return f"{name!r} is missing; write `{name}:` ({_inside(field)})"
    if kind == "literal_error":
        words = [word.strip("'\" ") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"{name}: {_said(node)} is not allowed{near(_said(node), words)}"
    if kind in _SHAPES:
        return f"{f'`{name}`' if name else 'this'} is {kind_of(node)}; write " + _SHAPES[kind].format(
            name=name
        )
    if kind == "too_short":
        away = (
            "; or take the OS away too: `remove: true` in its row, instead of the rest"
            if name == "drivers"
            else ""
        )
        return f"`{name}` has no entries; write at least one{away}"
    if kind == "value_error":
        return f"{name}: {context['error']}"
    return f"{name}: {_said(node)}: {details['msg'][0].lower()}{details['msg'][1:]}"


def _inside(sentence: str) -> str:
    """A sentence as part of another: 'Base image.' is 'base image', 'ID and VERSION_ID' stays."""
    start = sentence[:1] if sentence[:2].isupper() else sentence[:1].lower()
    return start + sentence[1:].rstrip(".")


def _said(node: Node) -> str:
    return repr(node.text) if isinstance(node, Scalar) else kind_of(node)


def kind_of(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the text {node.text!r}" if node.text else "empty"
    return "a list" if isinstance(node, Listing) else "a mapping"
