"""Somebody else edits a file of the runtime while driverctl changes it: that edit is never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends.containerd_config import default_of
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, restore
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node

THEIRS = ROOT + b"\n# written by the site's configuration management\n"


@dataclass
class Broken(FakeContainerd):
    """Somebody edits a file while it starts with our handlers, and it does not come up then."""

    edit: Callable[[], None] | None = None

    def restart(self) -> None:
        super().restart()
        self.down = self.edit is not None
        if self.edit is not None:
            self.edit()
            self.edit = None


@dataclass
class Bench:
    node: FakeNode
    daemon: Broken

    @property
    def system(self) -> RuntimeSystem:
        return RuntimeSystem(
            host=self.node.host,
            sockets=self.daemon,
            request=RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0),
        )

    def write(self, path: str, data: bytes) -> None:
        self.node.host.node.write_atomic(path, data)

    def read(self, path: str) -> bytes | None:
        node = self.node.host.node
        return node.read_bytes(path) if node.exists(path) else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=Broken(node=node))


def test_an_edit_between_plan_and_write_stays_and_nothing_is_changed(bench: Bench) -> None:
    plan = plans.apply_plan(bench.system)
    bench.write(CONFIG, THEIRS)
    with pytest.raises(CommandFailed, match="the change was not made") as caught:
        change.carry_out(plan, bench.system)
    assert f"{CONFIG} was changed by somebody else just now" in caught.value.details
    assert "again" in caught.value.resolution
    assert (bench.read(CONFIG), bench.read(DROP_IN), bench.daemon.starts) == (THEIRS, None, 1)
    assert journal.entries(bench.node.host) == ()
    assert not bench.node.host.node.list_dir(restore.FOLDER)
    change.carry_out(plans.apply_plan(bench.system), bench.system)
    assert b"configuration management" in (bench.read(CONFIG) or b"")


def test_an_edit_while_the_daemon_does_not_come_back_stays_and_a_revert_takes_only_ours(bench: Bench) -> None:
    edited = b'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\noom_score = 7\n'
    bench.daemon.edit = lambda: bench.write(CONFIG, edited)
    with pytest.raises(CommandFailed, match="did not accept the change") as caught:
        change.carry_out(plans.apply_plan(bench.system), bench.system)
    assert f"{CONFIG} was changed by somebody else meanwhile; it stays as it is" in caught.value.details
    assert "driverctl runtime revert" in caught.value.resolution
    assert (bench.read(CONFIG), bench.read(DROP_IN)) == (edited, None)
    plan = plans.revert_plan(bench.system)
    assert plan is not None
    change.carry_out(plan, bench.system)
    assert bench.read(CONFIG) == b"version = 2\noom_score = 7\n"
    assert journal.entries(bench.node.host) == ()


@pytest.mark.parametrize("theirs", [None, "runc"])
def test_an_apply_that_says_nothing_of_the_default_leaves_it(bench: Bench, theirs: str | None) -> None:
    system = bench.system
    asks = replace(system, request=replace(system.request, wanted=wanted_handlers(default=True)))
    change.carry_out(plans.apply_plan(asks), asks)
    if theirs is not None:
        bench.write(
            DROP_IN,
            (bench.read(DROP_IN) or b"").replace(
                b'default_runtime_name = "nvidia"', f'default_runtime_name = "{theirs}"'.encode()
            ),
        )
        bench.daemon.restart()
    starts = bench.daemon.starts
    change.carry_out(plans.apply_plan(system), system)
    assert default_of(bench.daemon.reads(CONFIG)) == (theirs or "nvidia")
    assert bench.daemon.starts == starts
    gives_up = replace(system, request=replace(system.request, wanted=wanted_handlers(default=False)))
    change.carry_out(plans.apply_plan(gives_up), gives_up)
    assert default_of(bench.daemon.running) == "runc"
