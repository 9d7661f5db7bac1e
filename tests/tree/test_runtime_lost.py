"""What driverctl says of a changed runtime that is down, or that lost what it got: a fake node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.model import NodePath, RuntimeKind
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import plans, runtime_status
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node

CRIO_SOCKET = NodePath("/run/crio/crio.sock")


@dataclass
class Bench:
    """A containerd that driverctl has changed, and nothing beside it."""

    node: FakeNode
    daemon: FakeContainerd
    system: RuntimeSystem

    def status(self) -> str:
        return runtime_status.status_text(runtime_status.runtime_status(self.system))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    daemon = FakeContainerd(node=node)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart")
    system = RuntimeSystem(host=node.host, sockets=daemon, request=request)
    change_runtime(system, RuntimeAction.APPLY, lambda plan: None)
    return Bench(node=node, daemon=daemon, system=system)


@pytest.mark.parametrize("look", [plans.apply_plan, plans.strip_plan, runtime_status.runtime_status])
@pytest.mark.parametrize(("kind", "socket"), [("containerd", SOCKET), ("crio", CRIO_SOCKET)])
@pytest.mark.parametrize("named", [True, False])
def test_of_one_that_is_down_our_change_and_the_way_back_are_told(
    bench: Bench, look: Callable[[RuntimeSystem], object], kind: RuntimeKind, socket: NodePath, *, named: bool
) -> None:
    (entry,) = journal.entries(bench.system.host)
    journal.remove_entry(bench.system.host, entry.kind, entry.config)
    journal.write_entry(bench.system.host, replace(entry, kind=kind, socket=socket))
    bench.daemon.down = True
    system = bench.system
    if named:
        system = replace(system, request=replace(system.request, socket=socket))
    with pytest.raises(
        Unavailable, match=f"^the {kind} at {socket}, which driverctl has changed before, is not running$"
    ) as caught:
        look(system)
    assert "driverctl runtime revert" in caught.value.resolution
    assert any("connection refused" in line for line in caught.value.details)


def test_one_that_nobody_changed_is_only_down(bench: Bench) -> None:
    change_runtime(bench.system, RuntimeAction.REVERT, lambda plan: None)
    bench.daemon.down = True
    with pytest.raises(Unavailable, match=r"^no container runtime answers at "):
        plans.apply_plan(bench.system)


def test_the_status_of_a_whole_change(bench: Bench) -> None:
    said = bench.status()
    assert "our change: in force\n" in said
    assert "since" not in said


def test_the_status_says_that_handlers_are_lost_and_a_file_removed(bench: Bench) -> None:
    bench.node.host.node.remove(DROP_IN)
    bench.daemon.restart()
    said = bench.status()
    assert "our change: came into force, and the daemon has lost all of its handlers since\n" in said
    assert f"  {DROP_IN} (removed by somebody else since)\n" in said
    assert f"  {CONFIG}\n" in said


def test_the_status_of_one_that_cannot_serve_names_the_line(bench: Bench) -> None:
    node = bench.node.host.node
    node.remove(DROP_IN)
    lost = b'[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    node.write_atomic(CONFIG, ROOT + lost)
    said = bench.status()
    assert "with its files it cannot serve pods:\n  its default runtime is nvidia" in said
    assert f'  {CONFIG}:5: default_runtime_name = "nvidia"\n' in said
    assert f"  {CONFIG} (changed by somebody else since)\n" in said


def test_the_status_of_broken_files_has_our_change_too(bench: Bench) -> None:
    bench.node.host.node.write_atomic(CONFIG, b"version = [\n")
    found = runtime_status.runtime_status(bench.system)
    said = runtime_status.status_text(found)
    assert "our change: in force\n" in said
    assert f"  {CONFIG} (changed by somebody else since)\n" in said
    assert "its files cannot be read:\n" in said
    assert found["broken"]
    assert CONFIG in "".join(found["broken"])
    assert found["foreign"] == {}


def test_what_a_silent_daemon_has_is_not_claimed(bench: Bench) -> None:
    found = runtime_status.runtime_status(bench.system)
    silent = found | {"missing": list(found["handlers"]), "reported": {}, "problem": "it does not answer"}
    said = runtime_status.status_text(silent)
    assert "our change: came into force; whether it still is, the daemon does not tell\n" in said
    assert "does not have it" not in said
