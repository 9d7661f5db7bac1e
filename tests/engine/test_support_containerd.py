"""The bench's containerd 1.6: private, in namespaces of its own, gone when it is stopped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed
from support.machines import containerd, ociarchive
from support.process import missing, run, running
from support.skipping import provided

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(missing("busybox")), reason="needs root and busybox"
)


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_it_is_16_and_unpacks_images_without_a_trace_on_the_machine(home: Path) -> None:
    provided(containerd.programs)
    archive = home / "image.tar"
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    ociarchive.write(archive, [{"bin/busybox": busybox, "gone": b"x"}, {".wh.gone": b"", "there": b"yes"}])
    mounts = Path("/proc/self/mountinfo").read_text()
    with containerd.launch(home / "c") as daemon:
        assert run(daemon.prefix / "usr/bin/containerd", "--version").stdout.split()[2].startswith("1.6.")
        daemon.ctr("images", "import", "--base-name", "bench.test/x", "--digests", archive)
        assert daemon.ctr("snapshots", "ls").stdout.count("Committed") == 2
        pid = daemon.pid
        assert running(pid)
        assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not running(pid)
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_two_do_not_disturb_each_other(home: Path) -> None:
    provided(containerd.programs)
    with containerd.launch(home / "a") as first, containerd.launch(home / "b") as second:
        assert first.address != second.address
        assert second.ctr("namespaces", "ls", "-q").status == 0
        first.stop()
        assert second.ctr("version").status == 0


def test_a_configuration_that_it_cannot_read_is_shown_with_its_words(home: Path) -> None:
    provided(containerd.programs)
    with pytest.raises(CommandFailed) as failure:
        containerd.launch(home / "c", config="version = [\n")
    assert "toml" in "\n".join(failure.value.details).lower()
