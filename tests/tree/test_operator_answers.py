"""Whatever answers in the API server's place, nobody takes it for its word that something is not there.

Each status, verb and kind, over a connection of the loopback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from driverforge_core.errors import DriverforgeError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_operator.app.control import WATCHED
from driverforge_operator.app.follow import Told, follow
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.ports import Conflict, Expired, Gone, Kind, Misled, Overloaded, Right
from driverforge_operator.state.kinds import CLUSTER_POLICY, LEASE, NODE, OURS
from support.fakes.apianswers import (
    PAGE,
    Answers,
    Reply,
    answering,
    discovery,
    nonsense,
    page_of,
    refusal,
    resources_of,
    told,
)

KINDS: tuple[Kind[Any], ...] = (*(kind for kind, _ in WATCHED), NODE)
DAEMONSETS = next(one for one in OURS if one.name == "DaemonSet")
MONITORS = next(one for one in OURS if one.name == "ServiceMonitor")
REFUSED = (301, 302, 307, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 431)
CODES = (*REFUSED, 500, 501, 502, 503, 504, 511)
WHOLE = {"metadata": {"name": "a"}}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Answers, ApiServer]]:
    with answering() as found:
        yield found


def listed(api: ApiServer, kind: Kind[Any]) -> list[Any]:
    return [item for page in api.pages(kind) for item in page.items]


def watched(api: ApiServer, kind: Kind[Any]) -> list[Any]:
    return list(api.watch(kind, "1"))


def document(kind: Kind[Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.name, **WHOLE}


VERBS: dict[str, Callable[[ApiServer, Kind[Any]], object]] = {
    "list": listed,
    "watch": watched,
    "get": lambda api, kind: api.get(kind, "a"),
    "create": lambda api, kind: api.create(kind, document(kind)),
    "apply": lambda api, kind: api.apply(kind, document(kind)),
    "patch": lambda api, kind: api.patch(kind, "a", WHOLE),
    "status": lambda api, kind: api.patch(kind, "a", {"status": {}}, part="status"),
    "delete": lambda api, kind: api.delete(kind, "a"),
}
PAGES = {
    "a proxy's page": lambda code: replace(PAGE, status=code),
    "a Status without a reason": refusal,
    "nothing": lambda code: Reply(status=code),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_status_is_taken_for_an_object_that_is_not_there(
    server: tuple[Answers, ApiServer], verb: str
) -> None:
    answers, api = server
    # reading is where absence would count; who writes says the same of every kind
    kinds = KINDS if verb in ("list", "watch") else (NODE, CLUSTER_POLICY, DAEMONSETS, LEASE)
    for code, (what, page), kind in product(CODES, PAGES.items(), kinds):
        answers.say(page(code))
        with pytest.raises(DriverforgeError) as refused:
            VERBS[verb](api, kind)
        assert not isinstance(refused.value, Gone), (code, what, kind)


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_that_is_none_says_nothing(server: tuple[Answers, ApiServer], verb: str) -> None:
    answers, api = server
    for kind in (NODE, CLUSTER_POLICY, DAEMONSETS, LEASE):
        for what, reply in nonsense(kind).items():
            if (verb, what) in HARMLESS:
                continue
            answers.say(reply)
            with pytest.raises(TemporaryFailure):
                VERBS[verb](api, kind)


HARMLESS = {
    ("watch", "nothing"),  # it ends, as watches do
    ("delete", "a Status"),
    ("delete", "one object"),
}


def test_what_the_server_itself_says_keeps_its_meaning(server: tuple[Answers, ApiServer]) -> None:
    answers, api = server
    meanings: list[tuple[Reply, type[Exception]]] = [
        (refusal(404, "NotFound"), Gone),
        (refusal(409, "Conflict"), Conflict),
        (refusal(410, "Expired"), Expired),
        (refusal(403, "Forbidden"), NotPermitted),
        (refusal(422, "Invalid"), Unavailable),
        (refusal(429, "TooManyRequests"), Overloaded),
        (refusal(500, "InternalError"), TemporaryFailure),
    ]
    for reply, meaning in meanings:
        answers.say(reply)
        with pytest.raises(meaning) as refused:
            api.get(NODE, "a")
        assert type(refused.value) is meaning
    answers.say(refusal(404, "NotFound"))
    api.delete(DAEMONSETS, "a")


@pytest.mark.parametrize("kind", [one for one in KINDS if one.built_in], ids=lambda kind: kind.plural)
def test_what_kubernetes_always_has_is_never_unserved(
    server: tuple[Answers, ApiServer], kind: Kind[Any]
) -> None:
    answers, api = server
    has = discovery()
    answers.decide = lambda method, path: has(method, path) if path.startswith("/apis") else PAGE
    for reply in (PAGE, refusal(404, "NotFound")):
        answers.say(reply)
        with pytest.raises(TemporaryFailure):
            listed(api, kind)


OTHERS = [one for one in KINDS if not one.built_in]


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.plural)
def test_a_kind_is_not_served_where_discovery_says_so(
    server: tuple[Answers, ApiServer], kind: Kind[Any]
) -> None:
    answers, api = server
    answers.decide = discovery()
    assert [(page.items, page.served) for page in api.pages(kind)] == [((), False)]
    # its group has another kind
    answers.decide = discovery(replace(kind, plural="others"))
    assert [page.served for page in api.pages(kind)] == [False]
    answers.decide = discovery(kind)
    with pytest.raises(Misled):
        listed(api, kind)


DISCOVERIES = {
    "a page": PAGE,
    "another page": Reply(body=b"<html></html>"),
    "no groups": told({"kind": "APIGroupList", "groups": []}),
    "null": told({"kind": "APIGroupList", "groups": None}),
    "another kind": told({"kind": "APIVersions", "groups": []}),
    "resources": resources_of("monitoring.coreos.com/v1", ["others"]),
    "a refusal": refusal(403, "Forbidden"),
    "nothing": Reply(),
}


@pytest.mark.parametrize("said", DISCOVERIES)
def test_a_discovery_that_says_nothing_leaves_a_kind_served(
    server: tuple[Answers, ApiServer], said: str
) -> None:
    answers, api = server
    answers.decide = lambda method, path: DISCOVERIES[said] if path == "/apis" else PAGE
    with pytest.raises((TemporaryFailure, NotPermitted)):
        listed(api, MONITORS)


@pytest.mark.parametrize("said", ["no resources", "another version", "a page"])
def test_a_group_that_says_nothing_leaves_its_kinds_served(
    server: tuple[Answers, ApiServer], said: str
) -> None:
    answers, api = server
    groups = discovery(MONITORS)
    empty = told({"kind": "APIResourceList", "groupVersion": MONITORS.api_version, "resources": []})
    other = resources_of("other.example/v1", ["others"])
    found = {"no resources": empty, "another version": other, "a page": PAGE}[said]
    answers.decide = lambda method, path: groups(method, path) if path == "/apis" else found
    with pytest.raises(TemporaryFailure):
        listed(api, MONITORS)


def test_a_page_that_comes_again_ends_the_list(server: tuple[Answers, ApiServer]) -> None:
    answers, api = server
    answers.say(told(page_of(NODE, WHOLE, more="token")))
    with pytest.raises(Misled):
        listed(api, NODE)


def test_a_list_whose_second_page_is_missing_is_not_whole(server: tuple[Answers, ApiServer]) -> None:
    """What was told of it counts, and nothing is taken for gone; it is listed again until it is whole."""
    answers, api = server
    first = told(page_of(NODE, {"metadata": {"name": "a"}}, more="token"))
    second = told(page_of(NODE, {"metadata": {"name": "b"}}))
    stop, heard = threading.Event(), list[Told]()

    def tell(one: Told) -> None:
        heard.append(one)
        if one.whole is not None:
            stop.set()

    answers.say(first, PAGE, first, second)
    follow(api, NODE, "", tell, stop)
    assert [one.whole for one in heard if one.whole is not None] == [frozenset("ab")]
    assert [one.item.metadata.name for one in heard if one.item] == ["a", "a", "b"]


WATCHES = {
    "another kind": {"type": "DELETED", "object": {"kind": "Pod", "apiVersion": "v1"}},
    "no kind": {"type": "DELETED", "object": {}},
    "no such change": {"type": "GONE", "object": {"kind": "Node", "apiVersion": "v1"}},
    "no version": {"type": "DELETED", "object": {"kind": "Node", "apiVersion": "v1"}},
}


@pytest.mark.parametrize("said", WATCHES)
def test_a_change_of_something_else_deletes_nothing(server: tuple[Answers, ApiServer], said: str) -> None:
    answers, api = server
    change = WATCHES[said]
    metadata = {"name": "a", **({} if said == "no version" else {"resourceVersion": "8"})}
    answers.say(told({**change, "object": {**change["object"], "metadata": metadata}}))  # type: ignore[dict-item]
    with pytest.raises(Misled):
        watched(api, NODE)


def test_a_list_in_a_watchs_place_deletes_nothing(server: tuple[Answers, ApiServer]) -> None:
    answers, api = server
    answers.say(told(page_of(NODE)))
    with pytest.raises(Misled):
        watched(api, NODE)


def test_a_review_that_is_none_says_nothing_of_rights(server: tuple[Answers, ApiServer]) -> None:
    answers, api = server
    right = Right(verb="get", group="", plural="nodes")
    for reply in (told({}), told({**document(NODE), "status": {}}), told({"status": {"allowed": True}})):
        answers.say(reply)
        with pytest.raises(Misled):
            api.may(right)
    answers.say(told({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}))
    assert api.may(right)
