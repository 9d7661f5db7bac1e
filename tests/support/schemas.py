"""Checking a document against one of the JSON schemas that we publish."""

from __future__ import annotations


def schema_problems(value: object, schema: dict[str, object], top: dict[str, object], path: str) -> list[str]:
    """What a value breaks of the parts of JSON schema that ours uses."""
    if "$ref" in schema:
        target = top["$defs"][str(schema["$ref"]).rpartition("/")[2]]  # type: ignore[index]
        return schema_problems(value, target, top, path)
    if "anyOf" in schema:
        parts = schema["anyOf"]
        tries = [schema_problems(value, part, top, path) for part in parts]  # type: ignore[attr-defined]
        return [] if any(not found for found in tries) else tries[0]
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:  # type: ignore[operator]
        found.append(f"{path}: {value!r} is not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: {value!r} is not {schema['const']!r}")
    kinds = {
        "object": dict,
        "array": (list, tuple),
        "string": str,
        "integer": int,
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema and not isinstance(value, kinds[str(schema["type"])]):  # type: ignore[arg-type]
        return [*found, f"{path}: {value!r} is no {schema['type']}"]
    if isinstance(value, dict):
        properties: dict[str, dict[str, object]] = schema.get("properties", {})  # type: ignore[assignment]
        extra = schema.get("additionalProperties", True)
        required = schema.get("required", [])
        missing = [name for name in required if name not in value]  # type: ignore[attr-defined]
        found += [f"{path}: {name} is missing" for name in missing]
        for name, child in value.items():
            if name in properties:
                found += schema_problems(child, properties[name], top, f"{path}.{name}")
            elif isinstance(extra, dict):
                found += schema_problems(child, extra, top, f"{path}.{name}")
            elif extra is False:
                found.append(f"{path}: {name} is not a key")
    if isinstance(value, list):
        items: dict[str, object] = schema.get("items", {})  # type: ignore[assignment]
        found += [
            problem
            for index, child in enumerate(value)
            for problem in schema_problems(child, items, top, f"{path}[{index}]")
        ]
    return found
