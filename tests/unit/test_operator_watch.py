"""What the API server writes into a watch, as the operator reads it."""

from __future__ import annotations

import json

import httpx2
import pytest

from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.state.kinds import NODE


def change(kind: str, version: str, **annotations: str) -> bytes:
    metadata = {"name": "gpu-0", "resourceVersion": version, "annotations": annotations}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("mark", ["\u0085", "\u2028", "ü"], ids=["NEL", "LS", "letter"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
def test_a_line_ends_where_the_server_ends_it(mark: str, pieces: int) -> None:
    """Go's encoder leaves U+0085 as it is, which is an end of a line for Python."""
    text = change("ADDED", "5", note=f"a{mark}b") + change("DELETED", "6", note=mark)

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=(text[at : at + pieces] for at in range(0, len(text), pieces)))

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://server") as http:
        told = list(ApiServer(http, "gpu-operator").watch(NODE, "4"))
    assert [(one.version, one.deleted) for one in told] == [("5", False), ("6", True)]
    assert [one.item.metadata.annotations["note"] for one in told if one.item] == [f"a{mark}b", mark]
