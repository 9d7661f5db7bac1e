"""A container runtime that ends the toolkit's own pod when it comes back: the next pods find everything in
place (gpu-operator#456).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_toolkit.app import toolkit_run
from driverforge_toolkit.app.toolkit_run import SETTLING, UNINSTALL, parts_of
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.toolkit.settings import settings_of
from support.fakes.driverroot import bare_node
from support.fakes.fakecontainerd import FakeContainerd
from support.fakes.fakehost import FakeNode
from support.samples.toolkitsource import write_source

FLAGS = {"revert_on": "stop", "restart_command": "restart"}
LIFE = 600.0  # seconds of a pod that nobody ends


class Jealous(FakeContainerd):
    """A containerd whose start ends the toolkit's pod, `after` seconds later."""

    after: float = 0.0

    def restart(self) -> None:
        super().restart()
        if self.starts > 1:
            self.node.clock.stop_at = self.node.clock.time + self.after


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = bare_node(tmp_path)
    write_source(Path(made.files.real("/artifacts/deb")))
    return made


def pod(node: FakeNode, daemon: FakeContainerd) -> float:
    """The life of one pod; its seconds."""
    settings, begin = settings_of(FLAGS, {}), node.clock.time
    node.clock.stop_at = begin + LIFE
    toolkit_run.run_toolkit(node.host, settings, parts_of(node.host, daemon, settings))
    return node.clock.time - begin


@pytest.mark.parametrize("after", [0.0, SETTLING - 1])
def test_the_pods_end_by_our_own_restart_is_no_stop_and_the_next_one_stays(
    node: FakeNode, after: float
) -> None:
    daemon = Jealous(node=node)
    daemon.after = after
    assert pod(node, daemon) < LIFE
    assert daemon.starts == 2
    (entry,) = journal.entries(node.host)
    assert entry.state == "in force"

    starts: list[int] = []
    node.clock.on_wait = lambda now: starts.append(daemon.starts)
    assert pod(node, daemon) >= LIFE
    assert starts[-2] == 2, "until its own stop"
    assert daemon.starts == 3
    assert journal.entries(node.host) == (), "a stop that nobody's restart brought is one"


def test_an_uninstall_that_was_asked_for_is_carried_out_all_the_same(node: FakeNode) -> None:
    daemon = Jealous(node=node)
    node.files.make_dirs("/run/nvidia/toolkit")
    node.files.write_atomic(f"/run/nvidia/toolkit/{UNINSTALL}", b"")
    pod(node, daemon)
    assert journal.entries(node.host) == ()
    assert not node.files.exists(f"/run/nvidia/toolkit/{UNINSTALL}")
