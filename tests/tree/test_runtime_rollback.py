"""A daemon of systemd that does not come back with the change: the files come back first, whatever else goes
wrong meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_host.adapters.services import SystemdServices
from driverforge_host.adapters.subprocesses import SystemCommands
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.model import Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, restore
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode, FakeServices, fake_node

UPTIME = 100  # of the fake node


class Systemd(FakeServices):
    """It restarts the containerd, which does not come up with a drop-in of ours; the journal does not
    answer.
    """

    def __init__(self, daemon: FakeContainerd) -> None:
        super().__init__()
        self.daemon = daemon
        self.asked: list[bool] = []  # whether our drop-in was there when somebody asked for the log
        self.timeouts: list[float] = []
        self.left: list[
            int
            # seconds until the node's own restore takes driverctl for hung, by the script that it carries out
        ] = []

    def restart(self, unit: str, *, timeout: float) -> None:
        super().restart(unit, timeout=timeout)
        self.timeouts.append(timeout)
        node = self.daemon.node.host.node
        for name in node.list_dir(restore.FOLDER):
            deadline = (
                node.read_text(f"{restore.FOLDER}/{name}/{restore.SCRIPT}")
                .partition("-lt ")[2]
                .partition(" ")[0]
            )
            self.left.append(int(deadline) - UPTIME)
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
    system: RuntimeSystem


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    daemon = FakeContainerd(node=node)
    node.services = systemd = Systemd(daemon)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_mode="systemd", patience=1.0)
    return Bench(
        node=node,
        daemon=daemon,
        systemd=systemd,
        system=RuntimeSystem(host=node.host, sockets=daemon, request=request),
    )


def test_the_old_files_are_back_before_anybody_asks_for_the_log(bench: Bench) -> None:
    with pytest.raises(CommandFailed, match="the old configuration is in force again") as caught:
        change.carry_out(plans.apply_plan(bench.system), bench.system)
    assert bench.systemd.asked == [False]
    assert "journalctl did not finish in 30 s" in caught.value.details
    files = bench.node.host.node
    assert (files.read_bytes(CONFIG), files.exists(DROP_IN), bench.daemon.down) == (ROOT, False, False)
    assert bench.systemd.restarted == ["containerd.service"] * 2
    assert (journal.entries(bench.node.host), files.list_dir(restore.FOLDER)) == ((), ())


@pytest.mark.parametrize(
    ("kind", "asked_for", "restart", "answer"),
    [("systemd", 0.0, 180, 60), ("rke2", 0.0, 300, 300), ("k3s", 600.0, 600, 600)],
)
def test_a_unit_that_starts_slowly_has_its_time_and_so_has_the_rollback(
    bench: Bench, kind: str, asked_for: float, restart: int, answer: int
) -> None:
    """k3s and rke2 tell systemd at the end of their start that they are up; the node does not take us for
    hung before all of it is over.
    """
    system = replace(bench.system, request=replace(bench.system.request, patience=asked_for))
    plan = plans.apply_plan(system)
    plan = replace(plan, daemon=replace(plan.daemon, supervisor=Supervisor(kind=kind, unit="x.service")))
    with pytest.raises(CommandFailed, match="the old configuration is in force again"):
        change.carry_out(plan, system)
    assert bench.systemd.timeouts == [restart, restart]
    assert min(bench.systemd.left) > 2 * (restart + answer)


def test_a_log_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    commands = SystemCommands({"PATH": str(tmp_path)})
    with pytest.raises(Unavailable):
        commands.run(["journalctl"])
    assert SystemdServices(commands).last_log_lines("containerd.service", 2) == ()
