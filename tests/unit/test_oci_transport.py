"""Retries, proxies and Retry-After: decided without a network."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from itertools import repeat

import pytest

from driverforge_core.errors import TemporaryFailure
from driverforge_oci.http import bypasses_proxy, is_loopback, proxy_for
from driverforge_oci.transport import (
    Following,
    Request,
    Response,
    Retrying,
    jittered,
    retry_after,
    without_secrets,
)

NOW = 1_800_000_000.0


Answer = int | tuple[int, str] | TemporaryFailure


@dataclass(slots=True)
class Script:
    """A transport that answers from a list: a status, a status with Retry-After, or a failure."""

    answers: list[Answer]
    date: str = ""
    sent: int = 0
    waits: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def send(self, request: Request) -> Response:
        answer = self.answers[self.sent]
        self.sent += 1
        if isinstance(answer, TemporaryFailure):
            raise answer
        status, later = answer if isinstance(answer, tuple) else (answer, "")
        headers = {"retry-after": later, "date": self.date} if later else {}
        return Response(status=status, headers=headers, body=io.BytesIO())


def _transport(script: Script) -> Retrying:
    return Retrying(
        inner=script,
        wait=script.waits.append,
        now=lambda: NOW,
        told=lambda why, seconds: script.told.append(f"{why}; again in {seconds:g} s"),
        jitter=lambda pause: pause,
        attempts=4,
    )


def _ask(script: Script, method: str = "GET") -> int:
    transport = _transport(script)
    return transport.send(Request(method=method, url="https://registry.site/v2/")).status


BROKEN = TemporaryFailure("no answer")


@pytest.mark.parametrize(
    ("answers", "status", "waits"),
    [
        ([200], 200, []),
        ([404], 404, []),
        ([401], 401, []),
        ([501], 501, []),
        ([503, 200], 200, [0.5]),
        ([BROKEN, BROKEN, 200], 200, [0.5, 1.0]),
        ([429, 502, 504, 200], 200, [0.5, 1.0, 2.0]),
        ([500, 500, 500, 500], 500, [0.5, 1.0, 2.0]),
        ([408, 425, 200], 200, [0.5, 1.0]),
        ([(429, "7"), 200], 200, [7.5]),
        ([(429, "0"), 200], 200, [0.5]),
        ([(503, "Fri, 15 Jan 2027 08:00:10 GMT"), 200], 200, [10.5]),
        ([(429, "3600"), 200], 429, []),
    ],
)
def test_what_is_asked_again_and_after_how_long(
    answers: list[Answer], status: int, waits: list[float]
) -> None:
    script = Script(answers)
    assert _ask(script) == status
    assert script.waits == waits


@pytest.mark.parametrize("year", [2026, 2027, 2028])
def test_a_date_to_come_back_at_is_by_the_servers_own_clock(year: int) -> None:
    script = Script([(429, f"1 Mar {year} 10:00:10 GMT"), 200], date=f"1 Mar {year} 10:00:00 GMT")
    assert _ask(script) == 200
    assert script.waits == [10.5]


def test_the_last_failure_is_raised() -> None:
    script = Script([BROKEN] * 4)
    with pytest.raises(TemporaryFailure, match="no answer"):
        _ask(script)
    assert script.sent == 4


def test_a_host_that_never_answered_is_not_asked_again() -> None:
    script = Script([BROKEN] * 4 + [200])
    transport = _transport(script)
    for _ in range(3):
        with pytest.raises(TemporaryFailure, match="no answer"):
            transport.send(Request(method="GET", url="https://registry.site/v2/"))
    assert script.sent == 4
    assert transport.send(Request(method="GET", url="https://other.site/v2/")).status == 200


def test_a_host_that_answers_others_meanwhile_is_not_silent() -> None:
    """A registry may take minutes to store a large blob, and nobody hears of it until it has."""
    script = Script([BROKEN, 200, BROKEN, 200, BROKEN, 200, BROKEN, 200])
    transport = _transport(script)
    question = Request(method="HEAD", url="https://registry.site/v2/")
    patient = replace(transport, wait=lambda _seconds: transport.send(question))
    with pytest.raises(TemporaryFailure):
        patient.send(Request(method="PUT", url="https://registry.site/v2/"))
    assert transport.send(question).status == 200
    assert script.sent == 8


class Clock:
    """Goes on by what each request takes, in seconds."""

    def __init__(self, script: Script, *takes: float) -> None:
        self._script, self._takes, self.now = script, list(takes), 0.0

    def send(self, request: Request) -> Response:
        self.now += self._takes.pop(0)
        return self._script.send(request)


def test_whoever_only_asks_waits_for_a_silent_host_once() -> None:
    script = Script([BROKEN, 200])
    clock = Clock(script, 30.0)
    asking = replace(_transport(script), inner=clock, now=lambda: clock.now, silence=10.0)
    for _ in range(3):
        with pytest.raises(TemporaryFailure, match="no answer"):
            asking.send(Request(method="HEAD", url="https://registry.site/v2/"))
    assert (script.sent, script.waits) == (1, [])


def test_a_refused_connection_and_one_slow_answer_of_many_are_no_silence() -> None:
    script = Script([BROKEN, 200, BROKEN, 200, 200])
    clock = Clock(script, 0.1, 0.1, 30.0, 0.1, 0.1)
    asking = replace(_transport(script), inner=clock, now=lambda: clock.now, silence=10.0)
    question = Request(method="HEAD", url="https://registry.site/v2/")
    assert asking.send(question).status == 200
    other = iter([question])

    class Meanwhile:
        def send(self, request: Request) -> Response:
            try:
                return clock.send(request)
            finally:
                for each in other:
                    assert asking.send(each).status == 200

    assert replace(asking, inner=Meanwhile()).send(question).status == 200


def test_a_host_that_ever_answered_gets_all_attempts() -> None:
    script = Script([200, BROKEN, 200])
    clock = Clock(script, 0.1, 30.0, 0.1)
    asking = replace(_transport(script), inner=clock, now=lambda: clock.now, silence=10.0)
    question = Request(method="HEAD", url="https://registry.site/v2/")
    assert [asking.send(question).status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("answered", [503, 200])
def test_a_host_that_answered_once_is_asked_again(answered: int) -> None:
    """It is busy, or breaks off; that is no host that is not there."""
    script = Script([BROKEN, answered, BROKEN, BROKEN, 200])
    transport = _transport(script)
    taken = iter([TemporaryFailure("broke off")] if answered == 200 else [])

    def take(response: Response) -> int:
        for failure in taken:
            raise failure
        return response.status

    request = Request(method="GET", url="https://registry.site/v2/")
    with pytest.raises(TemporaryFailure, match="no answer"):
        transport.receive(lambda: request, take)
    assert transport.receive(lambda: request, take) == 200


@dataclass(frozen=True, slots=True)
class Redirected:
    """A transport that has followed a redirect."""

    inner: Script

    def send(self, request: Request) -> Response:
        return replace(self.inner.send(request), url="https://cdn.site/x?sig=secret")


def test_the_host_that_a_redirect_led_to_is_the_one_that_is_busy() -> None:
    script = Script([503, 200])
    transport = replace(_transport(script), inner=Redirected(script))
    transport.send(Request(method="GET", url="https://mirror.site/x"))
    assert script.told == ["cdn.site answers 503; again in 0.5 s"]


def test_a_pause_is_told_with_its_reason() -> None:
    script = Script([BROKEN, (429, "7"), 200])
    assert _ask(script) == 200
    assert script.told == ["no answer; again in 0.5 s", "registry.site answers 429; again in 8 s"]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_an_upload_is_begun_and_brought_on_once_unless_the_registry_is_busy(method: str) -> None:
    assert _ask(Script([429, 202]), method) == 202
    assert _ask(Script([503, 202]), method) == 503
    script = Script([BROKEN, 202])
    with pytest.raises(TemporaryFailure):
        _ask(script, method)
    assert script.sent == 1


def test_an_answer_that_was_none_is_asked_for_again() -> None:
    """What takes it may find that it broke off."""
    script, taken = Script([200, BROKEN, 200]), [TemporaryFailure("broke off"), None]

    def take(response: Response) -> int:
        if failure := taken.pop(0):
            raise failure
        return response.status

    requests = iter("abc")
    found = _transport(script).receive(
        lambda: Request(method="GET", url=f"https://registry.site/{next(requests)}"), take
    )
    assert (found, script.waits) == (200, [0.5, 1.0])
    assert script.told == ["broke off; again in 0.5 s", "no answer; again in 1 s"]
    assert list(requests) == []


def test_the_last_answer_that_was_none_is_its_takers_failure() -> None:
    def take(_: Response) -> None:
        raise TemporaryFailure("broke off")

    script = Script([200] * 4)
    with pytest.raises(TemporaryFailure, match="broke off"):
        _transport(script).receive(lambda: Request(method="GET", url="https://registry.site/"), take)
    assert (script.sent, _transport(script).silent) == (4, {})


def test_a_pause_has_a_longest() -> None:
    script = Script([503] * 12)
    transport = replace(_transport(script), attempts=12, longest_pause=4.0)
    assert transport.send(Request(method="GET", url="https://registry.site/v2/")).status == 503
    assert script.waits == [0.5, 1.0, 2.0, *repeat(4.0, 8)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_host_that_wants_a_long_rest_is_left_alone_until_then(method: str) -> None:
    """All others of a run would ask it in vain, and some registries count that."""
    script, now = Script([(429, "600"), 200, (503, "600"), 200]), [NOW]
    transport = replace(_transport(script), now=lambda: now[0])
    request = Request(method=method, url="https://registry.site/v2/")
    assert transport.send(request).status == 429
    now[0] += 590
    with pytest.raises(TemporaryFailure, match="wants to be asked again in 10 s"):
        transport.send(request)
    assert script.sent == 1
    now[0] += 10
    # what is broken is not what was asked for too often
    assert [transport.send(request).status for _ in range(3)] == [200, 503, 200]
    assert script.waits == []


def test_a_host_that_answered_after_all_is_asked_later_too() -> None:
    script = Script([BROKEN, 200, 200])
    transport = _transport(script)
    for _ in range(2):
        assert transport.send(Request(method="GET", url="https://registry.site/v2/")).status == 200
    broken = Script([BROKEN, 200])
    transport = _transport(broken)
    with pytest.raises(TemporaryFailure):
        transport.send(Request(method="POST", url="https://registry.site/v2/"))
    assert transport.send(Request(method="GET", url="https://registry.site/v2/")).status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_host_that_is_busy_for_minutes_is_asked_once_for_each_request(method: str) -> None:
    """A plan of a thousand cells would wait for it a thousand times."""
    script, now = Script([(429, "60")] * 9 + [200, 429, 200]), [NOW]

    def wait(seconds: float) -> None:
        script.waits.append(seconds)
        now[0] += seconds

    transport = replace(_transport(script), wait=wait, now=lambda: now[0], attempts=5)
    request = Request(method=method, url="https://registry.site/v2/")
    assert [transport.send(request).status for _ in range(5)] == [429] * 5
    assert (script.sent, script.waits) == (9, [60.5, 61.0, 62.0, 64.0])
    # a good answer makes up for all of it
    assert [transport.send(request).status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("first", [BROKEN, 200])
def test_a_host_that_breaks_off_for_minutes_is_asked_once_for_each_request(first: Answer) -> None:
    script, now = Script([first, 200, 200, 503]), [NOW]

    def take(_: Response) -> None:
        now[0] += 130
        raise TemporaryFailure("too slow")

    transport = replace(_transport(script), now=lambda: now[0], attempts=3)
    for _ in range(2):
        with pytest.raises(TemporaryFailure, match="too slow"):
            transport.receive(lambda: Request(method="GET", url="https://registry.site/"), take)
    assert (script.sent, len(script.waits)) == (4, 2)
    assert transport.silent == {}


def test_what_was_made_of_a_busy_hosts_last_answer_is_not_made_again() -> None:
    """That answer asked for a longer pause than anybody waits."""

    def take(response: Response) -> None:
        raise TemporaryFailure(f"busy: {response.status}")

    script = Script([(503, "3600"), 200])
    with pytest.raises(TemporaryFailure, match="busy: 503"):
        _transport(script).receive(lambda: Request(method="GET", url="https://registry.site/"), take)
    assert script.waits == []


@dataclass(slots=True)
class Scripted:
    """A transport that gives the answers of a list; their bodies show whether they were closed."""

    answers: list[Response]
    asked: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> Response:
        self.asked.append(request)
        return self.answers[len(self.asked) - 1]


def moved(location: str, status: int = 302) -> Response:
    return Response(status=status, headers={"location": location} if location else {}, body=io.BytesIO())


def test_an_answer_that_does_not_count_is_closed() -> None:
    """It would keep its connection, and its place among the few that a host gets."""
    redirect, busy, last = moved("/b"), moved("", 503), moved("", 200)
    inner = Scripted([redirect, busy, last])
    transport = Retrying(inner=Following(inner), wait=lambda _: None, now=lambda: NOW)
    assert transport.send(Request(method="GET", url="https://mirror.site/a")).body is last.body
    assert [answer.body.closed for answer in inner.answers] == [True, True, False]  # type: ignore[attr-defined]


class Breaking(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise BROKEN


def test_an_answer_is_closed_however_its_reading_ends() -> None:
    body = Breaking()
    with pytest.raises(TemporaryFailure):
        Response(status=200, headers={}, body=body).read(10)
    assert body.closed
    assert Response(status=200, headers={}, body=io.BytesIO(b"x" * 20)).read(10) == b"x" * 10


@pytest.mark.parametrize(
    ("method", "answer"),
    [("POST", moved("/b", 307)), ("PUT", moved("/b", 301)), ("GET", moved("")), ("GET", moved("/b", 201))],
)
def test_what_is_no_redirect_to_follow_is_the_answer(method: str, answer: Response) -> None:
    inner = Scripted([answer])
    found = Following(inner).send(Request(method=method, url="https://mirror.site/a"))
    assert (found.status, found.url, len(inner.asked)) == (answer.status, "https://mirror.site/a", 1)


@pytest.mark.parametrize(
    ("location", "url", "login"),
    [
        ("/b", "https://me:own@mirror.site/b", True),
        ("https://mirror.site:443/b", "https://me:own@mirror.site:443/b", True),
        ("https://you:other@mirror.site/b", "https://you:other@mirror.site/b", True),
        ("https://mirror.site:8443/b", "https://mirror.site:8443/b", False),
        ("https://cdn.site/b", "https://cdn.site/b", False),
    ],
)
def test_which_login_a_redirect_takes_along(location: str, url: str, login: bool) -> None:
    inner = Scripted([moved(location), moved("", 200)])
    headers = {"Authorization": "Basic abc", "Accept": "x"}
    Following(inner).send(Request(method="GET", url="https://me:own@mirror.site/a", headers=headers))
    wanted = headers if login else {"Accept": "x"}
    assert (inner.asked[1].url, inner.asked[1].headers) == (url, wanted)


def test_a_login_stays_with_its_scheme() -> None:
    """Also on one port."""
    inner = Scripted([moved("https://mirror.site:80/b"), moved("", 200)])
    request = Request(method="GET", url="http://mirror.site:80/a", headers={"Authorization": "Basic abc"})
    Following(inner).send(request)
    assert inner.asked[1].headers == {}


def test_a_login_in_an_address_is_not_told() -> None:
    script = Script([503, 200])
    _transport(script).send(Request(method="GET", url="https://user:secret@registry.site/"))
    assert script.told == ["registry.site answers 503; again in 0.5 s"]


def test_pauses_differ_from_client_to_client() -> None:
    pauses = {jittered(8.0) for _ in range(100)}
    assert len(pauses) > 90
    assert all(4.0 <= pause <= 12.0 for pause in pauses)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://mirror.site/debian", "http://mirror.site/debian"),
        ("http://user:secret@mirror.site/debian/x", "http://user:***@mirror.site/debian/x"),
        ("http://secret@mirror.site/x", "http://***@mirror.site/x"),
        ("http://user:sec@ret@mirror.site/x", "http://user:***@mirror.site/x"),
        ("http://user:se/cret@mirror.site/x", "http://user:***@mirror.site/x"),
        ("http://user:se?cret@mirror.site/x", "http://user:***@mirror.site/x"),
        ("http://user:secret@[::1/x", "http://user:***@[::1/x"),
        ("http://[fd00::1]:8080/a@b", "http://[fd00::1]:8080/a@b"),
        ("https://cdn.site/x?sig=secret", "https://cdn.site/x?***"),
        ("file:///srv/mirror/a@b", "file:///srv/mirror/a@b"),
        ("http://mirror:abc/debian", "http://mirror:abc/debian"),
    ],
)
def test_an_address_for_people_has_no_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({}, "http://registry.site/", ""),
        ({"http_proxy": "p:1"}, "http://registry.site/", "http://p:1"),
        ({"http_proxy": "p:1"}, "https://registry.site/", ""),
        ({"HTTPS_PROXY": "https://p:1"}, "https://registry.site/", "https://p:1"),
        ({"ALL_PROXY": "p:1", "http_proxy": "q:2"}, "https://registry.site/", "http://p:1"),
        ({"ALL_PROXY": "p:1", "http_proxy": "q:2"}, "http://registry.site/", "http://q:2"),
        ({"http_proxy": "p:1", "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3:5000/", ""),
        ({"http_proxy": "p:1"}, "http://localhost:5000/", ""),
    ],
)
def test_the_proxy_for_an_address(environ: dict[str, str], url: str, proxy: str) -> None:
    assert proxy_for(url, environ) == proxy


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", 0),
        ("soon", 0),
        ("-5", 0),
        ("12", 12),
        ("²", 0),
        ("9" * 5000, 365 * 86400),
        ("Fri, 15 Jan 2027 07:59:00 GMT", 0),
        ("Mon, 01 Jan 0001 00:00:00 -0000", 0),
    ],
)
def test_retry_after(value: str, seconds: float) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("registry.site", "", False),
        ("registry.site", "registry.site", True),
        ("registry.site", ".site", True),
        ("registry.site", "*.site", True),
        ("registry.site", "gistry.site", False),
        ("registry.site", "registry.site:5000", True),
        ("REGISTRY.site", "other, Registry.Site", True),
        ("registry.site", "*", True),
        ("10.1.2.3", "10.0.0.0/8,.svc", True),
        ("11.1.2.3", "10.0.0.0/8 .svc", False),
        ("fd00::1", "fd00::/8", True),
        ("localhost", "", True),
        ("127.8.8.8", "", True),
        ("::1", "", True),
    ],
)
def test_hosts_that_go_past_the_proxy(host: str, no_proxy: str, direct: bool) -> None:
    assert bypasses_proxy(host, no_proxy) is direct


def test_loopback() -> None:
    hosts = ("localhost", "127.0.0.1", "::1", "128.0.0.1", "localhost.site", "")
    assert [host for host in hosts if is_loopback(host)] == ["localhost", "127.0.0.1", "::1"]
