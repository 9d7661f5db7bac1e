"""An apply with nothing to do starts no program of the node, and whatever could make a difference makes it
plan. On a fake node with a containerd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.model import Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import unchanged
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.runtime.transaction.summary import done_text
from support.fakes.fakecontainerd import BINARY, CONFIG, DROP_IN, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import process


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeContainerd
    request: RuntimeRequest

    def apply(self) -> str:
        system = RuntimeSystem(host=self.node.host, sockets=self.daemon, request=self.request)
        plan = change_runtime(system, RuntimeAction.APPLY, lambda plan: None)
        assert plan is not None
        return done_text(plan, system)

    def planned(self) -> bool:
        """Whether an apply asks containerd's own program."""
        before = len(self.node.commands.calls)
        self.apply()
        return len(self.node.commands.calls) > before

    def write(self, path: str, text: str) -> None:
        node = self.node.host.node
        node.make_dirs(path.rpartition("/")[0])
        node.write_atomic(path, text.encode())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """All of it is in force, and nothing was changed since."""
    node = fake_node(tmp_path, gpu=False)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0)
    made = Bench(node=node, daemon=FakeContainerd(node=node), request=request)
    assert made.apply().endswith("restarted containerd")
    return made


def test_nothing_is_asked_but_the_daemon_that_runs(bench: Bench) -> None:
    starts, calls = bench.daemon.starts, len(bench.node.commands.calls)
    assert bench.apply() == "nothing to do"
    assert (bench.daemon.starts, len(bench.node.commands.calls)) == (starts, calls)
    bench.daemon.restart()
    assert not bench.planned(), "a restart by somebody else changes nothing"


def drop_in_edited(bench: Bench) -> None:
    bench.write(DROP_IN, bench.node.host.node.read_text(DROP_IN) + "# theirs\n")


def imported_file_came(bench: Bench) -> None:
    bench.write("/etc/containerd/conf.d/10-theirs.toml", "version = 2\noom_score = 1\n")


def root_file_edited(bench: Bench) -> None:
    bench.write(CONFIG, bench.node.host.node.read_text(CONFIG) + "# theirs\n")


def program_replaced(bench: Bench) -> None:
    bench.write(BINARY, "another build")


def version_changed(bench: Bench) -> None:
    bench.daemon.version = "1.7.25"


def started_with_another_option(bench: Bench) -> None:
    bench.write(f"/proc/{bench.daemon.pid}/cmdline", f"{BINARY}\0--log-level\0debug\0")


def moved_into_a_unit(bench: Bench) -> None:
    bench.write(f"/proc/{bench.daemon.pid}/cgroup", "0::/system.slice/containerd.service\n")


def other_handlers_wanted(bench: Bench) -> None:
    bench.request = replace(bench.request, wanted=wanted_handlers(cdi=True))


def another_file_given(bench: Bench) -> None:
    bench.request = replace(bench.request, config=CONFIG)


def another_runtime_came(bench: Bench) -> None:
    bench.write("/run/crio/crio.sock", "")


def the_daemon_lost_our_handlers(bench: Bench) -> None:
    bench.write("/empty.toml", "")
    bench.daemon.running = bench.daemon.reads("/empty.toml")


def journal_of_an_earlier_release(bench: Bench) -> None:
    (entry,) = journal.entries(bench.node.host)
    journal.write_entry(bench.node.host, replace(entry, fingerprint=""))


def drop_in_edited_under_an_earlier_release(bench: Bench) -> None:
    journal_of_an_earlier_release(bench)
    drop_in_edited(bench)


def journal_says_not_in_force(bench: Bench) -> None:
    (entry,) = journal.entries(bench.node.host)
    journal.write_entry(bench.node.host, replace(entry, state="written"))


@pytest.mark.parametrize(
    "something",
    [
        drop_in_edited,
        imported_file_came,
        root_file_edited,
        program_replaced,
        version_changed,
        started_with_another_option,
        moved_into_a_unit,
        other_handlers_wanted,
        another_file_given,
        another_runtime_came,
        the_daemon_lost_our_handlers,
        journal_of_an_earlier_release,
        drop_in_edited_under_an_earlier_release,
        journal_says_not_in_force,
    ],
)
def test_whatever_may_make_a_difference_is_planned(bench: Bench, something: Callable[[Bench], None]) -> None:
    assert not bench.planned()
    something(bench)
    assert bench.planned()


def test_another_default_than_ours_is_planned(bench: Bench) -> None:
    bench.request = replace(bench.request, wanted=wanted_handlers(default=True))
    bench.apply()
    assert not bench.planned()
    bench.daemon.running = bench.daemon.reads(CONFIG)
    assert not bench.planned()
    text = bench.node.host.node.read_text(DROP_IN)
    bench.write(DROP_IN, text.replace('default_runtime_name = "nvidia"', 'default_runtime_name = "runc"'))
    bench.daemon.running = bench.daemon.reads(CONFIG)
    bench.write(DROP_IN, text)
    assert bench.planned()


def test_a_plan_that_found_nothing_to_do_is_the_last_one(bench: Bench) -> None:
    version_changed(bench)
    assert bench.planned()
    assert not bench.planned()


def test_another_release_plans_for_itself(bench: Bench) -> None:
    system = RuntimeSystem(host=bench.node.host, sockets=bench.daemon, request=bench.request)
    same, again = (unchanged.fingerprint(system, bench.daemon.daemon) for _ in range(2))
    assert same == again
    assert unchanged.fingerprint(system, bench.daemon.daemon, release="9.9") != same


def test_a_daemon_that_is_gone_again_gets_no_fingerprint(bench: Bench) -> None:
    system = RuntimeSystem(host=bench.node.host, sockets=bench.daemon, request=bench.request)
    (entry,) = journal.entries(bench.node.host)
    bench.daemon.down = True
    without = replace(entry, fingerprint="")
    assert unchanged.with_fingerprint(system, without) == without


def test_the_files_of_a_distribution_are_looked_at_each_time(bench: Bench) -> None:
    """k3s makes its root file of others at each start."""
    system = RuntimeSystem(host=bench.node.host, sockets=bench.daemon, request=bench.request)
    (entry,) = journal.entries(bench.node.host)
    assert unchanged.with_fingerprint(system, entry) == entry
    other = replace(entry, supervisor=Supervisor(kind="k3s", unit="k3s.service"), fingerprint="")
    assert unchanged.with_fingerprint(system, other) == other


def test_a_daemon_that_does_not_answer_is_the_plans_news(bench: Bench) -> None:
    bench.daemon.down = True
    with pytest.raises(Exception, match="which driverctl has changed before, is not running"):
        bench.apply()


def test_the_socket_that_is_given_is_enough_where_several_run(bench: Bench) -> None:
    bench.write("/run/crio/crio.sock", "")
    bench.request = replace(bench.request, socket=SOCKET)
    assert bench.planned(), "another request"
    assert not bench.planned()


def test_the_kubelets_socket_is_enough_where_several_run_unless_a_runtime_is_asked_for(bench: Bench) -> None:
    bench.write("/run/crio/crio.sock", "")
    process(bench.node, 70, "kubelet", "/usr/bin/kubelet", f"--container-runtime-endpoint={SOCKET}")
    assert not bench.planned()
    bench.request = replace(bench.request, runtime="containerd")
    assert bench.planned(), "another request"
    assert bench.planned(), "which of the two it means is not known without a look"
