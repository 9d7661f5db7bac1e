"""What registries have told of images, one that refuses now and then included."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from driverforge_operator.app.passing import lasting
from driverforge_operator.plan.rejected import shortened
from driverforge_operator.ports import Answer, Question

_LASTS = 3
"""How often in a row a registry refuses until that is told: one that limits requests does now and then."""


class Images:
    """The answers that count; one thread uses it."""

    def __init__(self) -> None:
        self.answers: dict[Question, Answer] = {}
        self._refusals: dict[Question, list[str]] = {}  # the last ones in a row

    def put(self, question: Question, answer: Answer) -> bool:
        """Whether that is news. What a registry said stands while it only does not say, as with 429."""
        if answer.found == "unknown" and question in self.answers:
            answer = self._refused(question, answer.reason)
        else:
            self._refusals.pop(question, None)
        news = self.answers.get(question) != answer
        self.answers[question] = answer
        return news

    def keep_only(self, questions: Collection[Question]) -> None:
        """Forget the images that nobody asks for any more."""
        for question in [one for one in self.answers if one not in questions]:
            del self.answers[question]
            self._refusals.pop(question, None)

    def _refused(self, question: Question, reason: str) -> Answer:
        """What stands of an image where its registry refuses now; a refusal that lasts is told beside a no.

        Another one takes its place once that one lasts: no status is written for words that come and go.
        """
        known = self.answers[question]
        last = [*self._refusals.get(question, ()), lasting(reason)][-_LASTS:]
        self._refusals[question] = last
        if known.found != "no" or len(last) < _LASTS or lasting(known.since) == lasting(shortened(reason)):
            return known
        return replace(known, since=shortened(reason)) if not known.since or len({*last}) == 1 else known
