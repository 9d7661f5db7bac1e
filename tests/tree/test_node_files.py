"""Files of a node through the real adapter: links under another root, atomic writes, trees, full devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driverforge_core.errors import NotPermitted, StorageFailed
from driverforge_host.adapters.files import RootedFiles


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib/modules").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "etc").mkdir()
    (root / "etc/os-release").symlink_to("/usr/lib/os-release")
    (root / "usr/lib/os-release").write_text("ID=inside\n")
    (root / "climb").symlink_to("../../../../../etc/os-release")
    files = RootedFiles(str(root))
    assert files.read_text("/etc/os-release") == "ID=inside\n"
    assert files.read_text("/climb") == "ID=inside\n"
    assert files.resolve("/lib/modules") == "/usr/lib/modules"
    files.write_atomic("/etc/os-release", b"ID=new\n")
    assert (root / "etc/os-release").is_symlink()
    assert (root / "usr/lib/os-release").read_text() == "ID=new\n"


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("/a")
    with pytest.raises(StorageFailed, match="too many levels"):
        RootedFiles(str(tmp_path)).read_text("/a")


def test_an_atomic_write_keeps_the_mode_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    files = RootedFiles(str(tmp_path))
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret").chmod(0o600)
    files.write_atomic("/secret", b"new")
    files.write_atomic("/fresh", b"new")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o644
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "secret"]
    with pytest.raises(StorageFailed, match="failed writing /missing/file"):
        files.write_atomic("/missing/file", b"")


def test_a_full_device_says_so_and_what_to_do() -> None:
    with pytest.raises(StorageFailed, match="no space left while writing /dev/full") as caught:
        RootedFiles().write_in_place("/dev/full", b"x")
    assert caught.value.details == ("No space left on device (errno ENOSPC)",)
    assert "df -h" in caught.value.resolution


def test_writing_in_place_replaces_the_whole_text(tmp_path: Path) -> None:
    (tmp_path / "value").write_text("a long old value")
    inode = (tmp_path / "value").stat().st_ino
    RootedFiles(str(tmp_path)).write_in_place("/value", b"new")
    assert (tmp_path / "value").read_text() == "new"
    assert (tmp_path / "value").stat().st_ino == inode


def test_trees_go_and_copies_come_whole(tmp_path: Path) -> None:
    files = RootedFiles(str(tmp_path))
    files.make_dirs("/a/b/c")
    files.write_atomic("/a/b/file", b"x", mode=0o755)
    files.symlink("/etc/passwd", "/a/b/link")
    files.symlink("/etc/group", "/a/b/link")
    files.copy("/a/b/file", "/a/copy")
    assert str((tmp_path / "a/b/link").readlink()) == "/etc/group"
    assert (tmp_path / "a/copy").stat().st_mode & 0o777 == 0o755
    assert files.list_dir("/a") == ("b", "copy")
    files.remove_tree("/a")
    files.remove_tree("/a")
    assert not (tmp_path / "a").exists()
    assert Path("/etc/group").exists()
    assert files.list_dir("/a") == ()
    assert files.size("/a") is None
    assert files.free_bytes("/not/yet/there") > 0  # of the parent; how many changes while others write


def test_a_private_folder_is_made_or_taken_over_for_us_alone(tmp_path: Path) -> None:
    files = RootedFiles(str(tmp_path))
    files.make_private_dir("/new/work")
    assert (tmp_path / "new/work").stat().st_mode & 0o7777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    files.make_private_dir("/open")
    assert (tmp_path / "open").stat().st_mode & 0o7777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(NotPermitted, match="not a folder of ours: /theirs") as caught:
        RootedFiles(str(tmp_path)).make_private_dir("/theirs")
    assert caught.value.details == ("it belongs to user 65534, and we are user 0",)
    assert (tmp_path / "theirs").stat().st_mode & 0o7777 == 0o755


def test_a_dangling_link_is_no_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "work").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPermitted, match="not a folder of ours: /work"):
        RootedFiles(str(tmp_path)).make_private_dir("/work")
    assert not (tmp_path / "elsewhere").exists()
