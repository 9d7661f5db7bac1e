"""Sources and releases of the toolkit that are not what they should be."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import DriverforgeError, StorageFailed
from driverforge_toolkit.toolkit import releases
from driverforge_toolkit.toolkit.install import install_release
from driverforge_toolkit.toolkit.release_plan import wanted_release
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import settings_of
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import NODE, FakeNode, fake_node
from support.samples.toolkitsource import write_source

BASE = "/usr/local/nvidia"
BIN = "/artifacts/deb/usr/bin"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    write_source(Path(made.files.real("/artifacts/deb")))
    return made


def installed(node: FakeNode) -> None:
    install_release(node.host, wanted_release(node.host, settings_of({}, {})))


def test_no_program_of_an_image_becomes_setuid_on_the_node(node: FakeNode) -> None:
    Path(node.files.real(f"{BIN}/nvidia-container-cli")).chmod(0o4755)
    installed(node)
    for name in ("nvidia-container-cli", "nvidia-container-cli.real"):
        found = node.host.node.metadata(f"{BASE}/toolkit/{name}")
        assert found is not None
        assert found.mode == 0o755


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_something_else_in_the_place_of_a_program_installs_nothing(node: FakeNode, kind: str) -> None:
    place = Path(node.files.real(f"{BIN}/nvidia-ctk"))
    place.unlink()
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(DriverforgeError):
        installed(node)
    assert not node.host.node.exists(f"{BASE}/toolkit")


class Busy(FakeFiles):
    """Something is mounted in one of the releases."""

    def remove_tree(self, path: str) -> None:
        if path.endswith("/a-busy"):
            raise StorageFailed(
                f"failed removing {path}", details=["a mount point is in the way (errno EBUSY)"]
            )
        super().remove_tree(path)


def test_a_release_that_cannot_be_removed_keeps_no_other(node: FakeNode) -> None:
    """`toolkit run` collects after each installation: it has to start all the same."""
    installed(node)
    host = node.host
    for name in ("a-busy", "old"):
        host.node.make_dirs(f"{BASE}/releases/{name}")
    busy = replace(host, node=Busy(node.places, node.files.fuse, NODE))
    assert releases.remove_unused(busy, Layout(install_dir=BASE)) == ("old",)
