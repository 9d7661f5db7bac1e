"""The runtime that driverctl changed is down, and docker runs beside it: nobody takes the one for the other.

On a fake node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable, Unsupported, UsageError
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.find.cri import RuntimeStatus
from driverforge_toolkit.runtime.model import RuntimeKind, Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, runtime_status
from driverforge_toolkit.runtime.transaction.activation import (
    activation_text,
    check_activation,
    status_problems,
)
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import process, with_docker


class Revived(FakeContainerd):
    """One that is started is up."""

    def restart(self) -> None:
        super().restart()
        self.down = False


@dataclass
class Bench:
    """A containerd that driverctl changed and that is down since, and a docker."""

    node: FakeNode
    daemon: FakeContainerd
    system: RuntimeSystem

    def asks(self, **more: str) -> RuntimeSystem:
        return replace(self.system, request=replace(self.system.request, **more))  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    daemon = Revived(node=node)
    system = RuntimeSystem(
        host=node.host,
        sockets=daemon,
        request=RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0),
    )
    change.carry_out(plans.apply_plan(system), system)
    daemon.down = True
    return Bench(node=node, daemon=daemon, system=replace(system, sockets=with_docker(node, daemon)))


@pytest.mark.parametrize("config", ["", CONFIG, f"{CONFIG}.tmpl"])
def test_revert_takes_the_one_that_was_changed(bench: Bench, config: str) -> None:
    system = bench.asks(config=config)
    assert selection.select(system.host, system.sockets, system.request).kind == "docker"
    plan = plans.revert_plan(system)
    assert plan is not None
    assert (plan.daemon.kind, plan.daemon.pid) == ("containerd", 0)
    change.carry_out(plan, system)
    node = bench.node.host.node
    assert (node.read_bytes(CONFIG), node.exists(DROP_IN), bench.daemon.down) == (ROOT, False, False)
    assert journal.entries(system.host) == ()
    assert plans.revert_plan(system) is None


def test_apply_does_not_take_docker_in_its_place(bench: Bench) -> None:
    with pytest.raises(
        Unavailable, match=f"the containerd at {SOCKET}.* is not running; driverctl does not use docker"
    ) as caught:
        plans.apply_plan(bench.system)
    assert "driverctl runtime revert" in caught.value.resolution
    assert "--socket /run/docker.sock" in caught.value.resolution
    assert plans.revert_plan(bench.asks(runtime="docker")) is None


def test_status_names_it(bench: Bench) -> None:
    bench.node.commands.programs["nsenter"] = versions_only
    found = runtime_status.runtime_status(bench.system)
    assert (found["runtime"]["kind"], found["down"]) == ("docker", [f"containerd at {SOCKET}"])
    assert (
        f"driverctl has changed containerd at {SOCKET}, which is not running"
        in runtime_status.status_text(found)
    )


def versions_only(words: Sequence[str]) -> tuple[int, str, str]:
    return 0, "Docker version 28.5.2, build x\n", ""


def test_one_that_answers_no_pods_is_taken_before_a_docker_that_nobody_changed(bench: Bench) -> None:
    """Its CRI plugin may not load for our change."""
    bench.daemon.down = False
    system = replace(bench.system, sockets=with_docker(bench.node, bench.daemon, cri=False))
    chosen = selection.select(system.host, system.sockets, system.request)
    assert chosen.kind == "containerd"
    assert chosen.evidence[0].startswith("chosen: none serves pods, and driverctl has changed it (")


def test_of_two_that_are_down_the_user_says_which(bench: Bench) -> None:
    (entry,) = journal.entries(bench.system.host)
    journal.write_entry(
        bench.system.host,
        replace(
            entry, socket="/run/k3s/containerd/containerd.sock", config="/var/lib/rancher/k3s/config.toml"
        ),
    )
    with pytest.raises(
        UsageError, match="several container runtimes that driverctl has changed are not running"
    ) as caught:
        plans.revert_plan(bench.system)
    assert len(caught.value.details) == 2
    plan = plans.revert_plan(bench.asks(socket=SOCKET))
    assert plan is not None
    assert plan.daemon.config == CONFIG


def test_of_two_that_were_changed_the_kubelets_is_meant_while_it_is_down(bench: Bench) -> None:
    (entry,) = journal.entries(bench.system.host)
    other = replace(entry, socket="/run/other.sock", config="/etc/other.toml")
    journal.write_entry(bench.system.host, other)
    process(bench.node, 70, "kubelet", "/usr/bin/kubelet", f"--container-runtime-endpoint=unix://{SOCKET}")
    plan = plans.revert_plan(bench.system)
    assert plan is not None
    assert plan.daemon.config == CONFIG


@pytest.mark.parametrize("mode", ["", "signal"])
def test_what_does_not_run_gets_no_signal(bench: Bench, mode: str) -> None:
    """kill -HUP 0 would end our own process group."""
    system = bench.asks(restart_mode=mode, restart_command="")
    plan = plans.revert_plan(system)
    assert plan is not None
    calls = len(bench.node.commands.calls)
    with pytest.raises(
        Unsupported, match="is not running, and driverctl does not know how to start it"
    ) as caught:
        change.carry_out(plan, system)
    assert "--restart-command" in caught.value.resolution
    assert activation_text(plan, system) == "needs --restart-command"
    assert len(bench.node.commands.calls) == calls
    unit = replace(plan, daemon=replace(plan.daemon, supervisor=Supervisor(kind="k3s", unit="k3s.service")))
    check_activation(unit, system)


@pytest.mark.parametrize(("kind", "text"), [("containerd", "which ends it"), ("crio", "needs --restart")])
def test_a_hang_up_restarts_what_it_ends(bench: Bench, kind: RuntimeKind, text: str) -> None:
    """CRI-O goes on."""
    system = bench.asks(restart_mode="signal", restart_command="")
    plan = plans.revert_plan(system)
    assert plan is not None
    plan = replace(plan, daemon=replace(plan.daemon, kind=kind, pid=5), activation="restart")
    assert text in activation_text(plan, system)
    if kind == "containerd":
        check_activation(plan, system)
        return
    with pytest.raises(Unsupported, match="this crio is not run by systemd"):
        check_activation(plan, system)


def test_a_handler_of_others_that_is_gone_afterwards_is_no_success(bench: Bench) -> None:
    plan = plans.revert_plan(bench.system)
    assert plan is not None
    status = RuntimeStatus(pid=5, name="docker", version="28.5.2", handlers={"runc": "runc"})
    plan = replace(plan, activation="none", absent=(), others=("runc", "foreign"))
    assert status_problems(plan, status) == ["it lost the handler foreign"]


def test_what_nobody_can_restart_is_not_changed(bench: Bench) -> None:
    back = plans.revert_plan(bench.system)
    assert back is not None
    change.carry_out(back, bench.system)
    system = bench.asks(restart_command="")
    plan = plans.apply_plan(system)
    with pytest.raises(Unsupported, match="this containerd is not run by systemd") as caught:
        change.carry_out(plan, system)
    assert "--restart-command" in caught.value.resolution
    assert any(line.startswith("started by: nobody that we know") for line in caught.value.details)
    assert not bench.node.host.node.exists(DROP_IN)
