"""A change that is killed before any of its steps, any number of times; several daemons on one node.

On a fake node with a containerd.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driverforge_core.errors import Unavailable, Unsupported, UsageError
from driverforge_host.ports import Connection, Host
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.journal import exclusive_runtime
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, restore
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.runtime_request import request_of_command
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakefiles import Killed
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import Sockets, process, with_docker

IN_MEMORY = next((place for place in ("/dev/shm",) if Path(place).is_dir()), None)
OURS = {"nvidia", "nvidia-cdi", "nvidia-legacy"}


class Daemon(FakeContainerd):
    """Its own start is no step of ours."""

    def restart(self) -> None:
        fuse = self.node.files.fuse
        left, fuse.changes = fuse.changes, None
        super().restart()
        fuse.changes = left


@dataclass
class Bench:
    """A node with a containerd, and driverctls that live or die."""

    node: FakeNode
    daemon: FakeContainerd
    driverctls: int = 0

    @classmethod
    def make(cls, folder: Path) -> Bench:
        node = fake_node(folder, gpu=False)
        return cls(node=node, daemon=Daemon(node=node))

    def system(self, name: str = "nvidia") -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(name=name, default=True), restart_command="restart")
        return RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)

    def run(self, action: str, name: str = "nvidia") -> None:
        system = self.system(name)
        with exclusive_runtime(system.host):
            change.take_over(system)
            plan = plans.apply_plan(system) if action == "apply" else plans.revert_plan(system)
            if plan is not None:
                change.carry_out(plan, system)

    def killed(self, action: str, name: str, changes: int) -> None:
        fuse = self.node.files.fuse
        self.driverctls += 1
        self.node.host.node.write_atomic(
            "/proc/self/stat", f"{9000 + self.driverctls} (x) S{' 0' * 18} 1\n".encode()
        )
        fuse.changes = changes
        with suppress(Killed):
            self.run(action, name)
        fuse.changes = None

    def text(self, path: str) -> bytes | None:
        node = self.node.host.node
        return node.read_bytes(path) if node.exists(path) else None

    def state(self) -> tuple[object, ...]:
        """What another program sees: files, and what the running daemon has."""
        kept = [name for name in self.node.host.node.list_dir(journal.FOLDER) if name != "lock"]
        left = self.node.host.node.list_dir(restore.FOLDER), self.node.host.node.list_dir("/run/driverforge")
        return self.text(CONFIG), self.text(DROP_IN), self.daemon.running, kept, left


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "revert"]),
        st.sampled_from(["nvidia", "gpu"]),
        st.integers(min_value=0, max_value=60),
    ),
    max_size=4,
)


@given(runs=RUNS)
@settings(max_examples=settings.default.max_examples // 4)  # a run of these costs as much as four of others
def test_after_any_number_of_kills_an_apply_and_a_revert_give_what_they_give_on_a_new_node(
    runs: list[tuple[str, str, int]],
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        bench, fresh = Bench.make(Path(name) / "node"), Bench.make(Path(name) / "fresh")
        for action, handler, changes in runs:
            bench.killed(action, handler, changes)
        for each in (bench, fresh):
            each.run("apply")
        assert bench.state() == fresh.state()
        starts = bench.daemon.starts
        bench.run("apply")
        assert bench.daemon.starts == starts
        for each in (bench, fresh):
            each.run("revert")
        assert bench.state() == fresh.state()
        assert bench.text(CONFIG) == ROOT


def test_a_runtime_whose_cri_does_not_answer_is_not_touched(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    before = bench.state()
    bench.daemon.down = True
    with pytest.raises(Unavailable, match="no container runtime answers"):
        bench.run("apply")
    bench.daemon.down = False
    assert bench.state() == before


# --- several daemons


def choose(bench: Bench, sockets: Sockets, **more: str) -> tuple[str, str]:
    request = replace(RuntimeRequest(wanted=wanted_handlers()), **more)  # type: ignore[arg-type]
    daemon = selection.select(bench.node.host, sockets, request)
    return daemon.kind, daemon.evidence[0]


def test_the_runtime_that_serves_pods_is_chosen_and_it_is_said_why(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    sockets = with_docker(bench.node, bench.daemon)
    assert choose(bench, sockets) == (
        "containerd",
        "chosen: the only one that serves pods (/run/docker.sock: docker does not serve a kubelet)",
    )
    assert choose(bench, sockets, runtime="docker") == (
        "docker",
        "chosen: runtime says docker: the only docker that runs here",
    )
    assert choose(bench, sockets, socket="/run/docker.sock") == (
        "docker",
        "chosen: socket says /run/docker.sock",
    )


def test_docker_is_chosen_where_nothing_serves_pods(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    kind, why = choose(bench, with_docker(bench.node, bench.daemon, cri=False))
    assert kind == "docker"
    assert why.startswith(
        "chosen: none serves pods (/run/containerd/containerd.sock: the runtime does not answer Version"
    )


def test_the_files_say_why_a_containerd_serves_no_pods(tmp_path: Path) -> None:
    """Its CRI answers nothing, and that is the lesser news."""
    bench = Bench.make(tmp_path)
    bench.node.host.node.write_atomic(
        CONFIG, b'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    )
    silent = Sockets(containerd=bench.daemon, listener=0, docker=0, cri=False)
    system = RuntimeSystem(
        host=bench.node.host, sockets=silent, request=RuntimeRequest(wanted=wanted_handlers())
    )
    with pytest.raises(Unsupported, match="disables the CRI plugin"):
        plans.apply_plan(system)


def second_containerd(bench: Bench) -> Sockets:
    """k3s's beside the system's own."""
    files, socket = bench.node.host.node, "/run/k3s/containerd/containerd.sock"
    files.make_dirs("/run/k3s/containerd")
    files.write_atomic(socket, b"")
    process(
        bench.node,
        60,
        "containerd",
        "/var/lib/rancher/k3s/data/x/bin/containerd",
        "-c",
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    )

    class Two(Sockets):
        @contextmanager
        def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
            with self.containerd.connect(path, timeout=timeout) as connection:
                if path.endswith(socket):
                    connection.pid = 60
                yield connection

    return Two(containerd=bench.daemon, listener=0, docker=0)


def test_the_one_that_the_kubelet_names_is_chosen_of_two(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    sockets = second_containerd(bench)
    kind, why = choose(bench, sockets)
    assert (kind, why) == ("containerd", "chosen: k3s runs it")
    process(bench.node, 70, "kubelet", "/usr/bin/kubelet", f"--container-runtime-endpoint=unix://{SOCKET}")
    assert choose(bench, sockets)[1] == (
        f"chosen: the kubelet uses {SOCKET} (--container-runtime-endpoint of kubelet, PID 70)"
    )


def test_two_that_nobody_prefers_are_the_users_choice(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    sockets = second_containerd(bench)
    process(bench.node, 60, "containerd", "/opt/bin/containerd", "-c", "/opt/config.toml")
    with pytest.raises(UsageError, match="several container runtimes") as caught:
        choose(bench, sockets)
    assert len(caught.value.details) == 2


# --- the environment of NVIDIA's toolkit pod

MOUNTS = {
    "/proc/self/mountinfo": "1 0 0:60 / / rw - overlay overlay rw\n"
    "2 1 8:1 /etc/containerd /runtime/config-dir rw - ext4 /dev/sda1 rw\n"
    "3 1 8:1 /elsewhere /gone rw - ext4 /dev/sda1 rw\n4 1 0:9 / /own rw - tmpfs tmpfs rw\n",
    "/proc/1/mountinfo": "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
}


def environment(tmp_path: Path, **variables: str) -> Host:
    node = fake_node(tmp_path, gpu=False)
    for path, text in MOUNTS.items():
        node.files.make_dirs(path.rpartition("/")[0])
        node.files.write_atomic(path, text.encode())
    return replace(node.host, environ=variables)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"RUNTIME_CONFIG": "/runtime/config-dir/config.toml"}, {"config": "/etc/containerd/config.toml"}),
        # no mount: meant for the node
        (
            {"CONTAINERD_CONFIG": "/etc/containerd/config.toml"},
            {"config": "/etc/containerd/config.toml"},
        ),
        (
            {"RUNTIME": "crio", "CRIO_CONFIG": "/x", "CONTAINERD_CONFIG": "/y"},
            {"runtime": "crio", "config": "/x"},
        ),
        ({"DOCKER_CONFIG": "/root/.docker"}, {}),  # the docker client's
        (
            {"RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir/d/x", "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/h/x"},
            {"drop_in": "/h/x"},
        ),
        (
            {"CONTAINERD_RESTART_MODE": "none", "RUNTIME_EXECUTABLE_PATH": "/c"},
            {"restart_mode": "none", "binary": "/c"},
        ),
    ],
)
def test_variables_name_files_of_the_pod(
    tmp_path: Path, variables: Mapping[str, str], found: Mapping[str, str]
) -> None:
    request = request_of_command(environment(tmp_path, **variables), {})
    assert {name: getattr(request, name) for name in request.given} == found


def test_a_mount_that_the_node_does_not_have_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is on a mount of this container"):
        request_of_command(environment(tmp_path, RUNTIME_CONFIG="/own/config.toml"), {})


def test_nri_mode_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="NRI mode"):
        request_of_command(environment(tmp_path, ENABLE_NRI_PLUGIN="true"), {})


def test_the_journal_of_a_change_names_all_of_its_files(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    bench.run("apply")
    (entry,) = journal.entries(bench.node.host)
    assert (entry.state, entry.earlier, [file.path for file in entry.files]) == (
        "in force",
        None,
        [DROP_IN, CONFIG],
    )
    assert json.loads(bench.node.host.node.read_text(journal.path_of("containerd", CONFIG)))["schema"] == 3
    assert set(entry.names) == OURS
