"""What a plan is, and why: of an apply, a revert and a strip.

On a fake node with a containerd or a docker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, Unavailable, Unsupported, UsageError
from driverforge_host.ports import Connection
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import containerd
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, RUNTIMES, default_of
from driverforge_toolkit.runtime.formats.values import take
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakedocker import CONFIG as DAEMON_JSON
from support.fakes.fakedocker import SOCKET as DOCKER_SOCKET
from support.fakes.fakedocker import FakeDocker
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.fakes.fakeruntimes import Sockets
from support.samples.templates import BASE, CALL, TOOLKITS

OURS = ("nvidia", "nvidia-cdi", "nvidia-legacy")
FOLDER = DROP_IN.rpartition("/")[0]
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
THEIRS = (
    ROOT
    + f"""[{CRI2}.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[{CRI2}.containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
""".encode()
)
View = dict[str, object]


@dataclass
class Odd(FakeContainerd):
    """It makes something else of its files than they say."""

    makes: Callable[[View], None] = lambda view: None

    def reads(self, config: str) -> View:
        view = super().reads(config)
        self.makes(view)
        return view


@dataclass
class Bench:
    node: FakeNode
    daemon: Odd

    def system(self, *, default: bool | None = None, name: str = "nvidia", **more: object) -> RuntimeSystem:
        wanted = wanted_handlers(name=name, default=default)
        request = RuntimeRequest(wanted=wanted, restart_command="restart", patience=1.0)
        return RuntimeSystem(
            host=self.node.host,
            sockets=self.daemon,
            request=replace(request, **more),  # type: ignore[arg-type]
        )

    def apply(self, *, default: bool | None = None, **more: object) -> ChangePlan:
        system = self.system(default=default, **more)
        plan = plans.apply_plan(system)
        change.carry_out(plan, system)
        return plan

    def revert_plan(self) -> ChangePlan:
        plan = plans.revert_plan(self.system())
        assert plan is not None
        return plan

    def write(self, path: str, data: bytes) -> None:
        self.node.host.node.make_dirs(path.rpartition("/")[0])
        self.node.host.node.write_atomic(path, data)

    def loses_our_handlers(self) -> None:
        self.write("/empty.toml", b"")
        self.daemon.running = self.daemon.reads("/empty.toml")

    def puts_its_files_back(self) -> None:
        """By hand: nobody tells the runtime, or us."""
        self.write(CONFIG, ROOT)
        self.node.host.node.remove(DROP_IN)

    def also_changed(self, **more: str) -> None:
        """An entry of another runtime, beside that of the containerd."""
        [entry, *_] = journal.entries(self.node.host)
        journal.write_entry(self.node.host, replace(entry, **more))  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=Odd(node=node))


# --- an apply: what is done, and why


def test_an_apply_says_why_it_restarts_or_does_not(bench: Bench) -> None:
    plan = bench.apply()
    assert (plan.activation, plan.why) == ("restart", "the effective configuration changes")
    plan = plans.apply_plan(bench.system())
    assert (plan.activation, plan.why) == ("none", "the effective configuration stays")
    bench.loses_our_handlers()
    plan = plans.apply_plan(bench.system())
    assert (plan.activation, plan.why) == (
        "restart",
        f"the running daemon does not have {', '.join(OURS)} yet",
    )


def test_an_apply_after_one_that_was_not_finished_says_so(bench: Bench) -> None:
    bench.apply(restart_mode="none")
    plan = plans.apply_plan(bench.system())
    assert plan.writes == ()
    assert (plan.activation, plan.why) == (
        "restart",
        "an earlier change was not finished, and the daemon may run without it",
    )


def test_a_change_that_needs_as_much_as_the_unfinished_one_is_the_reason_itself(bench: Bench) -> None:
    bench.apply(restart_mode="none")
    plan = plans.apply_plan(bench.system(name="gpu"))
    assert (plan.activation, plan.why) == ("restart", "the effective configuration changes")


def test_containerds_own_program_is_asked_once_for_each_set_of_files(bench: Bench) -> None:
    """A start of it takes half a second on a small node."""

    def dumps(plan: Callable[[RuntimeSystem], object]) -> int:
        before = bench.daemon.dumps
        plan(bench.system())
        return bench.daemon.dumps - before

    assert dumps(plans.apply_plan) == 2
    bench.apply()
    assert (dumps(plans.apply_plan), dumps(plans.revert_plan)) == (2, 2)
    bench.puts_its_files_back()
    assert dumps(plans.revert_plan) == 1


def sees_another_setting(view: View) -> None:
    if "nvidia" in containerd.handlers(view):
        view["oom_score"] = 7


def does_not_see_one(view: View) -> None:
    if "nvidia-cdi" in containerd.handlers(view):
        take(view, (*CRI_V2, *RUNTIMES, "nvidia-cdi"))


@pytest.mark.parametrize(
    ("makes", "why"),
    [
        (sees_another_setting, "containerd would see other settings change too"),
        (does_not_see_one, "containerd would not see the handler nvidia-cdi"),
    ],
)
def test_what_the_daemon_would_not_make_of_the_files_is_refused(
    bench: Bench, makes: Callable[[View], None], why: str
) -> None:
    bench.daemon.makes = makes
    with pytest.raises(Unsupported, match=why):
        plans.apply_plan(bench.system())
    assert journal.entries(bench.node.host) == ()


def test_a_root_file_that_its_distribution_writes_is_not_ours_to_write(tmp_path: Path) -> None:
    """rke2 imports a folder, and a drop-in there is all."""
    node = fake_node(tmp_path, gpu=False)
    bench = Bench(node=node, daemon=Odd(node=node, unit="rke2-server.service"))
    bench.write(CONFIG, b'imports = ["/etc/containerd/config.toml.d/*.toml"]\n' + ROOT)
    plan = plans.apply_plan(bench.system())
    assert plan.daemon.supervisor.kind == "rke2"
    assert [file.path for file in plan.writes] == ["/etc/containerd/config.toml.d/99-nvidia.toml"]


IMPORTING = 'imports = ["/etc/containerd/config.toml.d/*.toml"]\n' + BASE


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (TOOLKITS, "leaves out rke2's own configuration"),
        (f"{CALL}\n{TOOLKITS}", "is not valid TOML"),
        (BASE, "does not import /etc/containerd/config.toml.d/99-nvidia.toml"),
        (f"{CALL}\n[debug]\nlevel = 'info'\n", ""),
    ],
)
def test_a_template_beside_a_drop_in_counts_at_the_next_start(
    tmp_path: Path, template: str, why: str
) -> None:
    node = fake_node(tmp_path, gpu=False)
    bench = Bench(node=node, daemon=Odd(node=node, unit="rke2-server.service"))
    bench.write(CONFIG, IMPORTING.encode())
    bench.daemon.restart()
    bench.write("/etc/containerd/config.toml.tmpl", template.encode())
    if not why:
        assert plans.apply_plan(bench.system()).writes
        return
    with pytest.raises((Unsupported, InputError), match=why):
        plans.apply_plan(bench.system())


# --- the default handler


def test_a_default_that_is_asked_for_is_set_whatever_it_is_now(bench: Bench) -> None:
    bench.apply(default=True)
    text = bench.node.host.node.read_bytes(DROP_IN)
    bench.write(DROP_IN, text.replace(b'default_runtime_name = "nvidia"', b'default_runtime_name = "runc"'))
    bench.daemon.restart()
    assert default_of(bench.daemon.running) == "runc"
    bench.apply(default=True)
    assert default_of(bench.daemon.running) == "nvidia"


def test_a_daemon_that_does_not_tell_its_default_is_asked_for_its_files_first(bench: Bench) -> None:
    bench.apply(default=True)
    bench.write(CONFIG, b'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    silent = Sockets(containerd=bench.daemon, listener=0, docker=0, cri=False)
    with pytest.raises(Unsupported, match="disables the CRI plugin"):
        plans.apply_plan(replace(bench.system(), sockets=silent))


# --- the journal's entry


def test_an_entry_has_the_mode_of_each_file_also_of_one_that_is_gone(bench: Bench) -> None:
    place = bench.node.places[NODE] / CONFIG[1:]
    place.chmod(0o640)
    bench.apply()
    [entry] = journal.entries(bench.node.host)
    metadata = {file.path: file.metadata.mode if file.metadata else None for file in entry.files}
    assert metadata == {DROP_IN: None, CONFIG: 0o640}
    place.unlink()
    again = plans.apply_plan(bench.system()).entry.file(CONFIG)
    assert again is not None
    assert again.metadata is not None
    assert again.metadata.mode == 0o640


def test_an_entry_keeps_what_was_there_before_us_whatever_the_next_change_is(bench: Bench) -> None:
    bench.apply()
    plan = bench.apply(name="gpu")
    assert [file.path for file in plan.writes] == [DROP_IN]
    originals = {file.path: file.original for file in plan.entry.files}
    assert originals == {DROP_IN: None, CONFIG: ROOT}
    again = plans.apply_plan(bench.system(name="gpu"))
    assert (again.writes, {file.path: file.original for file in again.entry.files}) == ((), originals)


def test_a_file_that_stays_as_it_was_before_us_is_not_in_an_entry(bench: Bench) -> None:
    bench.write(CONFIG, f'imports = ["{FOLDER}/*.toml"]\n'.encode() + ROOT)
    assert [file.path for file in plans.apply_plan(bench.system()).entry.files] == [DROP_IN]


def test_a_folder_is_made_once_for_all_files_and_all_changes(bench: Bench) -> None:
    bench.apply()
    bench.node.host.node.remove_tree(FOLDER)
    assert plans.apply_plan(bench.system()).entry.folders == (FOLDER,)
    deep = plans.apply_plan(bench.system(drop_in="/opt/site/of/ours.toml")).entry.folders
    assert deep == (FOLDER, "/opt", "/opt/site", "/opt/site/of")


# --- docker beside a runtime that is down


class Both:
    """The sockets of a containerd and of a docker."""

    def __init__(self, daemon: FakeContainerd, docker: FakeDocker) -> None:
        self.daemon, self.docker = daemon, docker

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        of = self.docker if path.endswith(DOCKER_SOCKET) else self.daemon
        with of.connect(path, timeout=timeout) as connection:
            yield connection


@pytest.fixture
def down(bench: Bench) -> RuntimeSystem:
    """A docker, and a containerd that driverctl has changed and that is down."""
    bench.apply()
    bench.daemon.down = True
    return replace(bench.system(), sockets=Both(bench.daemon, FakeDocker(node=bench.node)))


def test_of_several_that_are_down_the_first_is_in_the_brief_and_all_are_in_the_details(
    bench: Bench, down: RuntimeSystem
) -> None:
    bench.also_changed(kind="crio", socket="/run/crio/crio.sock", config="/etc/crio/crio.conf")
    with pytest.raises(Unavailable, match=f"^the containerd at {SOCKET}, which driverctl") as caught:
        plans.apply_plan(down)
    assert len(caught.value.details) == 2


def test_a_docker_that_was_asked_for_or_changed_before_is_taken(down: RuntimeSystem) -> None:
    asked = replace(down, request=replace(down.request, socket=DOCKER_SOCKET))
    plan = plans.apply_plan(asked)
    assert plan.daemon.kind == "docker"
    change.carry_out(plan, asked)
    assert plans.apply_plan(down).daemon.kind == "docker"


class Alone(Odd):
    """Nothing answers at another socket than its own."""

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        if not path.endswith(SOCKET):
            raise Unavailable(f"nothing answers at {path}")
        with super().connect(path, timeout=timeout) as connection:
            yield connection


def test_a_containerd_is_changed_whatever_else_was_changed_and_is_down(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    bench = Bench(node=node, daemon=Alone(node=node))
    bench.apply()
    bench.also_changed(kind="crio", socket="/run/crio/crio.sock", config="/etc/crio/crio.conf")
    journal.remove_entry(node.host, "containerd", CONFIG)
    assert plans.apply_plan(bench.system()).daemon.kind == "containerd"


# --- a revert: what is done, and why


def test_a_revert_without_a_change_is_none(bench: Bench) -> None:
    assert plans.revert_plan(bench.system()) is None


def test_a_revert_names_the_handlers_that_go_and_says_why_it_restarts(bench: Bench) -> None:
    bench.apply()
    plan = bench.revert_plan()
    assert (plan.absent, plan.keep) == (OURS, False)
    assert (plan.activation, plan.why) == ("restart", "the effective configuration changes")


def test_a_runtime_that_runs_with_our_handlers_is_restarted_though_its_files_are_back(bench: Bench) -> None:
    bench.apply()
    bench.puts_its_files_back()
    plan = bench.revert_plan()
    assert (plan.activation, plan.why) == ("restart", "the running daemon still has our handlers")
    bench.daemon.restart()
    plan = bench.revert_plan()
    assert (plan.activation, plan.why) == ("none", "the effective configuration stays")


def test_a_runtime_that_tells_no_handlers_is_reverted_too(bench: Bench) -> None:
    bench.apply()
    silent = Sockets(containerd=bench.daemon, listener=0, docker=0, cri=False)
    plan = plans.revert_plan(replace(bench.system(), sockets=silent))
    assert plan is not None
    assert plan.activation == "restart"


@pytest.mark.parametrize(
    ("before", "activation"),
    [
        (False, "reload"),  # it has nothing that only a restart takes away
        (True, "restart"),  # it may have what was in force before
    ],
)
def test_a_change_that_docker_has_not_heard_of_takes_no_more_than_it_needs_to_be_taken_back(
    tmp_path: Path, before: bool, activation: str
) -> None:
    """Somebody put the file back by hand: it says nothing of what docker runs with."""
    docker = FakeDocker(node=fake_node(tmp_path, gpu=False))

    def system(*, cdi: bool) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(cdi=cdi), restart_command="restart", patience=1.0)
        return RuntimeSystem(host=docker.node.host, sockets=docker, request=request)

    if before:
        change.carry_out(plans.apply_plan(system(cdi=True)), system(cdi=True))
    unfinished = plans.apply_plan(system(cdi=not before))
    assert unfinished.activation == "restart"
    entry = replace(unfinished.entry, state="written", needs=unfinished.activation)
    journal.write_entry(docker.node.host, entry)  # driverctl was killed before the restart
    docker.node.host.node.write_atomic(DAEMON_JSON, b"{}\n")
    plan = plans.revert_plan(system(cdi=False))
    assert plan is not None
    assert plan.activation == activation
    assert plan.why.startswith("an earlier change was not finished")


# --- a revert of a runtime that is down


def test_nothing_that_runs_and_nothing_that_was_changed_is_one_error(bench: Bench) -> None:
    bench.daemon.down = True
    with pytest.raises(Unavailable, match="the known sockets"):
        plans.revert_plan(bench.system())
    with pytest.raises(Unavailable, match=SOCKET):
        plans.revert_plan(bench.system(socket=SOCKET))


def test_of_several_that_were_changed_and_are_down_none_is_taken_by_chance(bench: Bench) -> None:
    bench.apply()
    bench.daemon.down = True
    bench.also_changed(socket="/run/k3s/containerd/containerd.sock", config="/var/lib/rancher/k3s/x.toml")
    with pytest.raises(Unavailable, match="the known sockets"):
        plans.revert_plan(bench.system())
    plan = plans.revert_plan(bench.system(socket=SOCKET))
    assert plan is not None
    assert (plan.daemon.config, plan.activation, plan.why, plan.keep) == (
        CONFIG,
        "restart",
        "it is not running",
        False,
    )


def test_of_several_beside_a_docker_the_user_says_which(bench: Bench, down: RuntimeSystem) -> None:
    plan = plans.revert_plan(down)
    assert plan is not None
    assert (plan.daemon.kind, plan.daemon.pid) == ("containerd", 0)
    bench.also_changed(socket="/run/k3s/containerd/containerd.sock", config="/var/lib/rancher/k3s/x.toml")
    with pytest.raises(UsageError, match="several container runtimes"):
        plans.revert_plan(down)


# --- a strip


def test_a_strip_of_nothing_is_none(bench: Bench) -> None:
    assert plans.strip_plan(bench.system()) is None


def test_a_strip_takes_nvidias_handlers_out_that_somebody_else_wrote(bench: Bench) -> None:
    bench.write(CONFIG, THEIRS)
    bench.daemon.restart()
    plan = plans.strip_plan(bench.system())
    assert plan is not None
    assert [file.path for file in plan.writes] == [CONFIG]
    assert [file.path for file in plan.entry.files] == [CONFIG]
    assert (plan.absent, plan.keep, plan.activation, plan.notes) == (("nvidia",), False, "restart", ())
    change.carry_out(plan, bench.system())
    assert "nvidia" not in containerd.handlers(bench.daemon.running)
    assert journal.entries(bench.node.host) == ()


def has_it_built_in(view: View) -> None:
    section: object = view
    for key in (*CRI_V2, *RUNTIMES):
        assert isinstance(section, dict)
        section = section.setdefault(key, {})
    assert isinstance(section, dict)
    section["nvidia"] = {"options": {"BinaryName": "/usr/bin/nvidia-container-runtime"}}


def test_a_handler_that_is_in_none_of_the_files_is_told_of(bench: Bench) -> None:
    bench.daemon.makes = has_it_built_in
    plan = plans.strip_plan(bench.system())
    assert plan is not None
    assert (plan.absent, plan.notes, plan.writes) == ((), ("nvidia is still there",), ())


def sees_another_setting_without(view: View) -> None:
    if "nvidia" not in containerd.handlers(view):
        view["oom_score"] = 7


def test_a_strip_that_would_change_something_else_is_refused(bench: Bench) -> None:
    bench.write(CONFIG, THEIRS)
    bench.daemon.makes = sees_another_setting_without
    with pytest.raises(Unsupported, match="would see other settings change too") as caught:
        plans.strip_plan(bench.system())
    assert caught.value.details == ("oom_score: (not set) -> 7",)
