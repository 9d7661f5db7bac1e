"""The loop that observes, plans, applies and observes again, with steps that know nothing of drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, InUse
from driverforge_host.ports import Host
from driverforge_host.reconcile.loop import (
    Declined,
    Stopped,
    gate_for,
    no_gate,
    reconcile,
    undo,
)
from driverforge_host.reconcile.outcomes import Blocked, Done, Outcome, Skipped, Step, Steps
from support.fakes.fakehost import fake_node
from support.heard import heard


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return fake_node(tmp_path).host


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Puts a name into `place`; `kept` says whether it stays there, `fails` what is raised in its stead."""

    name: str
    place: list[str] = field(compare=False)
    kept: bool = True
    fails: Exception | None = field(default=None, compare=False)

    def describe(self) -> str:
        return f"write {self.name}"

    def apply(self, host: Host) -> None:
        if self.fails:
            raise self.fails
        if self.kept:
            self.place.append(self.name)

    def problem(self, host: Host) -> str:
        return "" if self.name in self.place else f"{self.name} is not there"


def looks(*outcomes: Outcome) -> Callable[[tuple[Step, ...]], Outcome]:
    """One outcome after another; the last for ever."""
    rest: Iterator[Outcome] = iter(outcomes[:-1])
    return lambda _: next(rest, outcomes[-1])


def test_each_stretch_is_applied_before_the_next_look(host: Host) -> None:
    place: list[str] = []
    seen: list[tuple[str, ...]] = []

    def look(_: tuple[Step, ...]) -> Outcome:
        seen.append(tuple(place))
        if len(place) < 3:
            return Steps(steps=(Write(name=str(len(place)), place=place),), reason=f"{len(place)} there")
        return Done(left=("it",))

    with heard() as said:
        done = reconcile(host, look)
    assert said == []
    assert seen == [(), ("0",), ("0", "1"), ("0", "1", "2")]
    assert done == Done(left=("it",), reasons=("0 there", "1 there", "2 there"))


def test_a_reason_that_stays_is_told_once_and_no_reason_not_at_all(host: Host) -> None:
    place: list[str] = []
    stretches = [
        Steps(steps=(Write(name=str(number), place=place),), reason=reason)
        for number, reason in enumerate(("why", "", "why", "more"))
    ]
    assert reconcile(host, looks(*stretches, Done())).reasons == ("why", "more")


def test_a_step_without_effect_ends_the_run_with_what_was_seen(host: Host) -> None:
    place: list[str] = []
    steps = (Write(name="a", place=place, kept=False), Write(name="b", place=place))
    with pytest.raises(CommandFailed, match="done, but without effect: write a") as caught:
        reconcile(host, looks(Steps(steps=steps)))
    assert caught.value.details == ("a is not there",)
    assert place == [], "the step after it must not run"


def test_a_step_that_loses_its_effect_twice_ends_the_run(host: Host) -> None:
    place: list[str] = []
    with pytest.raises(CommandFailed, match="needed again after it was done: write a"):
        reconcile(host, looks(Steps(steps=(Write(name="a", place=place),))))
    assert place == ["a", "a"]


def test_a_step_whose_effect_somebody_took_back_is_done_again(host: Host) -> None:
    place: list[str] = []

    def look(_: tuple[Step, ...]) -> Outcome:
        if len(place) == 1:
            place.clear()
            place.append("somebody else's")
        done = len(place) == 2
        return Done() if done else Steps(steps=(Write(name="a", place=place),))

    with heard() as said:
        assert reconcile(host, look) == Done()
    assert place == ["somebody else's", "a"]
    assert said == ["done again: something else took its effect back"]


def test_a_skipped_step_is_a_warning_and_told_to_the_next_look(host: Host) -> None:
    place: list[str] = []
    optional = Write(name="a", place=place, fails=Skipped("a is left out"))
    told: list[tuple[Step, ...]] = []

    def look(skipped: tuple[Step, ...]) -> Outcome:
        told.append(skipped)
        return Done(warnings=("late",)) if skipped else Steps(steps=(optional, Write(name="b", place=place)))

    assert reconcile(host, look).warnings == ("a is left out", "late")
    assert told == [(), (optional,)]
    assert place == ["b"]


def test_what_blocks_and_what_a_step_raises_come_through(host: Host) -> None:
    blocked, broken = InUse("held"), CommandFailed("broken")
    with pytest.raises(InUse, match="held"):
        reconcile(host, looks(Blocked(error=blocked)))
    with pytest.raises(CommandFailed, match="broken"):
        reconcile(host, looks(Steps(steps=(Write(name="a", place=[], fails=broken),))))


def test_a_node_that_does_not_settle_ends_the_run(host: Host) -> None:
    place: list[str] = []

    def look(_: tuple[Step, ...]) -> Outcome:
        return Steps(steps=(Write(name=str(len(place)), place=place),))

    with pytest.raises(CommandFailed, match="not as wanted after 12 rounds") as caught:
        reconcile(host, look)
    assert len(caught.value.details) == 12 == len(place)


def test_the_gate_is_asked_with_the_number_over_all_stretches(host: Host) -> None:
    place: list[str] = []
    asked: list[tuple[int, str]] = []

    def ask(number: int, step: Step) -> bool:
        asked.append((number, step.describe()))
        return step.describe() != "write c"

    first, second = (
        Steps(steps=tuple(Write(name=name, place=place) for name in names)) for names in ("ab", "cd")
    )
    with pytest.raises(Declined, match="write c"):
        reconcile(host, looks(first, second), gate=gate_for(host, ask=ask))
    assert asked == [(1, "write a"), (2, "write b"), (3, "write c")]
    assert place == ["a", "b"]


def test_a_stop_signal_ends_the_run_between_two_steps(tmp_path: Path) -> None:
    node = fake_node(tmp_path)
    place: list[str] = []
    node.clock.stop_at = 0
    with pytest.raises(Stopped, match="before: write a"):
        reconcile(node.host, looks(Steps(steps=(Write(name="a", place=place),))), gate=gate_for(node.host))
    assert place == []


def test_a_stop_signal_that_comes_while_a_person_is_asked_ends_the_run(tmp_path: Path) -> None:
    node = fake_node(tmp_path)
    place: list[str] = []

    def ask(number: int, step: Step) -> bool:
        node.clock.stop_at = 0
        return True

    gate = gate_for(node.host, ask=ask)
    with pytest.raises(Stopped, match="before: write a"):
        reconcile(node.host, looks(Steps(steps=(Write(name="a", place=place),))), gate=gate)
    assert place == []


def test_the_gate_asks_for_a_stop_signal_and_does_not_wait_for_one(tmp_path: Path) -> None:
    node = fake_node(tmp_path)
    began = node.clock.monotonic()
    gate_for(node.host)(1, Write(name="a", place=[]))
    assert node.clock.monotonic() == began


def test_an_undo_goes_on_after_a_step_that_fails(host: Host) -> None:
    place: list[str] = []
    steps = (
        Write(name="a", place=place, fails=CommandFailed("no room")),
        Write(name="b", place=place),
    )
    assert undo(host, steps) == ("could not write a: no room",)
    assert place == ["b"]
    no_gate(1, steps[0])
