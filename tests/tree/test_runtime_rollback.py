"""A daemon of systemd that does not come back with the change: the files come back first, whatever else goes wrong meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_node.host.commands import SystemCommands
from driverforge_node.host.services import SystemdServices
from driverforge_node.runtime import change, configure, journal, restore
from driverforge_node.runtime import request as asked
from driverforge_node.runtime.change import System
from support.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakehost import FakeNode, FakeServices, fake_node


class Systemd(FakeServices):
    """It restarts the containerd, which does not come up with a drop-in of ours; the journal does not answer."""

    def __init__(self, daemon: FakeContainerd) -> None:
        super().__init__()
        self.daemon = daemon
        self.asked: list[bool] = []  # whether our drop-in was there when somebody asked for the log

    def restart(self, unit: str) -> None:
        super().restart(unit)
        self.daemon.restart()
        self.daemon.down = self.daemon.node.host.node.exists(DROP_IN)

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        self.asked.append(self.daemon.node.host.node.exists(DROP_IN))
        raise TemporaryFailure("journalctl did not finish in 30 s")


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeContainerd
    systemd: Systemd
    system: System


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    daemon = FakeContainerd(node=node)
    node.services = systemd = Systemd(daemon)
    request = asked.Request(wanted=asked.wanted(), restart_mode="systemd", patience=1.0)
    return Bench(node=node, daemon=daemon, systemd=systemd, system=System(host=node.host, sockets=daemon, request=request))


def test_the_old_files_are_back_before_anybody_asks_for_the_log(bench: Bench) -> None:
    with pytest.raises(CommandFailed, match="the old configuration is in force again") as caught:
        change.carry_out(configure.apply_plan(bench.system), bench.system)
    assert bench.systemd.asked == [False]
    assert "journalctl did not finish in 30 s" in caught.value.details
    files = bench.node.host.node
    assert (files.read_bytes(CONFIG), files.exists(DROP_IN), bench.daemon.down) == (ROOT, False, False)
    assert bench.systemd.restarted == ["containerd.service"] * 2
    assert (journal.entries(bench.node.host), files.list_dir(restore.FOLDER)) == ((), ())


def test_a_log_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    commands = SystemCommands({"PATH": str(tmp_path)})
    with pytest.raises(Unavailable):
        commands.run(["journalctl"])
    assert SystemdServices(commands).last_log_lines("containerd.service", 2) == ()
