"""The ways out of `driverctl init` on a fake node: a person's no, a signal, an error while it serves, a job that comes meanwhile."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from driverforge_node.commands import init, load
from driverforge_node.driver import paths
from driverforge_node.driver.loop import Declined
from support.fakehost import FakeNode, fake_node


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path)


def arguments(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"plan": False, "confirm": False, "no_build": False, "jobs": 0, **given})


def nvidia(node: FakeNode) -> set[str]:
    return {name for name in node.kernel.loaded_modules if name.startswith("nvidia")}


def test_no_to_the_first_step_leaves_the_driver_that_is_loaded(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load.run(arguments(), node.host) == 0
    before, digest = nvidia(node), node.text(paths.DIGEST)
    monkeypatch.setattr(sys, "stdin", StringIO("n\n"))
    with pytest.raises(Declined, match="not confirmed") as caught:
        init.run(arguments(confirm=True), node.host)
    assert caught.value.exit_code == 75
    assert caught.value.details == ("left on this node: nothing that was not there before",)
    assert nvidia(node) == before
    assert node.text(paths.DIGEST) == digest


def test_no_half_way_takes_back_what_the_start_did(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("\n" * 10 + "n\n"))
    with pytest.raises(Declined) as caught:
        init.run(arguments(confirm=True), node.host)
    assert caught.value.details == ("left on this node: nothing that was not there before",)
    assert any(call.startswith("insert nvidia") for call in node.kernel.calls)
    assert nvidia(node) == set()


class Interrupted(StringIO):
    """A terminal at which a person says yes until a question names `word`, and then presses Ctrl-C and Enter."""

    def __init__(self, node: FakeNode, asked: Callable[[], str], word: str) -> None:
        super().__init__()
        self.node, self.asked, self.word = node, asked, word

    def readline(self, _size: int | None = -1, /) -> str:
        if self.word in self.asked():
            self.node.clock.stop_at = self.node.clock.time
        return "\n"


def test_a_signal_while_the_question_is_open_is_no_yes(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Interrupted(node, lambda: capsys.readouterr().out, "load the module nvidia [Y/n]"))
    assert init.run(arguments(confirm=True), node.host) == 0
    assert "insert i2c_core" in node.kernel.calls
    assert "insert nvidia" not in node.kernel.calls
