"""The bench's cache: made once, waited for, never half."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from support import cache


def _make(folder: Path) -> None:
    (folder / "made").write_text("by the first")


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    first = cache.cached("thing", {"a": 1}, _make, base=tmp_path)
    second = cache.cached("thing", {"a": 1}, lambda folder: pytest.fail("made again"), base=tmp_path)
    assert first == second
    assert (second / "made").read_text() == "by the first"


def test_other_inputs_are_another_entry(tmp_path: Path) -> None:
    assert cache.cached("thing", {"a": 1}, _make, base=tmp_path) != cache.cached(
        "thing", {"a": 2}, _make, base=tmp_path
    )
    assert cache.key({"a": 1, "b": 2}) == cache.key({"b": 2, "a": 1})


def test_a_failure_leaves_nothing_and_the_next_call_tries_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.cached("thing", {"a": 1}, fail, base=tmp_path)
    assert [path for path in (tmp_path / "thing").iterdir() if path.is_dir()] == []
    assert (cache.cached("thing", {"a": 1}, _make, base=tmp_path) / "made").exists()


def test_what_a_killed_run_left_is_not_taken_for_an_entry(tmp_path: Path) -> None:
    draft = tmp_path / "thing" / f"{cache.key({'a': 1})}.draft"
    draft.mkdir(parents=True)
    (draft / "half").touch()
    assert [path.name for path in cache.cached("thing", {"a": 1}, _make, base=tmp_path).iterdir()] == ["made"]


def _count(base: Path, started: int, go: int) -> None:
    """In a child process: say that it runs, wait for the others, use the entry.

    Each making adds a line to a file.
    """

    def make(folder: Path) -> None:
        with (base / "makings").open("a") as log:
            log.write("made\n")
        (folder / "made").touch()

    os.write(started, b".")
    os.read(go, 1)
    assert (cache.cached("thing", {}, make, base=base) / "made").exists()


def test_parallel_workers_wait_for_the_one_that_makes_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    (started, tell), (go, release) = os.pipe(), os.pipe()
    workers = [context.Process(target=_count, args=(tmp_path, tell, go)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in workers:
        os.read(started, 1)
    os.write(release, b"....")
    for worker in workers:
        worker.join()
    for descriptor in (started, tell, go, release):
        os.close(descriptor)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert (tmp_path / "makings").read_text() == "made\n"


def test_unused_entries_are_pruned(tmp_path: Path) -> None:
    old = cache.cached("thing", {"a": 1}, _make, base=tmp_path)
    new = cache.cached("thing", {"a": 2}, _make, base=tmp_path)
    long_ago = old.stat().st_mtime - 40 * 86400
    os.utime(old, (long_ago, long_ago))
    assert cache.prune(days=30, base=tmp_path) == (old,)
    assert not old.exists()
    assert new.exists()


def test_what_was_just_made_is_not_pruned_whatever_its_date(tmp_path: Path) -> None:
    """Unpacking a package sets the folder's time to the package's."""
    made = cache.cached("thing", {"a": 1}, lambda folder: os.utime(folder, (0, 0)), base=tmp_path)
    assert cache.prune(days=30, base=tmp_path) == ()
    assert made.exists()


def test_digest_sees_names_content_and_the_executable_bit(tmp_path: Path) -> None:
    file = tmp_path / "a" / "file"
    file.parent.mkdir()
    file.write_text("one")
    seen = {cache.digest(tmp_path)}
    file.write_text("two")
    seen.add(cache.digest(tmp_path))
    file.chmod(0o755)
    seen.add(cache.digest(tmp_path))
    file.rename(tmp_path / "a" / "other")
    seen.add(cache.digest(tmp_path))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"DRIVERFORGE_CACHE": "{tmp}/named", "XDG_CACHE_HOME": "{tmp}/xdg"}, "named"),
        ({"XDG_CACHE_HOME": "{tmp}/xdg"}, "xdg/driverforge"),
        ({"HOME": "{tmp}"}, ".cache/driverforge"),
    ],
)
def test_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("DRIVERFORGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    assert cache.root() == tmp_path / expected
