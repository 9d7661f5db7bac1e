"""`driverforge` with damaged files, odd addresses and an output that goes nowhere: one message, a documented
exit status.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.app.build import BuildRequest, build
from driverforge_build.fetch.cache import Cache, KeptAnswer
from driverforge_build.lock.file import dump_lock, load_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.render.context import context_of, write_context
from driverforge_build.render.spec import image_specs
from driverforge_build.sharedfile import replace_text
from driverforge_core.errors import DriverforgeError, InputError, StorageFailed, TemporaryFailure
from support.fakes.fakeengine import FakeEngine
from support.fakes.mirror import fetcher
from support.samples.locks import kernel, target
from support.samples.synthetic import all_cells, synthetic_lock

ROOT = Path(__file__).resolve().parents[2]
URL = "http://mirror.example.org/InRelease"


def lock_text(**changes: object) -> str:
    return dump_lock(Lock(targets={"debian12-amd64": target(kernel("6.1.0-50-cloud-amd64"), **changes)}))


def damaged(text: str, tmp_path: Path) -> InputError:
    path = tmp_path / "site.json"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        load_lock(path)
    assert told.value.resolution
    return told.value


def test_a_lock_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be read: Too many levels"):
        load_lock(tmp_path / "loop")
    (tmp_path / "binary").write_bytes(b"{\xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_lock(tmp_path / "binary")


def test_a_lock_nested_too_deep_or_with_an_endless_number_is_damaged(tmp_path: Path) -> None:
    damaged("[" * 100_000, tmp_path)
    damaged(lock_text().replace('"size": 7', '"size": 1e999'), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"gcc-12"', "null"),
        ('"gcc-12"', '"gcc-12; x"'),
        ('"size": 7', '"size": -1'),
        ('"pool/libc6.deb"', "5"),
        ('"pool/libc6.deb"', '"pool/libc6.deb\\nX"'),
        ('"pool/libc6.deb"', '"../libc6.deb"'),
        ('"suite": "bookworm"}', '"suite": null}'),
        ('"2026-11-20T12:00:00Z"', '"yesterday"'),
    ],
)
def test_a_value_of_a_lock_that_would_end_in_a_dockerfile_is_checked(
    old: str, new: str, tmp_path: Path
) -> None:
    text = lock_text()
    assert old in text
    assert "damaged" in damaged(text.replace(old, new), tmp_path).brief


@pytest.mark.parametrize("head", [b"[]\nx", b"5\nx", b"[" * 100_000 + b"\n", b"\xff\xfe"])
def test_a_damaged_document_of_the_cache_counts_as_none(tmp_path: Path, head: bytes) -> None:
    cache = Cache(tmp_path)
    cache.keep(KeptAnswer(url=URL, body=b"x"))
    (kept,) = (tmp_path / "documents").iterdir()
    kept.write_bytes(head)
    assert cache.document(URL) is None


def test_a_folder_or_a_circle_in_the_cache_is_one_error(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep(KeptAnswer(url=URL, body=b"x"))
    (kept,) = (tmp_path / "documents").iterdir()
    kept.unlink()
    kept.mkdir()
    blob = cache.blob_path("ab" * 32)
    blob.parent.mkdir(parents=True)
    blob.symlink_to(blob.name)
    for read in (lambda: cache.document(URL), lambda: cache.blob("ab" * 32)):
        with pytest.raises(DriverforgeError, match="cannot read") as told:
            read()
        assert "--cache-dir" in told.value.resolution


@pytest.mark.parametrize("url", ["http://[::1", "http://[::1/InRelease", "http://a\udcffb/InRelease"])
def test_an_address_that_is_none_is_wrong_input(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError) as told:
        fetcher(tmp_path).document(url)
    assert "http://" in told.value.resolution


def test_a_proxy_that_is_none_is_wrong_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "nonsense://site")
    with pytest.raises(InputError, match="proxy"):
        fetcher(tmp_path).document(URL)


def test_the_lock_is_written_beside_nobody_elses_half(tmp_path: Path) -> None:
    """Two runs at once: the other one's half-written file must not be the one that is renamed, and a link
    stays one.
    """
    theirs = tmp_path / ".site.json.new"
    theirs.write_text("half")
    (tmp_path / "site.json").symlink_to("real.json")
    replace_text(tmp_path / "site.json", "whole\n", option="--lock")
    assert (tmp_path / "real.json").read_text() == "whole\n"
    assert (tmp_path / "site.json").is_symlink()
    assert theirs.read_text() == "half"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".site.json.new", "real.json", "site.json"]


def test_a_second_build_in_one_folder_is_refused(tmp_path: Path) -> None:
    def again() -> object:
        request = BuildRequest(folder=tmp_path)
        return build(request, (), {}, [FakeEngine()], lambda _: nullcontext(lambda *_: None))

    (output := tmp_path / "generated").mkdir()
    with (output / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TemporaryFailure, match="another `driverforge build` is working") as told:
            again()
    assert "--cache-dir" in told.value.resolution
    assert again() == ()


PROGRAM = (
    sys.executable,
    "-c",
    (
        f"import sys; sys.path[:0] = {[str(ROOT / 'builder'), str(ROOT / 'entrypoints')]!r}; from "
        "driverforge_build.cli import main; main()"
    ),
)


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["--help"]])
def test_a_reader_that_has_gone_is_no_message(tmp_path: Path, words: list[str]) -> None:
    """click meets the broken pipe itself where it writes, or where more is written than a buffer holds."""
    (tmp_path / "l.json").write_text(lock_text())
    reading, writing = os.pipe()
    os.close(reading)
    lock = ["--lock", str(tmp_path / "l.json")] if "plan" in words else []
    try:
        result = subprocess.run(
            [*PROGRAM, *words, *lock], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_one_message(tmp_path: Path, redirect: str) -> None:
    (tmp_path / "l.json").write_text(lock_text())
    words = [*PROGRAM, "plan", "--lock", str(tmp_path / "l.json"), "--select", "debian12-amd64-535*-jit"]
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *words], capture_output=True, text=True, check=False
    )
    assert result.returncode == 74
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_is_not_ours_is_not_emptied(tmp_path: Path, linked: bool) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "notes").mkdir(parents=True)
    (theirs / "notes/precious").write_text("keep")
    folder = tmp_path / "cell"
    if linked:
        folder.symlink_to(theirs)
    else:
        theirs.rename(folder)
    matrix = load_matrix()
    cells = [cell for cell in all_cells(matrix) if cell.key == "debian12-amd64-535.261.03-jit"]
    (image,) = image_specs(cells, synthetic_lock(matrix))
    with pytest.raises(StorageFailed, match="did not make it") as told:
        write_context(context_of(image, resources.templates()), folder)
    assert (folder / "notes/precious").read_text() == "keep"
    assert "it holds notes" in told.value.details
