"""What the API server writes into a watch, as the operator reads it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx2
import pytest

from driverforge_core.errors import TemporaryFailure
from driverforge_operator.app.follow import Told, follow
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.state.kinds import NODE
from support.fakes.apianswers import page_of


def change(kind: str, version: str, **annotations: str) -> bytes:
    metadata = {"name": "gpu-0", "resourceVersion": version, "annotations": annotations}
    changed = {"kind": "Node", "apiVersion": "v1", "metadata": metadata}
    return json.dumps({"type": kind, "object": changed}, ensure_ascii=False).encode() + b"\n"


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


BOOKMARKS = 60
"""Seconds between two bookmarks of the API server (k8s.io/apiserver, defaultBookmarkFrequency)."""


class Silent:
    """A server whose watches tell one change, and then nothing any more; it keeps what it was asked."""

    def __init__(self, *, watches: int, answers: bool = True) -> None:
        self.stop = threading.Event()
        self.asked: list[str] = []
        self.timeouts: list[float] = []
        self._watches = watches
        self._answers = answers

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        since = request.url.params.get("resourceVersion")
        self.asked.append(f"watch from {since}" if since else "list")
        if not since:
            return httpx2.Response(200, json=page_of(NODE, version="4"))
        self.timeouts.append(request.extensions["timeout"]["read"])
        if len(self.timeouts) == self._watches:
            self.stop.set()
        if not self._answers:
            raise httpx2.ReadTimeout("no answer", request=request)
        return httpx2.Response(200, content=self._tell(request, first=since == "4"))

    def _tell(self, request: httpx2.Request, *, first: bool) -> Iterator[bytes]:
        if first:
            yield change("ADDED", "5")
        yield b'{"type": "ADDED", "obj'
        raise httpx2.ReadTimeout("silent", request=request)


def test_a_watch_on_which_nothing_comes_goes_on_where_it_was_and_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Silent(watches=4)
    told: list[Told] = []
    with httpx2.Client(transport=httpx2.MockTransport(server), base_url="http://server") as http:
        follow(ApiServer(http, "gpu-operator"), NODE, "", told.append, server.stop)
    assert server.asked == ["list", "watch from 4", "watch from 5", "watch from 5", "watch from 5"]
    assert [one.item.metadata.name for one in told if one.item] == ["gpu-0"]
    assert not caplog.records
    # a bookmark that is a little late is waited for; a dead connection costs no five minutes
    assert all(BOOKMARKS * 1.25 < one <= BOOKMARKS * 2 for one in server.timeouts)


def test_a_watch_that_is_not_answered_is_a_failure() -> None:
    server = Silent(watches=1, answers=False)
    with (
        httpx2.Client(transport=httpx2.MockTransport(server), base_url="http://server") as http,
        pytest.raises(TemporaryFailure),
    ):
        list(ApiServer(http, "gpu-operator").watch(NODE, "4"))
