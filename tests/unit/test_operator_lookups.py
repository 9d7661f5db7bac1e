"""Registries are asked beside each other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from driverforge_operator.app.lookups import Lookups
from driverforge_operator.ports import Answer, Question
from support.process import until

REST = 0.01


@dataclass
class Slow:
    """Registries of which those called `slow` answer once they are `free`."""

    free: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)

    def ask(self, question: Question) -> Answer:
        self.asked.append(question.image)
        if question.image.startswith("slow"):
            self.free.wait()
        return Answer(found="yes")


@contextmanager
def asking(registries: Slow, *images: str) -> Iterator[Lookups]:
    lookups, stop = Lookups(registries, rest=REST), threading.Event()
    lookups.want([Question(image=image, arch="amd64") for image in images])
    thread = threading.Thread(target=lookups.run, args=(stop,))
    thread.start()
    try:
        yield lookups
    finally:
        stop.set()
        registries.free.set()
        thread.join()


def test_a_slow_registry_holds_up_its_own_images_alone() -> None:
    registries = Slow()
    slow = [f"slow.example/driver:{number}" for number in range(20)]
    found: set[str] = set()
    with asking(registries, *slow, "quick.example/driver:1") as lookups:

        def answered(count: int) -> bool:
            found.update(question.image for question, _ in lookups.answers())
            return len(found) == count

        until(lambda: answered(1), "the quick registry's answer")
        assert found == {"quick.example/driver:1"}
        # one at a time of each
        assert len([image for image in registries.asked if image.startswith("slow")]) == 1
        registries.free.set()
        until(lambda: answered(21), "the slow registry's answers")
    assert len(registries.asked) == 21


def test_many_registries_are_not_all_asked_at_once() -> None:
    registries = Slow()
    with asking(registries, *(f"slow-{number}.example/driver:1" for number in range(50))) as lookups:
        until(lambda: len(registries.asked) >= 8, "the first registries")
        assert lookups.answers() == []
        assert len(registries.asked) == 8
        registries.free.set()
        until(lambda: len(registries.asked) == 50, "all registries")


def again(lookups: Lookups, registries: Slow, times: int) -> None:
    """Run until registries were asked so often."""
    stop = threading.Event()
    thread = threading.Thread(target=lookups.run, args=(stop,))
    thread.start()
    try:
        until(lambda: len(registries.asked) >= times, f"question {times}")
    finally:
        stop.set()
        thread.join()
    if registries.free.is_set():
        settled()


def settled() -> None:
    """Until no registry is being asked."""
    until(lambda: not any(one.name.startswith("registry ") for one in threading.enumerate()), "all answers")


A, B = (
    Question(image="slow.example/driver:1", arch="amd64"),
    Question(image="b.example/driver:1", arch="amd64"),
)


def test_an_image_that_is_wanted_again_is_asked_for_again() -> None:
    """Whoever wanted it no more has forgotten the answer."""
    registries = Slow()
    registries.free.set()
    lookups = Lookups(registries, rest=REST)
    lookups.want({A})
    again(lookups, registries, 1)
    lookups.want({B})
    lookups.want({A})
    again(lookups, registries, 2)
    assert registries.asked == [A.image, A.image]


def test_an_answer_that_nobody_waits_for_is_none() -> None:
    registries = Slow()
    lookups = Lookups(registries, rest=REST)
    lookups.want({A})
    again(lookups, registries, 1)
    lookups.want({B})
    registries.free.set()
    settled()
    assert lookups.answers() == []
    lookups.want({A})
    again(lookups, registries, 2)
    assert registries.asked == [A.image, A.image]
    assert [question for question, _ in lookups.answers()] == [A]


class Changing(Slow):
    """Answers one after the other; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = answers
        self.free.set()

    def ask(self, question: Question) -> Answer:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(question.image)
        return answer


def test_an_answer_that_differs_from_the_last_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def unknown(reason: str) -> Answer:
        return Answer(found="unknown", reason=reason)

    answers = (
        Answer(found="no"),
        Answer(found="no"),
        unknown("401 Unauthorized: request 0f8fad5b-d9cb-469f-a165-708677289501"),
        unknown("401 Unauthorized: request 0f8fad5b-d9cb-469f-a165-708677289502"),
        unknown("503 Service Unavailable"),
        Answer(found="yes"),
    )
    registries = Changing(*answers)
    lookups = Lookups(registries, clock=lambda: time.monotonic() * 1000, rest=REST)
    lookups.want({A})
    with caplog.at_level(logging.INFO, logger="driverforge"):
        again(lookups, registries, len(answers))
    assert [one.getMessage() for one in caplog.records] == [
        f"{A.image}: no registry has it",
        f"{A.image}: {answers[2].reason}",
        f"{A.image}: 503 Service Unavailable",
        f"{A.image}: it is there",
    ]


def test_an_image_that_is_there_from_the_first_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    registries = Changing(Answer(found="yes"))
    lookups = Lookups(registries, rest=REST)
    lookups.want({A})
    with caplog.at_level(logging.INFO, logger="driverforge"):
        again(lookups, registries, 1)
    assert [one.found for _, one in lookups.answers()] == ["yes"]
    assert caplog.records == []
