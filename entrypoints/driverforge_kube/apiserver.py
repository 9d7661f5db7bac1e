"""The API server by the standard library alone: node images carry no client library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from driverforge_core import __version__
from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable
from driverforge_kube.address import Address

JsonObject = dict[str, Any]
TIMEOUT = 30.0  # seconds for one request
LARGEST = 64 << 20  # bytes of one answer
PAGE = 250  # objects
_PROGRAM = f"driverforge/{__version__}"
LATER = (408, 429, 500, 502, 503, 504)


class KubernetesClient:
    """A client by the paths of objects: '/api/v1/nodes/NAME'.

    A connection a request: its users ask a few times a minute. No proxy of the environment is asked: the API
    server is a neighbour. Each method raises NotPermitted where the server refuses us (401, 403),
    TemporaryFailure where it cannot answer now, and Unavailable for any other refusal.
    """

    def __init__(self, address: Address, *, page: int = PAGE, largest: int = LARGEST) -> None:
        self._address = address
        self._page = page  # objects
        self._largest = largest  # bytes of one answer

    def get(self, path: str) -> JsonObject | None:
        """An object, None where there is none."""
        return self._request("GET", path, absent_ok=True)

    def list(self, path: str, *, labels: str = "") -> Iterator[JsonObject]:
        """The objects of a collection that fit a label selector, read in pages."""
        after = ""
        while True:
            query = f"limit={self._page}&labelSelector={quote(labels)}&continue={quote(after)}"
            page = self._request("GET", f"{path}?{query}") or {}
            kind, items = str(page.get("kind")), page.get("items")
            if not (kind.endswith("List") and isinstance(items, list)):
                raise _misled(path, f"a list was asked for, and {kind} is not a whole one")
            yield from items
            after = (page.get("metadata") or {}).get("continue") or ""
            if not after:
                return

    def patch(self, path: str, change: JsonObject) -> None:
        """Change fields of an object (JSON merge patch)."""
        self._request("PATCH", path, change, kind="application/merge-patch+json")

    def create(self, path: str, document: JsonObject) -> None:
        """Add an object to a collection."""
        self._request("POST", path, document)

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""
        self._request("DELETE", path, absent_ok=True)

    def _request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        kind: str = "application/json",
        absent_ok: bool = False,
    ) -> JsonObject | None:
        where = self._address
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": _PROGRAM}
        data = json.dumps(body).encode() if body is not None else None
        connection = http.client.HTTPSConnection(where.host, where.port, context=where.trust, timeout=TIMEOUT)
        try:
            if token := where.token():
                headers["Authorization"] = f"Bearer {token}"
            with closing(connection):
                connection.request(method, path, data, headers)
                # who ends the connection after its answer leaves it to the answer to close
                with connection.getresponse() as response:
                    text = response.read(self._largest + 1)
        except (OSError, http.client.HTTPException) as error:
            raise TemporaryFailure(
                f"the API server does not answer: {method} {path.partition('?')[0]}",
                details=[f"{where}: {error!r}"],
                resolution="look whether the node reaches the API server; this is tried again",
            ) from error
        if absent_ok and _says_absent(response.status, text):
            return None
        if len(text) > self._largest:
            raise Unavailable(
                f"the API server's answer is larger than {self._largest} bytes",
                details=[f"{method} {path.partition('?')[0]}"],
            )
        if response.status >= 300:
            raise _refusal(f"{method} {path.partition('?')[0]}", response.status, text)
        return _object(path, text)


def _object(path: str, text: bytes) -> JsonObject:
    """An object of the API, which says its kind."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _misled(path, f"it is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise _misled(path, "it is no JSON object of the API")
    return found


def _says_absent(status: int, text: bytes) -> bool:
    """Whether the server itself says that something is not there: a proxy that is lost answers 404, too."""
    if status != http.client.NOT_FOUND:
        return False
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and (found.get("kind"), found.get("reason")) == ("Status", "NotFound")


def _misled(path: str, why: str) -> TemporaryFailure:
    return TemporaryFailure(
        f"the answer to {path.partition('?')[0]} is not the API server's",
        details=[why],
        resolution="look for a proxy between this node and the API server; this is tried again",
    )


def _refusal(asked: str, status: int, text: bytes) -> Unavailable | NotPermitted:
    details = [f"HTTP status {status}", text[:2000].decode(errors="replace")]
    if status == http.client.NOT_FOUND and not _says_absent(status, text):
        return _misled(asked, "; ".join(details))
    if status in (401, 403):
        return NotPermitted(
            f"the API server does not let us {asked}",
            details=details,
            resolution="give this right to the service account of the pod (docs/validate.md names them)",
        )
    if status in LATER:
        return TemporaryFailure(f"the API server cannot do this now: {asked}", details=details)
    return Unavailable(f"the API server refuses {asked}", details=details)
