"""Registries are asked beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from driverforge_operator.app.lookups import Lookups
from driverforge_operator.ports import Answer, Question
from support.process import until


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
    lookups, stop = Lookups(registries), threading.Event()
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
