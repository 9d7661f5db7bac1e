"""What `init` and `load` hand on to a compilation on the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverctl.cli import run
from driverforge_core.errors import InputError, NotPermitted
from driverforge_driver.compile.job import WORK
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeimage import write_image


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node whose image has to compile, and a mounted folder for header packages that is empty."""
    made = fake_node(tmp_path)
    made.files.remove_tree("/opt")
    write_image(made.files, modules=False, sources={"open": "/usr/src/nvidia/kernel-open"})
    made.files.make_dirs("/etc")
    made.files.write_atomic("/etc/os-release", b"ID=debian\nVERSION_ID=12\n")
    made.commands.programs["nproc"] = lambda _: (0, "2\n", "")
    return made


@pytest.mark.parametrize("command", ["init", "load"])
def test_given_headers_and_work_folder_reach_the_compilation(node: FakeNode, command: str) -> None:
    with pytest.raises(InputError, match=r"no \.deb files in /headers"):
        run([command, "--headers", "/headers", "--work-dir", "/scratch"], lambda: node.host)
    assert node.files.exists("/scratch")
    assert not node.files.exists(WORK)
    assert node.kernel.calls == []


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_work_folder_that_somebody_else_put_there_is_not_used(node: FakeNode, planted: str) -> None:
    """On a host anybody may write to /var/tmp."""
    place = Path(node.files.real(WORK))
    place.parent.mkdir(parents=True)
    if planted == "link":
        place.symlink_to(place.parent)
    else:
        place.write_text("theirs")
    with pytest.raises(NotPermitted, match=f"not a folder of ours: {WORK}") as caught:
        run(["load", "--headers", "/headers"], lambda: node.host)
    assert "link" in caught.value.details[0]
    assert [path.name for path in place.parent.iterdir()] == ["driverforge"]
