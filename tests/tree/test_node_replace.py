"""A file that two write at once: real files, real threads. What somebody else writes is never lost."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from driverforge_core.errors import StorageFailed
from driverforge_host.adapters.fileops import exchange_names, move_to_free_name
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.replace import Renaming, replace_bytes
from driverforge_host.ports import Metadata

ROUNDS = 150
OLD, OURS = b"old\n", b"ours\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def replace(file: Path, before: bytes | None, after: bytes | None) -> bool:
    return RootedFiles().replace_bytes(str(file), before=before, after=after)


@pytest.mark.parametrize(("before", "after"), [(OLD, OURS), (None, OURS), (OLD, None)])
def test_bytes_are_replaced_and_nothing_is_left_beside(
    file: Path, before: bytes | None, after: bytes | None
) -> None:
    if before is not None:
        file.write_bytes(before)
        file.chmod(0o640)
    assert replace(file, before, after)
    assert (file.read_bytes() if file.exists() else None) == after
    assert list(file.parent.iterdir()) == ([file] if after else [])
    if before and after:
        assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("before", "there", "after"),
    [
        (OLD, b"theirs\n", OURS),
        (OLD, None, OURS),
        (None, b"theirs\n", OURS),
        (OLD, b"theirs\n", None),
        (OLD, None, None),
    ],
)
def test_other_bytes_stay(file: Path, before: bytes | None, there: bytes | None, after: bytes | None) -> None:
    if there is not None:
        file.write_bytes(there)
    assert not replace(file, before, after)
    assert (file.read_bytes() if file.exists() else None) == there
    assert list(file.parent.iterdir()) == ([file] if there else [])


def test_a_folder_that_took_the_files_place_stays(file: Path) -> None:
    file.mkdir()
    (file / "theirs").touch()
    with pytest.raises(StorageFailed, match="writing"):
        replace(file, OLD, OURS)
    assert (file / "theirs").exists()


@pytest.mark.parametrize(("before", "after"), [(OLD, OURS), (None, OURS), (OLD, None)])
@pytest.mark.parametrize("versions", [1, 20])
def test_who_writes_at_the_same_moment_loses_nothing(
    file: Path, before: bytes | None, after: bytes | None, versions: int
) -> None:
    """They write whole files, as everybody should, and do not look at ours: their last one has to stay."""
    last = b"theirs %d\n" % (versions - 1)
    for _ in range(ROUNDS // versions):
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)
        both = threading.Barrier(2)

        def they(both: threading.Barrier = both) -> None:
            both.wait()
            for number in range(versions):
                draft = file.with_suffix(".theirs")
                draft.write_bytes(b"theirs %d\n" % number)
                draft.replace(file)

        other = threading.Thread(target=they)
        other.start()
        both.wait()
        replace(file, before, after)
        other.join()
        assert file.read_bytes() == last
        assert list(file.parent.iterdir()) == [file]


def busy(file: Path, *versions: bytes | None) -> Renaming:
    """A kernel in which somebody writes a version of the file before each of our renames; None: nobody."""
    waiting = list(versions)

    def first(rename: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def renamed(source: str, target: str) -> None:
            if waiting and (theirs := waiting.pop(0)) is not None:
                draft = file.with_suffix(".theirs")
                draft.write_bytes(theirs)
                draft.replace(file)
            rename(source, target)

        return renamed

    return Renaming(exchange=first(exchange_names), move=first(move_to_free_name))


@pytest.mark.parametrize("versions", [(b"2\n",), (b"2\n", b"3\n"), (b"2\n", b"3\n", b"4\n")])
def test_what_they_write_while_theirs_goes_back_is_not_lost_either(
    file: Path, versions: tuple[bytes, ...]
) -> None:
    file.write_bytes(b"1\n")
    kernel = busy(file, None, *versions)
    assert not replace_bytes(str(file), before=OLD, after=OURS, renaming=kernel)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (versions[-1], [file])


def test_what_they_write_where_a_file_was_taken_away_stays(file: Path) -> None:
    file.write_bytes(b"1\n")
    kernel = busy(file, b"2\n")
    assert not replace_bytes(str(file), before=OLD, after=None, renaming=kernel)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (b"2\n", [file])


def cannot(source: str, target: str) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def busy_mount(source: str, target: str) -> None:
    raise OSError(errno.EBUSY, "Device or resource busy")


def test_a_file_system_that_cannot_swap_names_is_written_all_the_same(file: Path) -> None:
    kernel = Renaming(exchange=cannot)
    file.write_bytes(OLD)
    assert replace_bytes(str(file), before=OLD, after=OURS, renaming=kernel)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (OURS, [file])
    assert not replace_bytes(str(file), before=OLD, after=b"more\n", renaming=kernel)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (OURS, [file])


def test_a_file_that_is_a_mount_point_stays_and_nothing_is_left_beside_it(file: Path) -> None:
    file.write_bytes(OLD)
    with pytest.raises(OSError, match="busy"):
        replace_bytes(str(file), before=OLD, after=OURS, renaming=Renaming(exchange=busy_mount))
    assert (file.read_bytes(), list(file.parent.iterdir())) == (OLD, [file])


def test_a_draft_that_cannot_be_written_goes_away(file: Path) -> None:
    beside(file, "swap").mkdir()  # so that the draft cannot get that name
    file.write_bytes(OLD)
    with pytest.raises(OSError, match="directory"):
        replace_bytes(str(file), before=OLD, after=OURS)
    assert not beside(file, "draft").exists()


def test_a_new_file_gets_the_mode_that_it_had_once(file: Path) -> None:
    metadata = Metadata(mode=0o600, user=os.getuid(), group=os.getgid())
    assert RootedFiles().replace_bytes(str(file), before=None, after=OURS, metadata=metadata)
    assert file.stat().st_mode & 0o777 == 0o600


# --- killed in the middle


def settle(file: Path) -> bool:
    return RootedFiles().settle_bytes(str(file), before=OLD, after=OURS)


def beside(file: Path, end: str) -> Path:
    return file.with_name(f".{file.name}.driverforge-{end}")


@pytest.mark.parametrize(("there", "swap"), [(OLD, OURS), (OURS, OLD), (b"theirs\n", OURS)])
def test_what_is_left_of_ours_goes_away(file: Path, there: bytes, swap: bytes) -> None:
    file.write_bytes(there)
    beside(file, "draft").write_bytes(b"ou")
    beside(file, "swap").write_bytes(swap)
    assert not settle(file)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (there, [file])


@pytest.mark.parametrize("there", [OLD, OURS, b"theirs\n"])
def test_where_nothing_is_left_nothing_is_done(file: Path, there: bytes) -> None:
    file.write_bytes(there)
    assert not settle(file)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (there, [file])


def test_theirs_that_was_swapped_out_comes_back(file: Path) -> None:
    file.write_bytes(OURS)
    beside(file, "swap").write_bytes(b"theirs\n")
    assert settle(file)
    assert (file.read_bytes(), list(file.parent.iterdir())) == (b"theirs\n", [file])


def test_of_two_versions_of_somebody_elses_none_is_taken_away(file: Path) -> None:
    file.write_bytes(b"theirs, later\n")
    beside(file, "swap").write_bytes(b"theirs\n")
    assert not settle(file)
    assert (file.read_bytes(), beside(file, "swap").read_bytes()) == (b"theirs, later\n", b"theirs\n")
