"""The ways out of `driverctl init` on a fake node: a no, a signal, an error, a job that comes meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from driverforge_core.errors import InUse, StorageFailed
from driverforge_driver.commands import init, load, unload
from driverforge_driver.driver.converge import converge
from driverforge_driver.state import paths
from driverforge_driver.state.daemons import PERSISTENCED
from driverforge_driver.state.facts import Goal
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host import probe
from driverforge_host.reconcile.loop import Declined
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import FakeNode, FakeProcess, fake_node
from support.samples.arguments import arguments


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path)


def nvidia(node: FakeNode) -> set[str]:
    return {name for name in node.kernel.loaded_modules if name.startswith("nvidia")}


def test_no_to_the_first_step_leaves_the_driver_that_is_loaded(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_signal_is_caught_before_the_first_file_is_written(node: FakeNode) -> None:
    seen: list[tuple[str, str]] = []
    node.clock.on_catch = lambda: seen.append((node.text(paths.LOCK), node.text(paths.STATUS)))
    node.clock.stop_at = node.clock.time + 20
    assert init.run(arguments(), node.host) == 0
    assert seen == [("", "")]


class Interrupted(StringIO):
    """A terminal with a person who says yes until a question names `word`, then Ctrl-C and Enter."""

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
    monkeypatch.setattr(
        sys, "stdin", Interrupted(node, lambda: capsys.readouterr().out, "load the module nvidia [Y/n]")
    )
    assert init.run(arguments(confirm=True), node.host) == 0
    assert "insert i2c_core" in node.kernel.calls
    assert "insert nvidia" not in node.kernel.calls


def served(node: FakeNode) -> list[str]:
    """The rounds in which the startup probe saw the driver ready. SIGTERM comes after some of them."""
    rounds: list[str] = []
    node.clock.stop_at = node.clock.time + 20
    node.clock.on_wait = lambda _: (
        rounds.append(node.text(paths.STATUS)) if node.text(paths.DAEMONS_STATUS) == "Ready\n" else None
    )
    return rounds


def job_that_comes_during_the_unloading(node: FakeNode) -> Callable[[], list[str]]:
    """A process opens the GPU after our look at /proc, when one module is gone already."""

    def open_devices() -> list[str]:
        if "remove nvidia_modeset" in node.kernel.calls and node.kernel.calls[-1].startswith("remove"):
            node.processes.add(FakeProcess(pid=812, command="python3", holds=("/dev/nvidia-uvm",)))
        return node.processes.open_devices()

    return open_devices


def test_a_job_that_comes_during_the_stop_keeps_the_driver_and_the_next_start_serves_it(
    node: FakeNode,
) -> None:
    node.kernel.references = job_that_comes_during_the_unloading(node)
    served(node)
    assert init.run(arguments(), node.host) == 0
    assert nvidia(node) == {"nvidia", "nvidia_uvm"}
    assert paths.ROOT not in node.places
    node.kernel.calls.clear()
    node.new_container()
    rounds = served(node)
    assert init.run(arguments(), node.host) == 0
    assert probe.field(rounds[-1], "phase") == "ready"
    assert [call for call in node.kernel.calls if call.startswith("insert nvidia")] == [
        "insert nvidia_modeset"
    ]


def test_a_job_that_comes_during_unload_is_refused_and_the_next_start_serves_it(node: FakeNode) -> None:
    converge(node.host, read_wanted(node.host, Goal.SERVE))
    node.kernel.references = job_that_comes_during_the_unloading(node)
    with pytest.raises(InUse):
        unload.run(arguments(), node.host)
    rounds = served(node)
    assert init.run(arguments(), node.host) == 0
    assert probe.field(rounds[-1], "phase") == "ready"


def test_an_error_while_it_serves_ends_in_a_stop(node: FakeNode) -> None:
    class Failing(FakeFiles):
        """A container whose disk fails once the driver is there."""

        def read_text(self, path: str) -> str:
            if path == PERSISTENCED.pid_file and node.text(paths.DAEMONS_STATUS) == "Ready\n":
                raise StorageFailed(f"failed reading {path}", details=["Input/output error (errno EIO)"])
            return super().read_text(path)

    node.commands.daemons["nvidia-persistenced"] = lambda: 1
    node.files = Failing(node.places, node.files.fuse)
    with pytest.raises(StorageFailed, match="failed reading"):
        init.run(arguments(), node.host)
    assert "insert nvidia_uvm" in node.kernel.calls
    assert nvidia(node) == set()
    assert not node.files.exists(paths.STATE)


def test_a_status_that_cannot_be_written_takes_no_driver_away(node: FakeNode) -> None:
    rounds = served(node)
    free = node.clock.time + 10
    look = node.clock.on_wait

    def fill(now: float) -> None:
        starts = probe.field(node.text(paths.STATUS), "phase") == "starting"
        node.files.fuse.refused = frozenset({paths.STATUS} if starts and now < free else ())
        look(now)

    node.clock.on_wait = fill
    assert init.run(arguments(), node.host) == 0
    phases = [probe.field(text, "phase") for text in rounds]
    assert phases[0] == "starting"
    assert phases[-1] == "ready"


def test_the_status_file_says_stopping_before_anything_goes(node: FakeNode) -> None:
    served(node)
    phases: list[str] = []

    def look() -> tuple[str, ...]:
        if any(call.startswith("remove") for call in node.kernel.calls):
            phases.append(probe.field(node.text(paths.STATUS), "phase"))
        return ()

    node.kernel.references = look
    assert init.run(arguments(), node.host) == 0
    assert phases[0] == "stopping"
    assert nvidia(node) == set()
    assert not node.files.exists(paths.STATE)


def test_a_status_file_that_cannot_be_written_keeps_no_stop_from_going_on(node: FakeNode) -> None:
    rounds = served(node)
    look = node.clock.on_wait

    def fill(now: float) -> None:
        look(now)
        if rounds and probe.field(rounds[-1], "phase") == "ready":
            node.files.fuse.refused = frozenset({paths.STATUS})

    node.clock.on_wait = fill
    assert init.run(arguments(), node.host) == 0
    assert nvidia(node) == set()
    assert not node.files.exists(paths.STATE)
