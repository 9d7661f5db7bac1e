"""Objects that NVIDIA's operator wrote. Server-side apply leaves alone what another manager owns, so that a
container or variable of its would stay for ever.

What it owns becomes ours before the first apply, as client-go's csaupgrade does it for kubectl; the apply
then takes away what we do not want. What anybody else wrote stays theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from driverforge_operator.ports import Cluster, Document, Gone, Kind
from driverforge_operator.state.kinds import MANAGER, VersionedMetadata

THEIR_MANAGER = "gpu-operator"
_RIGHTS = "rbac.authorization.k8s.io"
"""Whoever patches a role needs all that it grants (RBAC's rule against escalation), and theirs may grant more
than ours. Rules and subjects are lists that an apply replaces whole, so nothing of theirs is left there.
"""
_Entry = dict[str, Any]


class _Metadata(VersionedMetadata, frozen=True, kw_only=True, rename="camel"):
    managed_fields: list[_Entry] = msgspec.field(default_factory=list)


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """An object, and who wrote what of it."""

    metadata: _Metadata


def take_over(cluster: Cluster, kind: Kind[Any], name: str) -> None:
    """Make fields of NVIDIA's operator ours, if there are any. Raises Conflict where somebody was faster."""
    if kind.group == _RIGHTS:
        return
    try:
        found = cluster.get(replace(kind, model=_Written), name).metadata
    except Gone:
        return
    entries = taken_over(found.managed_fields)
    if entries != found.managed_fields:
        body = {"metadata": {"resourceVersion": found.resource_version, "managedFields": entries}}
        cluster.patch(kind, name, body)


def taken_over(entries: Iterable[_Entry]) -> list[_Entry]:
    """`managedFields` with all that NVIDIA's operator owns in one entry of ours."""
    known = list(entries)
    theirs = [one for one in known if _is(one, THEIR_MANAGER, "Update", "Apply")]
    if not theirs:
        return known
    ours = [one for one in known if _is(one, MANAGER, "Apply")]
    fields: Document = {}
    for one in (*ours, *theirs):
        fields = _union(fields, one.get("fieldsV1", {}))
    first, *_ = (*ours, *theirs)
    entry = {**first, "manager": MANAGER, "operation": "Apply", "fieldsV1": fields}
    return [*(one for one in known if one not in theirs and one not in ours), entry]


def _is(entry: _Entry, manager: str, *operations: str) -> bool:
    # a status is written by a subresource, and not applied by us
    return (
        entry.get("manager") == manager
        and entry.get("operation") in operations
        and not entry.get("subresource")
    )


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of either; a field with an empty mapping is owned whole."""
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in (*one, *other)}
