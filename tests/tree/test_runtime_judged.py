"""What the daemon's own program makes of a change decides whether it is made.

On a fake node with a containerd that reads its files in a way of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core.errors import DriverforgeError, InputError, Unavailable, Unsupported
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, RUNTIMES
from driverforge_toolkit.runtime.formats.values import lookup, put, take
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import plans
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node

NVIDIA = (*CRI_V2, *RUNTIMES, "nvidia")
THEIRS = b"""[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/theirs"
"""
Reading = Callable[[dict[str, object]], object]


def nothing_else(_seen: dict[str, object]) -> None:
    """What a containerd of that version reads."""


@dataclass
class Odd(FakeContainerd):
    """`with_handlers` and `without` change what it makes of files that have an `nvidia` handler, or none."""

    with_handlers: Reading = nothing_else
    without: Reading = nothing_else
    refuses: str = ""

    def reads(self, config: str) -> dict[str, object]:
        if self.refuses and config != CONFIG:
            raise InputError(self.refuses)
        seen = super().reads(config)
        (self.with_handlers if isinstance(lookup(seen, NVIDIA), dict) else self.without)(seen)
        return seen


@dataclass
class Bench:
    node: FakeNode
    daemon: Odd

    @property
    def system(self) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(folder="/t"), restart_command="restart", patience=1.0)
        return RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)

    def refused(self, action: RuntimeAction) -> DriverforgeError:
        """The error of an action, which has left the node as it was."""
        files, starts = self.files(), self.daemon.starts
        with pytest.raises(DriverforgeError) as caught:
            change_runtime(self.system, action, lambda plan: None)
        assert (self.files(), self.daemon.starts) == (files, starts)
        return caught.value

    def files(self) -> dict[str, bytes | None]:
        node = self.node.host.node
        places = (CONFIG, DROP_IN, journal.path_of("containerd", CONFIG))
        return {path: node.read_bytes(path) if node.exists(path) else None for path in places}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=Odd(node=node))


def test_a_change_with_which_another_setting_changes_is_refused(bench: Bench) -> None:
    bench.daemon.with_handlers = lambda seen: put(seen, (*CRI_V2, "sandbox_image"), "other:1")
    error = bench.refused(RuntimeAction.APPLY)
    assert isinstance(error, Unsupported)
    assert error.brief == ("refused: with NVIDIA's handlers, containerd would see other settings change too")
    assert error.details == ("plugins.\"io.containerd.grpc.v1.cri\".sandbox_image: 'pause:3.8' -> 'other:1'",)


@pytest.mark.parametrize(
    ("reading", "sees"),
    [
        (lambda seen: take(seen, NVIDIA), "nvidia: not there, not /t/nvidia-container-runtime"),
        (
            lambda seen: put(seen, (*NVIDIA, "options", "BinaryName"), "/theirs"),
            "nvidia: /theirs, not /t/nvidia-container-runtime",
        ),
    ],
)
def test_a_change_of_which_the_daemon_would_not_see_a_handler_is_refused(
    bench: Bench, reading: Reading, sees: str
) -> None:
    """A file that the model of its files does not know wins over ours."""
    bench.daemon.with_handlers = reading
    error = bench.refused(RuntimeAction.APPLY)
    assert isinstance(error, Unsupported)
    assert error.brief == "refused: containerd would not see the handler nvidia"
    assert error.details == (sees,)
    assert "wins over ours" in error.resolution


def test_a_change_that_the_daemons_program_does_not_accept_is_not_made(bench: Bench) -> None:
    bench.daemon.refuses = "no such plugin: x"
    error = bench.refused(RuntimeAction.APPLY)
    assert isinstance(error, InputError)
    assert error.brief == f"containerd does not accept {CONFIG}"
    assert error.details == ("containerd: no such plugin: x",)


def test_handlers_of_others_stay_if_another_setting_would_change_without_them(bench: Bench) -> None:
    bench.node.host.node.write_atomic(CONFIG, ROOT + THEIRS)
    bench.daemon.without = lambda seen: put(seen, (*CRI_V2, "sandbox_image"), "other:1")
    error = bench.refused(RuntimeAction.STRIP)
    assert isinstance(error, Unsupported)
    assert error.brief == (
        "refused: without NVIDIA's handlers, containerd would see other settings change too"
    )
    assert len(error.details) == 1


def test_nothing_that_runs_and_nothing_that_was_changed_is_nothing_to_revert(bench: Bench) -> None:
    bench.daemon.down = True
    with pytest.raises(Unavailable, match="no container runtime answers at the known sockets") as caught:
        plans.revert_plan(bench.system)
    assert any("nothing answers at" in line for line in caught.value.details)
