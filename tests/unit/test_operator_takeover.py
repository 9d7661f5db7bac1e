"""What NVIDIA's operator wrote becomes ours once, and nobody else's does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from driverforge_operator.app.carry_out import carry_out
from driverforge_operator.app.takeover import taken_over
from driverforge_operator.plan.actions import Apply
from driverforge_operator.ports import Gone

DOCUMENT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "gpu-operator"}}


def entry(manager: str, fields: Any, operation: str = "Update", **more: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


EDITED = entry("kubectl-edit", {"f:data": {"f:admin": {}}})
STATUS = entry("gpu-operator", {"f:status": {}}, subresource="status")


class Server:
    """One object; it tells what is written."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = entries
        self.written: list[Any] = []

    def get(self, kind: Any, name: str) -> Any:
        if not self.entries:
            raise Gone("no such object")
        metadata = {"name": name, "resourceVersion": "7", "managedFields": list(self.entries)}
        return msgspec.convert({"metadata": metadata}, kind.model)

    def patch(self, kind: Any, name: str, body: Any) -> str:
        self.written.append(body["metadata"])
        return "8"

    def apply(self, kind: Any, document: Any) -> Any:
        self.written.append(document)
        return document


def applied(server: Any, *, first: bool = True) -> list[Any]:
    carry_out(Apply(document=DOCUMENT, first=first), server, status={}, now=str)
    found: list[Any] = server.written
    return found


@pytest.mark.parametrize("operation", ["Update", "Apply"])
def test_what_nvidias_operator_wrote_is_ours_before_the_apply(operation: str) -> None:
    theirs = entry("gpu-operator", {"f:data": {"f:a": {}}}, operation, time="2026-01-01T00:00:00Z")
    patch, document = applied(Server(EDITED, STATUS, theirs))
    ours = {**theirs, "manager": "driverforge-operator", "operation": "Apply"}
    assert patch == {"resourceVersion": "7", "managedFields": [EDITED, STATUS, ours]}
    assert document == DOCUMENT


def test_several_entries_become_one_with_the_fields_of_all() -> None:
    """The server keeps one entry of a manager that applies."""
    ours = entry("driverforge-operator", {"f:data": {".": {}, "f:a": {}}}, "Apply")
    theirs = entry("gpu-operator", {"f:data": {"f:a": {"f:b": {}}}})
    applying = entry("gpu-operator", {"f:data": {"f:c": {}}}, "Apply")
    (found,) = taken_over([theirs, ours, applying])
    fields = {"f:data": {".": {}, "f:a": {"f:b": {}}, "f:c": {}}}
    assert found == {**ours, "fieldsV1": fields}


@pytest.mark.parametrize("entries", [(), (EDITED, STATUS)], ids=["nothing there", "of others"])
def test_what_others_wrote_costs_no_write(entries: tuple[dict[str, Any], ...]) -> None:
    assert applied(Server(*entries)) == [DOCUMENT]


def test_a_role_is_replaced_whole_without_a_patch_that_needs_all_its_rights() -> None:
    server: Any = Server(entry("gpu-operator", {"f:rules": {}}))
    role = {**DOCUMENT, "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    carry_out(Apply(document=role, first=True), server, status={}, now=str)
    assert server.written == [role]


def test_what_is_known_as_ours_is_not_looked_at() -> None:
    assert applied(Server(entry("gpu-operator", {})), first=False) == [DOCUMENT]
