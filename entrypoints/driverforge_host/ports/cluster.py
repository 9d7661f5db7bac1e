"""The API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

JsonObject = dict[str, Any]
NODES = "/api/v1/nodes"


class Cluster(Protocol):
    """The API server, by the paths of its objects: '/api/v1/nodes/NAME'.

    Raises NotPermitted where it refuses us (401, 403), TemporaryFailure where it cannot answer now,
    Unavailable for any other refusal.
    """

    def get(self, path: str) -> JsonObject | None:
        """An object, None where there is none."""

    def list(self, path: str, *, labels: str = "") -> Iterator[JsonObject]:
        """The objects of a collection that fit a label selector, read in pages."""

    def patch(self, path: str, change: JsonObject) -> None:
        """Change fields of an object (JSON merge patch)."""

    def create(self, path: str, document: JsonObject) -> None:
        """Add an object to a collection."""

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""
