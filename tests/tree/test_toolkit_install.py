"""Releases of the toolkit in a folder that stands for the node.

Installed, installed again, upgraded, put over NVIDIA's own, killed, and collected.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import InputError, TemporaryFailure
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.processes import KernelProcesses
from driverforge_toolkit.toolkit import releases, toolkit_status
from driverforge_toolkit.toolkit.install import LOCK, InstalledRelease, exclusive_toolkit, install_release
from driverforge_toolkit.toolkit.release_plan import wanted_release
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import ToolkitSettings, settings_of
from driverforge_toolkit.toolkit.wrapper import WRAPPED
from support.fakes.fakefiles import Killed
from support.fakes.fakehost import FakeNode, FakeProcess, fake_node
from support.samples.toolkitsource import VERSION, write_source

BASE = "/usr/local/nvidia"
LAYOUT = Layout(install_dir=BASE)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    write_source(Path(made.files.real("/artifacts/deb")))
    return made


def settings(**flags: str) -> ToolkitSettings:
    return settings_of(flags, {})


def installed(node: FakeNode, **flags: str) -> InstalledRelease:
    return install_release(node.host, wanted_release(node.host, settings(**flags)))


def on_node(node: FakeNode, path: str) -> Path:
    return Path(node.host.node.real(path))


def tree(node: FakeNode) -> dict[str, tuple[int, int]]:
    """Every path of the installation with its inode and time."""
    top = on_node(node, BASE)
    return {
        str(path.relative_to(top)): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in top.rglob("*")
    }


def test_a_first_installation(node: FakeNode) -> None:
    done = installed(node)
    assert done.switched
    assert done.release.startswith(f"{VERSION}-")
    assert str((on_node(node, BASE) / "toolkit").readlink()) == f"releases/{done.release}"
    folder = on_node(node, LAYOUT.toolkit)
    for name in WRAPPED:
        assert (folder / f"{name}.real").read_text() == f"{name}\n"
        assert os.access(folder / name, os.X_OK)
    assert (folder / "nvidia-cdi-hook").read_text() == "nvidia-cdi-hook\n"
    assert str((folder / "libnvidia-container.so.1").readlink()) == f"libnvidia-container.so.{VERSION}"
    assert str((folder / "nvidia-container-toolkit").readlink()) == "nvidia-container-runtime-hook"


def test_a_second_time_writes_nothing(node: FakeNode) -> None:
    installed(node)
    before = tree(node)
    done = installed(node)
    assert (done.written, done.switched) == (0, False)
    assert tree(node) == before


def test_a_damaged_file_of_the_release_in_force_is_repaired(node: FakeNode) -> None:
    first = installed(node)
    hook = on_node(node, f"{LAYOUT.toolkit}/nvidia-cdi-hook")
    hook.write_text("")
    (on_node(node, LAYOUT.toolkit) / "nvidia-container-toolkit").unlink()
    done = installed(node)
    assert (done.release, done.written) == (first.release, 2)
    assert hook.read_text() == "nvidia-cdi-hook\n"


def upgraded(node: FakeNode) -> tuple[InstalledRelease, InstalledRelease]:
    first = installed(node)
    write_source(Path(node.files.real("/artifacts/deb")), programs={"nvidia-ctk": "newer\n"})
    return first, installed(node)


def test_an_upgrade_keeps_the_earlier_release_and_what_a_person_wrote(node: FakeNode) -> None:
    first = installed(node)
    config = on_node(node, LAYOUT.config)
    config.write_text("# ours\n" + config.read_text().replace('log-level = "info"', 'log-level = "debug"'))
    config.chmod(0o600)
    first, second = upgraded(node)
    assert first.release != second.release
    assert on_node(node, f"{LAYOUT.toolkit}/nvidia-ctk.real").read_text() == "newer\n"
    assert on_node(node, f"{LAYOUT.release(first.release)}/nvidia-ctk.real").read_text() == "nvidia-ctk\n"
    text = on_node(node, LAYOUT.config).read_text()
    assert text.startswith("# ours\n")
    assert 'log-level = "debug"' in text
    assert second.kept == ("nvidia-container-runtime.log-level",)


def test_a_broken_config_toml_stops_the_installation_and_nothing_is_changed(node: FakeNode) -> None:
    installed(node)
    on_node(node, LAYOUT.config).write_text("x = \n")
    before = tree(node)
    with pytest.raises(InputError, match="not valid TOML"):
        upgraded(node)
    assert tree(node) == before


def test_missing_sources_are_told_all_at_once_and_nothing_is_changed(node: FakeNode) -> None:
    installed(node)
    before = tree(node)
    source = Path(node.files.real("/artifacts/deb/usr"))
    (source / "bin/nvidia-ctk").unlink()
    (source / "lib/x86_64-linux-gnu/libnvidia-container.so.1").unlink()
    with pytest.raises(InputError) as caught:
        installed(node)
    assert [line.split(" in ")[0] for line in caught.value.details] == [
        "missing: libnvidia-container.so.1",
        "missing: usr/bin/nvidia-ctk",
    ]
    assert tree(node) == before


@pytest.mark.parametrize(
    ("programs", "image", "wanted_type", "taken"),
    [
        (["dpkg"], ["deb", "rpm"], "auto", "deb"),
        (["dpkg", "rpm"], ["deb", "rpm"], "auto", "rpm"),  # rpm is looked for first
        ([], ["deb", "rpm"], "auto", "deb"),
        (["rpm"], ["deb"], "auto", "deb"),  # the only one that the image has
        (["rpm"], ["deb"], "rpm", "rpm"),
        (["dpkg"], ["deb", "rpm"], "rpm", "rpm"),
    ],
)
def test_which_files_are_taken(
    tmp_path: Path, programs: list[str], image: list[str], wanted_type: str, taken: str
) -> None:
    node = fake_node(tmp_path, gpu=False)
    for kind in image:
        write_source(Path(node.files.real(f"/artifacts/{kind}")), rpm=kind == "rpm")
    node.host.node.make_dirs("/usr/bin")
    for program in programs:
        node.host.node.write_atomic(f"/usr/bin/{program}", b"")
    assert wanted_release(node.host, settings(package_type=wanted_type)).source == f"/artifacts/{taken}"


def nvidias_own(node: FakeNode) -> Path:
    """INSTALL_DIR/toolkit as NVIDIA's installer leaves it: a folder."""
    folder = on_node(node, BASE) / "toolkit"
    (folder / ".config/nvidia-container-runtime").mkdir(parents=True)
    (folder / "nvidia-ctk.real").write_text("theirs\n")
    (folder / ".config/nvidia-container-runtime/config.toml").write_text(
        '# site\nswarm-resource = "GPU"\n[site]\nx = 1\n'
    )
    return folder


