"""Objects that the API server keeps in other words than ours: '1000m' of CPU is '1' there.

What it answered to a write is what that write makes. While an object still is that, and the same is wanted,
writing it once more changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from driverforge_operator.plan.actions import Action, Apply
from driverforge_operator.ports import Document, Ref

# what changes without anybody writing what was applied
_OTHERS = ("resourceVersion", "generation", "managedFields")


class Settled:
    """Digests of what was wanted, and of what became of it."""

    def __init__(self) -> None:
        self._digests: dict[Ref, tuple[bytes, bytes]] = {}

    def note(self, wanted: Document, answered: Document) -> None:
        """A write was answered."""
        self._digests[Ref.of(wanted)] = (_digest(wanted), _digest(_applied(answered)))

    def covers(self, action: Action, objects: Mapping[Ref, Document]) -> bool:
        """Whether an action would only write again what was written."""
        if not isinstance(action, Apply) or action.ref not in objects or action.ref not in self._digests:
            return False
        found = (_digest(action.document), _digest(_applied(objects[action.ref])))
        return self._digests[action.ref] == found


def _applied(document: Document) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key not in _OTHERS}
    return {**document, "metadata": metadata, "status": None}


def _digest(document: Document) -> bytes:
    return hashlib.sha256(msgspec.json.encode(document, order="deterministic")).digest()
