"""A node keeps a runtime that serves, and others' files keep their place: a fake node with a containerd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core.errors import Unsupported
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime, plan_of
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node

FOLDER = "/etc/containerd/conf.d"
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
SITE = f'version = 2\n[{CRI2}.registry]\nconfig_path = "/etc/containerd/certs.d"\n'.encode()
IMPORT = f'imports = ["{FOLDER}/*.toml"]\n'.encode()
NVIDIA = f"""[{CRI2}.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["site/*"]
[{CRI2}.containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
""".encode()


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeContainerd

    def system(self, *, default: bool | None = None) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(default=default), restart_command="restart")
        return RuntimeSystem(host=self.node.host, sockets=self.daemon, request=request)

    def write(self, path: str, data: bytes) -> None:
        self.node.host.node.make_dirs(path.rpartition("/")[0])
        self.node.host.node.write_atomic(path, data)

    def read(self, path: str) -> bytes | None:
        node = self.node.host.node
        return node.read_bytes(path) if node.exists(path) else None

    def apply(self, *, default: bool | None = None) -> ChangePlan:
        plan = change_runtime(self.system(default=default), RuntimeAction.APPLY, lambda plan: None)
        assert plan is not None
        return plan

    def revert(self) -> None:
        change_runtime(self.system(), RuntimeAction.REVERT, lambda plan: None)

    def files(self) -> dict[str, bytes | None]:
        paths = [CONFIG, *(f"{FOLDER}/{name}" for name in self.node.host.node.list_dir(FOLDER))]
        return {path: self.read(path) for path in paths}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=FakeContainerd(node=node))


def test_a_change_that_the_daemon_could_not_serve_with_is_refused_before_anything_is_written(
    bench: Bench,
) -> None:
    """The file on disk has no runc; the daemon runs with an older one, and would not come back."""
    bench.write(CONFIG, b"version = 2\n" + NVIDIA.replace(b"nvidia", b"kata"))
    before = bench.files()
    with pytest.raises(Unsupported, match="could not serve pods after its next restart") as caught:
        bench.apply()
    assert "runc" in caught.value.details[0]
    assert caught.value.resolution.endswith("nothing was changed")
    assert (bench.files(), bench.daemon.starts, journal.entries(bench.node.host)) == (before, 1, ())


def test_a_file_that_waits_for_our_handler_is_told_of_and_mended(bench: Bench) -> None:
    """People name the default first, and install the toolkit then."""
    bench.write(CONFIG, ROOT + f'[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'.encode())
    news, note = bench.apply().notes
    assert news == f"a restart puts this in force, too: {CONFIG}, which changed since the daemon's start"
    assert note == (
        "containerd could not serve pods with the files as they are, and can with this change: "
        "its default runtime is nvidia, and its runtimes are: runc"
    )
    assert bench.apply().notes == ()


def test_a_revert_that_would_take_the_default_runtime_away_is_refused(bench: Bench) -> None:
    """Somebody made our handler the default, in a file of their own."""
    bench.apply()
    default = f'[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'
    bench.write(CONFIG, (bench.read(CONFIG) or b"") + default.encode())
    files = bench.files()
    with pytest.raises(Unsupported, match="could not serve pods") as caught:
        bench.revert()
    assert "its default runtime is nvidia" in caught.value.details[0]
    assert bench.files() == files


def test_what_is_different_in_a_handler_that_was_there_is_told(bench: Bench) -> None:
    runc = b"[" + CRI2.encode() + b".containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    bench.write(CONFIG, ROOT + runc + NVIDIA)
    bench.daemon.restart()
    plan = bench.apply()
    [note] = plan.notes
    assert note.startswith("the handler nvidia was there already: ")
    assert note.endswith("options.SystemdCgroup: (not set) -> True")
    assert b"site/*" in (bench.read(DROP_IN) or b"")


def test_a_neighbour_that_nobody_imports_stays_out_of_force(bench: Bench) -> None:
    """It may be broken, or an old experiment: the glob would bring it in."""
    bench.write(f"{FOLDER}/old.toml", b"broken [")
    before = bench.files()
    bench.apply()
    assert parse(bench.read(CONFIG) or b"", CONFIG)["imports"] == [DROP_IN]
    starts = bench.daemon.starts
    bench.apply()
    assert bench.daemon.starts == starts
    plan = plan_of(bench.system(), RuntimeAction.REVERT)
    assert plan is not None
    assert [file.path for file in plan.writes] == [CONFIG, DROP_IN], "it does not start without what it names"
    bench.revert()
    assert bench.files() == before


def test_a_file_that_came_into_force_by_our_import_stays_so(bench: Bench) -> None:
    """Somebody put it there after us, and restarted the runtime."""
    bench.apply()
    bench.write(f"{FOLDER}/10-site.toml", SITE + ROOT.removeprefix(b"version = 2\n"))
    bench.daemon.restart()
    bench.apply()
    section = bench.daemon.running["plugins"]["io.containerd.grpc.v1.cri"]  # type: ignore[index]
    assert section["registry"] == {"config_path": "/etc/containerd/certs.d"}
    starts = bench.daemon.starts
    bench.apply()
    assert bench.daemon.starts == starts
    bench.revert()
    assert bench.read(CONFIG) == ROOT


def test_a_file_that_would_win_over_ours_is_outdone_and_forgotten_when_it_goes(bench: Bench) -> None:
    bench.write(CONFIG, IMPORT + ROOT)
    bench.write(f"{FOLDER}/zz-site.toml", SITE + ROOT.removeprefix(b"version = 2\n"))
    bench.daemon.restart()
    before = bench.files()
    plan = bench.apply()
    assert plan.daemon.drop_in == f"{FOLDER}/zzzz-nvidia.toml"
    assert any("zzzz-nvidia.toml" in line for line in plan.daemon.evidence)
    assert set(bench.files()) == {*before, f"{FOLDER}/zzzz-nvidia.toml"}
    starts = bench.daemon.starts
    bench.apply()
    assert bench.daemon.starts == starts
    bench.node.host.node.remove(f"{FOLDER}/zz-site.toml")
    bench.apply()
    assert set(bench.files()) == {CONFIG, DROP_IN}
    bench.revert()
    assert bench.files() == {CONFIG: IMPORT + ROOT}


def test_a_file_that_is_mounted_by_itself_is_written_in_place(bench: Bench) -> None:
    """kind's and k3d's nodes: nothing can be renamed over a mount point of the node."""
    node = bench.node.host.node
    line = f"40 21 8:1 /var/lib/kind/config.toml {CONFIG} rw,relatime - ext4 /dev/sda1 rw\n"
    bench.write("/proc/1/mountinfo", line.encode())
    bench.node.files.fuse.refused = frozenset({CONFIG})
    before = node.identity(CONFIG)
    bench.apply()
    assert b"imports" in (bench.read(CONFIG) or b"")
    bench.revert()
    assert (bench.read(CONFIG), node.identity(CONFIG)) == (ROOT, before)
