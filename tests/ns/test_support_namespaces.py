"""Mounts of a thread's own, as the runtimes' nodes have them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.machines.namespaces import own_mounts
from support.process import run
from support.skipping import provided


def test_what_is_mounted_inside_is_gone_outside_and_the_working_directory_stays(tmp_path: Path) -> None:
    place, here = tmp_path / "place", Path.cwd()
    place.mkdir()
    with ExitStack() as stack:
        provided(lambda: stack.enter_context(own_mounts()))
        run("mount", "-t", "tmpfs", "own", place)
        (place / "file").write_text("")
        assert Path.cwd() == here
        assert str(place) not in Path("/proc/1/mounts").read_text()
    assert list(place.iterdir()) == []
    assert Path.cwd() == here
