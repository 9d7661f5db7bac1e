"""A write that failed waits for itself alone."""

from __future__ import annotations

from driverforge_operator.app.follow import FIRST_PAUSE, LONGEST_PAUSE
from driverforge_operator.app.retries import LASTS, Retries
from driverforge_operator.plan.actions import PatchNode


def label(name: str) -> PatchNode:
    return PatchNode(node=name, labels={"a": "b"}, annotations={})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def failing(clock: Clock, retries: Retries, name: str, times: int) -> float:
    """Fail so often, each time it is due; returns how long it waits in the end."""
    for _ in range(times):
        retries.fail(label(name))
        found = retries.seconds()
        clock.now += found
        assert retries.due() == [label(name)]
    return found


def test_one_that_always_fails_makes_no_other_wait() -> None:
    clock = Clock()
    retries = Retries(clock)
    assert failing(clock, retries, "a", 12) >= LONGEST_PAUSE / 2
    retries.fail(label("a"))
    retries.fail(label("b"))
    assert label("b").ref in retries
    assert retries.seconds() <= FIRST_PAUSE * 1.1
    clock.now += retries.seconds()
    assert retries.due() == [label("b")]
    assert retries.actions == [label("a")]
    assert LONGEST_PAUSE / 4 < retries.seconds() <= LONGEST_PAUSE * 1.1


def test_after_a_success_and_where_nobody_asks_for_it_any_more_a_failure_is_a_first_one() -> None:
    clock = Clock()
    retries = Retries(clock)
    failing(clock, retries, "a", 12)
    retries.succeed(label("a"))
    assert failing(clock, retries, "a", 12) >= LONGEST_PAUSE / 2
    retries.keep([label("a")])
    assert failing(clock, retries, "a", 1) >= LONGEST_PAUSE / 2
    retries.keep([label("b")])
    assert failing(clock, retries, "a", 1) <= FIRST_PAUSE * 1.1


def test_a_failure_lasts_from_a_while_after_the_first_to_a_success() -> None:
    clock = Clock()
    retries = Retries(clock)
    assert not retries.lasts(label("a"))
    retries.fail(label("a"))
    clock.now += LASTS - 1
    retries.fail(label("a"))
    assert not retries.lasts(label("a"))
    clock.now += 1
    assert retries.lasts(label("a"))
    assert not retries.lasts(label("b"))
    retries.succeed(label("a"))
    assert not retries.lasts(label("a"))
    retries.fail(label("a"))
    assert not retries.lasts(label("a"))


def test_a_failure_that_all_share_begins_the_while_anew() -> None:
    clock = Clock()
    retries = Retries(clock)
    for own in (True, False, False):
        retries.fail(label("a"), own=own)
        clock.now += LASTS
    assert not retries.lasts(label("a"))
    retries.fail(label("a"))
    assert not retries.lasts(label("a"))
    clock.now += LASTS
    assert retries.lasts(label("a"))


def test_of_what_nobody_asks_for_any_more_no_failure_lasts() -> None:
    clock = Clock()
    retries = Retries(clock)
    failing(clock, retries, "a", 1)
    clock.now += LASTS
    retries.keep([label("a")])
    assert retries.lasts(label("a"))
    retries.keep([])
    assert not retries.lasts(label("a"))


def test_what_waits_keeps_its_pause() -> None:
    clock = Clock()
    retries = Retries(clock)
    failing(clock, retries, "a", 12)
    retries.fail(label("a"))
    # while it waits it is decided on as before, and left out
    retries.keep([])
    clock.now += retries.seconds()
    retries.due()
    assert failing(clock, retries, "a", 1) >= LONGEST_PAUSE / 2


def test_nothing_is_due_before_the_server_wants_it() -> None:
    clock = Clock()
    retries = Retries(clock)
    retries.fail(label("a"), not_before=clock.now + 30)
    clock.now += 29
    assert not retries.due()
    clock.now += 1
    assert retries.due() == [label("a")]
    assert not retries


def test_thousands_that_fail_together_are_tried_again_in_a_few_rounds() -> None:
    clock = Clock()
    retries = Retries(clock)
    names = [f"n{number}" for number in range(1000)]
    for _ in range(8):
        for name in names:
            retries.fail(label(name))
        rounds = 0
        while retries:
            clock.now += retries.seconds()
            assert retries.due()
            rounds += 1
    assert rounds <= 20
