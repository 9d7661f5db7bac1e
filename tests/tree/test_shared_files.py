"""A file that several runs write: one at a time, with its mode, and nothing left behind by a failure."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from driverforge_build.sharedfile import alone, read_json, replace_text
from driverforge_core.errors import StorageFailed


def test_one_run_at_a_time_merges(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with alone(tmp_path / "a.json"), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)


def test_a_folder_that_is_not_there_is_the_writers_error(tmp_path: Path) -> None:
    with alone(tmp_path / "none" / "a.json"), pytest.raises(StorageFailed, match="cannot write"):
        replace_text(tmp_path / "none" / "a.json", "x", option="--lock")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    (file := tmp_path / "a.json").touch()
    file.chmod(mode)
    replace_text(file, "new", option="--lock")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", mode)


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """A temporary file is for its owner alone, and a lock is for all who build."""
    (tmp_path / "usual").touch()
    replace_text(tmp_path / "a.json", "new", option="--lock")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (folder := tmp_path / "a.json").mkdir()
    with pytest.raises(StorageFailed, match="cannot write") as told:
        replace_text(folder, "new", option="--covered")
    assert "--covered" in told.value.resolution
    assert list(tmp_path.iterdir()) == [folder]


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path: Path) -> None:
    """Else a machine that goes down leaves an empty lock: some file systems write names before contents."""
    calls = []

    def watch(_: object, event: str, call: object) -> None:
        if event == "c_call" and (call is os.fsync or call is os.replace):
            calls.append(call)

    sys.setprofile(watch)
    try:
        replace_text(tmp_path / "a.json", "new", option="--lock")
    finally:
        sys.setprofile(None)
    assert calls == [os.fsync, os.replace]


def test_a_name_stands_once_in_an_object() -> None:
    assert read_json('{"a": {"b": 1}, "c": {"b": 1}}') == {"a": {"b": 1}, "c": {"b": 1}}
    with pytest.raises(ValueError, match="'b' stands twice"):
        read_json('{"a": {"b": 1, "b": 1}}')