def test_nvidias_own_folder_goes_aside_in_one_step(node: FakeNode) -> None:
    inode = nvidias_own(node).stat().st_ino
    done = installed(node)
    assert done.aside == LAYOUT.release(f"before-{done.release}-1")
    assert on_node(node, done.aside).stat().st_ino == inode, (
        "the very folder, so that whoever runs from it goes on"
    )
    assert on_node(node, f"{done.aside}/nvidia-ctk.real").read_text() == "theirs\n"
    text = on_node(node, LAYOUT.config).read_text()
    assert text.startswith("# site\n")
    assert "[site]" in text
    # NVIDIA's installer is run again (a switch back), then ours
    on_node(node, BASE).joinpath("toolkit").unlink()
    nvidias_own(node)
    assert installed(node).aside == LAYOUT.release(f"before-{done.release}-2")


@given(st.lists(st.integers(min_value=0, max_value=40), max_size=4), st.booleans())
def test_killed_anywhere_the_link_leads_to_a_whole_release(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], theirs: bool
) -> None:
    node = fake_node(tmp_path_factory.mktemp("node"), gpu=False)
    write_source(Path(node.files.real("/artifacts/deb")))
    if theirs:
        nvidias_own(node)
    for number, changes in enumerate(kills):
        write_source(
            Path(node.files.real("/artifacts/deb")), programs={"nvidia-ctk": f"version {number % 2}\n"}
        )
        node.files.fuse.changes = changes
        with suppress(Killed):
            installed(node)
        node.files.fuse.changes = None
        if (release := LAYOUT.current(node.host.node)) != "":
            assert whole(node, release)
        elif theirs:
            assert on_node(node, f"{LAYOUT.toolkit}/nvidia-ctk.real").read_text() == "theirs\n"
    done = installed(node)
    assert LAYOUT.current(node.host.node) == done.release
    assert whole(node, done.release)
    releases.remove_unused(node.host, LAYOUT)
    assert on_node(node, LAYOUT.releases).joinpath(done.release).is_dir()
    assert [path.name for path in on_node(node, LAYOUT.releases).iterdir()] == [done.release]


