"""Handlers of CRI-O that stay at a revert for the pods that use them, on a fake node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unsupported
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import plans
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from support.fakes.crioconfig import CrioConfig
from support.fakes.fakecrio import DROP_IN, FakeCrio
from support.fakes.fakehost import FakeNode, fake_node

TOOLKIT = "/t"
ENDS = ("", ".cdi", ".legacy")
OPTIONS = {"monitor_cgroup": "pod"}


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeCrio

    @property
    def system(self) -> RuntimeSystem:
        wanted = replace(wanted_handlers(folder=TOOLKIT, default=True), options=OPTIONS)
        request = RuntimeRequest(wanted=wanted, restart_command="restart", patience=1.0)
        return RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)

    def change(self, action: RuntimeAction) -> None:
        change_runtime(self.system, action, lambda plan: None)

    def revert_plan(self) -> ChangePlan:
        plan = plans.revert_plan(self.system)
        assert plan is not None
        return plan


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    node.host.node.make_dirs(TOOLKIT)
    for end in ENDS:
        node.host.node.write_atomic(f"{TOOLKIT}/nvidia-container-runtime{end}", b"#!/bin/sh\n")
    return Bench(node=node, daemon=FakeCrio(node=node))


@pytest.fixture
def used(bench: Bench) -> Bench:
    """Our change is in force, and a pod uses one of the handlers."""
    bench.change(RuntimeAction.APPLY)
    bench.daemon.runs_pod("gpu", "nvidia")
    return bench


def test_an_apply_without_the_handlers_programs_is_refused(bench: Bench) -> None:
    """CRI-O would leave the handler out, and its own `crio config` accepts it."""
    bench.node.host.node.remove(f"{TOOLKIT}/nvidia-container-runtime.cdi")
    with pytest.raises(Unsupported, match="CRI-O leaves out a handler whose program is not there") as caught:
        plans.apply_plan(bench.system)
    assert caught.value.details == (f"nvidia-cdi: {TOOLKIT}/nvidia-container-runtime.cdi is not on the node",)


def test_a_revert_keeps_the_handler_as_it_was_asked_for_and_names_those_that_go(used: Bench) -> None:
    plan = used.revert_plan()
    assert plan.present == (("nvidia", f"{TOOLKIT}/nvidia-container-runtime"),)
    assert plan.absent == ("nvidia-cdi", "nvidia-legacy")
    assert plan.keep
    used.change(RuntimeAction.REVERT)
    assert set(used.daemon.running.runtimes) == {"crun", "nvidia"}
    assert used.daemon.running.runtimes["nvidia"]["monitor_cgroup"] == "pod"
    assert used.daemon.running.default == "crun"


def test_what_is_asked_of_the_default_is_over_with_a_revert(used: Bench) -> None:
    wanted = used.revert_plan().entry.wanted
    assert wanted is not None
    assert (wanted.default, wanted.release_default) == ("", False)


def test_a_change_of_an_earlier_release_keeps_its_handler_too(used: Bench) -> None:
    """Its journal does not say what was asked for."""
    [entry] = journal.entries(used.node.host)
    journal.write_entry(used.node.host, replace(entry, wanted=None))
    plan = used.revert_plan()
    assert plan.present == (("nvidia", f"{TOOLKIT}/nvidia-container-runtime"),)
    assert plan.entry.wanted is not None
    assert plan.entry.wanted.options == {}


def sees_another_setting(config: CrioConfig) -> None:
    if set(config.runtimes) == {"crun", "nvidia"}:
        config.tables.setdefault("crio.image", {})["pause_image"] = "other:1"


def test_a_revert_by_which_another_setting_would_change_is_refused(used: Bench) -> None:
    used.daemon.makes = sees_another_setting
    with pytest.raises(Unsupported, match="crio would see other settings change too") as caught:
        plans.revert_plan(used.system)
    assert caught.value.details == ("crio.image.pause_image: (not set) -> 'other:1'",)


def test_without_the_pod_all_of_them_go(bench: Bench) -> None:
    bench.change(RuntimeAction.APPLY)
    bench.change(RuntimeAction.REVERT)
    assert set(bench.daemon.running.runtimes) == {"crun"}
    assert not bench.node.host.node.exists(DROP_IN)
