"""Asking registries, beside the loop: one that is slow holds nothing up but its own images."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

from driverforge_operator.app.follow import Pause
from driverforge_operator.app.passing import lasting
from driverforge_operator.plan.whole import asked_for
from driverforge_operator.ports import Answer, Question, Registries
from driverforge_operator.state.observed import State

LOGGER = logging.getLogger("driverforge")
_AT_LEAST = 10.0
"""Seconds before an image that was not there is asked for again; a minute more, in the end."""
_AT_ONCE = 8
"""Registries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What was answered last, and when to ask again."""

    answer: Answer
    again: float
    pause: Pause


class Lookups:
    """Which images are wanted, and what registries said of them. `run` is a thread's own.

    It looks for what is due after `rest` seconds, whatever `clock` says meanwhile.
    """

    def __init__(
        self, registries: Registries, *, clock: Callable[[], float] = time.monotonic, rest: float = 1
    ) -> None:
        self._registries = registries
        self._clock = clock
        self._rest = rest
        self._wanted: frozenset[Question] = frozenset()
        self._said: dict[Question, _Said] = {}
        self._asked: set[str] = set()  # registries
        self._answers: list[tuple[Question, Answer]] = []
        self._changed = threading.Condition()

    def want(self, questions: Collection[Question]) -> None:
        """Ask for these, and for others no more."""
        with self._changed:
            if self._wanted != questions:
                self._wanted = frozenset(questions)
                # nobody keeps these answers: who wants one again later is told again
                self._said = {one: said for one, said in self._said.items() if one in self._wanted}
                self._changed.notify()

    def answers(self) -> list[tuple[Question, Answer]]:
        """What was said since the last call."""
        with self._changed:
            found, self._answers = self._answers, []
        return found

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with self._changed:
                due = self._due_by_registry()
                self._asked |= due.keys()
                if not due:
                    self._changed.wait(timeout=self._rest)
            for registry, questions in due.items():
                asking = partial(self._ask_one_registry, registry, questions, stop)
                threading.Thread(target=asking, name=f"registry {registry}", daemon=True).start()

    def _due_by_registry(self) -> dict[str, list[Question]]:
        """What to ask now, of registries that are not being asked."""
        found: dict[str, list[Question]] = defaultdict(list)
        for one in self._wanted:
            registry = one.image.partition("/")[0]
            free = registry in found or len(self._asked) + len(found) < _AT_ONCE
            if free and registry not in self._asked and self._due(one):
                found[registry].append(one)
        return found

    def _ask_one_registry(self, registry: str, questions: Iterable[Question], stop: threading.Event) -> None:
        try:
            for question in questions:
                if not stop.is_set():
                    self._ask(question)
        finally:
            with self._changed:
                self._asked.discard(registry)
                self._changed.notify()

    def _due(self, question: Question) -> bool:
        return question not in self._said or self._said[question].again <= self._clock()

    def _ask(self, question: Question) -> None:
        answer = self._registries.ask(question)
        with self._changed:
            if question not in self._wanted:
                return
            before = self._said.get(question)
            pause = before.pause if before else Pause()
            # what is there stays there
            wait = float("inf") if answer.found == "yes" else pause.seconds(_AT_LEAST)
            self._said[question] = _Said(answer=answer, again=self._clock() + wait, pause=pause)
            self._answers.append((question, answer))
        _log(question, answer, before.answer if before else None)


def _log(question: Question, answer: Answer, before: Answer | None) -> None:
    """Tell what is not there, and each other answer afterwards."""
    if before and (before.found, lasting(before.reason)) == (answer.found, lasting(answer.reason)):
        return
    if answer.found != "yes":
        LOGGER.warning("%s: %s", question.image, answer.reason or "no registry has it")
    elif before:
        LOGGER.info("%s: it is there", question.image)


def looked_up(state: State, registries: Registries) -> State:
    """The same cluster with an answer to each question; an answer may raise another one."""
    answers: dict[Question, Answer] = {}
    found = replace(state, around=replace(state.around, images=answers))
    while unasked := asked_for(found) - answers.keys():
        answers |= {question: registries.ask(question) for question in unasked}
    return found