def whole(node: FakeNode, release: str) -> bool:
    folder = on_node(node, LAYOUT.release(release))
    names = {
        *WRAPPED,
        *(f"{name}.real" for name in WRAPPED),
        "nvidia-cdi-hook",
        "libnvidia-container.so.1",
        "libnvidia-container-go.so.1",
    }
    return all((folder / name).exists() for name in names) and on_node(node, LAYOUT.config).is_file()


def test_of_two_instances_one_goes_first(node: FakeNode) -> None:
    with exclusive_toolkit(node.host):
        with pytest.raises(TemporaryFailure, match="another driverctl"), exclusive_toolkit(node.host):
            pytest.fail("both are in")
        assert on_node(node, LOCK).exists()
    assert not on_node(node, LOCK).exists()


def test_a_release_goes_when_nobody_uses_it(node: FakeNode) -> None:
    first, second = upgraded(node)
    container = FakeProcess(
        pid=7, command="nvidia-ctk", holds=(f"/mnt/nvidia/releases/{first.release}/nvidia-ctk.real",)
    )
    node.processes.add(container)
    assert releases.remove_unused(node.host, LAYOUT) == ()
    found = toolkit_status.observe_toolkit(node.host, settings())
    assert found.release == second.release
    assert "process 7 (nvidia-ctk" in found.others[first.release]
    node.processes.running.clear()
    assert releases.remove_unused(node.host, LAYOUT) == (first.release,)
    assert releases.remove_unused(node.host, LAYOUT) == ()
    assert [release.name for release in releases.releases_of(node.host, LAYOUT)] == [second.release]


def test_without_a_release_of_ours_in_force_nothing_is_collected(node: FakeNode) -> None:
    upgraded(node)
    on_node(node, BASE).joinpath("toolkit").unlink()
    nvidias_own(node)
    assert releases.remove_unused(node.host, LAYOUT) == ()
    assert toolkit_status.observe_toolkit(node.host, settings()).release == "not ours"


@contextmanager
def process(*words: str | Path, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has started and waits."""
    with subprocess.Popen(
        [str(word) for word in words], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"up\n"
            yield running
        finally:
            running.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("how", ["script", "cwd"])
def test_real_processes_are_found_under_whatever_they_stand_on(tmp_path: Path, how: str) -> None:
    release = tmp_path / "releases/1-abc"
    release.mkdir(parents=True)
    script = release / "program"
    script.write_text("#!/bin/sh\necho up\nread -r line\n")
    script.chmod(0o755)
    command = [script] if how == "script" else ["/bin/sh", "-c", "echo up; read -r line"]
    with process(*command, cwd=release if how == "cwd" else tmp_path) as running:
        assert running.pid in {holder.pid for holder in KernelProcesses().users("/releases/1-abc")}
    assert KernelProcesses().users("/releases/1-abc") == ()


def test_two_names_are_swapped_on_a_real_file_system(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x").write_text("1")
    (tmp_path / "link").symlink_to("elsewhere")
    RootedFiles().exchange(f"{tmp_path}/link", f"{tmp_path}/folder")
    assert str((tmp_path / "folder").readlink()) == "elsewhere"
    assert (tmp_path / "link/x").read_text() == "1"
