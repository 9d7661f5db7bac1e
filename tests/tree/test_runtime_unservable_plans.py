"""Plans for a containerd that runs without its CRI plugin, for its files had a default that no runtime has.

On a fake node; a real containerd's is tests/engine/test_runtime_unservable.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends.containerd_config import default_of
from driverforge_toolkit.runtime.find import cri
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import plans
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node

CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
DEFAULT = f'[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'.encode()
LINE = f'{CONFIG}:5: default_runtime_name = "nvidia"'
THEIRS = f"""[{CRI2}.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[{CRI2}.containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
""".encode()


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeContainerd

    def system(self, **more: object) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0)
        return RuntimeSystem(
            host=self.node.host,
            sockets=self.daemon,
            request=replace(request, **more),  # type: ignore[arg-type]
        )

    def change(self, action: RuntimeAction) -> None:
        change_runtime(self.system(), action, lambda plan: None)

    def loses_the_handlers(self) -> None:
        """Somebody has our handler as the default, removes our file, and restarts containerd."""
        files = self.node.host.node
        if files.exists(DROP_IN):
            files.remove(DROP_IN)
        files.write_atomic(CONFIG, ROOT + DEFAULT)
        self.daemon.restart()
        with pytest.raises(cri.PluginNotLoaded):
            cri.status(self.daemon, SOCKET)

    def is_mended_by_hand(self) -> None:
        self.node.host.node.write_atomic(CONFIG, ROOT)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=FakeContainerd(node=node))


@pytest.fixture
def lost(bench: Bench) -> Bench:
    """One that driverctl has changed before."""
    bench.change(RuntimeAction.APPLY)
    bench.loses_the_handlers()
    return bench


# --- an apply


@pytest.mark.parametrize("changed", [True, False])
def test_an_apply_brings_the_handlers_back(bench: Bench, *, changed: bool) -> None:
    if changed:
        bench.change(RuntimeAction.APPLY)
    bench.loses_the_handlers()
    bench.change(RuntimeAction.APPLY)
    said = cri.status(bench.daemon, SOCKET)
    assert (said.default, set(said.handlers)) == ("nvidia", {"runc", "nvidia", "nvidia-cdi", "nvidia-legacy"})


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ({}, "(restart)"),
        ({"restart_command": ""}, "(by what runs it)"),
        ({"restart_command": "", "restart_mode": "systemd"}, "(systemctl restart containerd.service)"),
    ],
)
def test_files_that_were_mended_by_hand_need_a_restart_and_the_way_is_told(
    bench: Bench, more: dict[str, str], how: str
) -> None:
    bench.loses_the_handlers()
    bench.is_mended_by_hand()
    with pytest.raises(Unavailable, match="its CRI plugin is not loaded") as caught:
        plans.apply_plan(bench.system(**more))
    assert caught.value.resolution.startswith(f"restart it, if they were mended since it started {how}; ")
    assert f"{CONFIG} and what it imports have its default runtime" in caught.value.details


def test_an_apply_that_cannot_mend_it_names_the_line(bench: Bench) -> None:
    files = bench.node.host.node
    files.write_atomic(CONFIG, ROOT + DEFAULT.replace(b"nvidia", b"kata"))
    with pytest.raises(Unsupported, match="could not serve pods") as caught:
        plans.apply_plan(bench.system())
    assert LINE.replace("nvidia", "kata") in caught.value.details


# --- a revert


def test_a_revert_is_refused_with_the_line_and_the_way_out(lost: Bench) -> None:
    with pytest.raises(Unsupported, match="containerd could not serve pods") as caught:
        plans.revert_plan(lost.system())
    assert LINE in caught.value.details
    assert caught.value.resolution.startswith("`driverctl runtime revert --strip` takes that default out too")


def test_of_a_default_that_is_not_nvidias_a_person_decides(lost: Bench) -> None:
    lost.node.host.node.write_atomic(CONFIG, ROOT + DEFAULT.replace(b"nvidia", b"kata"))
    for strip in (False, True):
        with pytest.raises(Unsupported, match="containerd could not serve pods") as caught:
            plans.revert_plan(lost.system(), strip=strip)
        assert caught.value.resolution.startswith(f"add that runtime to {CONFIG}, or name another default")


def test_a_stripping_revert_takes_the_default_out_and_ends_our_change(lost: Bench) -> None:
    plan = plans.revert_plan(lost.system(), strip=True)
    assert plan is not None
    assert [file.path for file in plan.writes] == [CONFIG]
    lost.change(RuntimeAction.STRIP)
    assert default_of(lost.daemon.running) == "runc"
    assert set(cri.status(lost.daemon, SOCKET).handlers) == {"runc"}
    assert journal.entries(lost.node.host) == ()


def test_a_stripping_revert_takes_the_default_out_of_a_file_that_we_did_not_write(bench: Bench) -> None:
    """Our import was there already, so that our change has the drop-in alone."""
    files = bench.node.host.node
    imports = f'imports = ["{DROP_IN.rpartition("/")[0]}/*.toml"]\n'.encode()
    files.write_atomic(CONFIG, imports + ROOT)
    bench.change(RuntimeAction.APPLY)
    [entry] = journal.entries(bench.node.host)
    assert [file.path for file in entry.files] == [DROP_IN]
    files.remove(DROP_IN)
    files.write_atomic(CONFIG, imports + ROOT + DEFAULT)
    bench.daemon.restart()
    bench.change(RuntimeAction.STRIP)
    assert b"nvidia" not in files.read_bytes(CONFIG)
    assert set(cri.status(bench.daemon, SOCKET).handlers) == {"runc"}


def test_a_revert_of_files_that_are_whole_starts_what_serves_no_pods(lost: Bench) -> None:
    lost.is_mended_by_hand()
    plan = plans.revert_plan(lost.system())
    assert plan is not None
    assert (plan.activation, plan.why) == ("restart", "the running daemon has not loaded its CRI plugin")


# --- a strip without a change of ours


def test_a_default_whose_handler_is_gone_is_stripped(bench: Bench) -> None:
    bench.loses_the_handlers()
    bench.change(RuntimeAction.STRIP)
    assert set(cri.status(bench.daemon, SOCKET).handlers) == {"runc"}


def test_a_default_goes_with_its_handler(bench: Bench) -> None:
    bench.node.host.node.write_atomic(CONFIG, ROOT + THEIRS + DEFAULT)
    bench.daemon.restart()
    plan = plans.strip_plan(bench.system())
    assert plan is not None
    assert plan.absent == ("nvidia",)
    bench.change(RuntimeAction.STRIP)
    assert default_of(bench.daemon.running) == "runc"
