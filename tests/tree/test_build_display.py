"""Progress of builds: lines where nobody watches, one changing line a cell on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from driverforge_build.commands.shared.progress import Lines

ROOT = Path(__file__).parents[2]
SCRIPT = """\
from driverforge_build.commands.shared.progress import shown_builds
with shown_builds(["a-cell", "b-cell"]) as told:
    told("a-cell", "userspace 2/7 RUN fetch")
    told("a-cell", "built")
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints")),
    "TERM": "xterm",
    "COLUMNS": "120",
}


OWNED = "\x1b]0;owned\x07"
HOSTILE = f"""\
from driverforge_build.commands.shared.progress import shown_builds, shown_downloads
with shown_builds(["a-cell"]) as told:
    told("a-cell", "jit 1/4 RUN [/red] {OWNED}")
with shown_downloads(as_json=False) as progress:
    with progress.download("[/red]{OWNED}.deb", 2_000_000) as advanced:
        advanced(1)
    progress.waiting("[/red]{OWNED} answers 503", 60.0)
"""


def test_a_compilers_or_a_mirrors_words_are_no_commands_to_the_terminal() -> None:
    """Neither the terminal's own, nor those of the library that draws on it."""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", HOSTILE], env=ENVIRONMENT, stderr=theirs, check=True)
    os.close(theirs)
    seen = drained(ours)
    assert "[/red]" in seen
    assert OWNED not in seen
    told = subprocess.run(
        [sys.executable, "-c", HOSTILE], env=ENVIRONMENT, capture_output=True, text=True, check=True
    ).stderr
    assert told == (
        "a-cell: jit 1/4 RUN [/red] \\x1b]0;owned\\x07\ndownload [/red]\\x1b]0;owned\\x07.deb 2.0 MB\n"
        "[/red]\\x1b]0;owned\\x07 answers 503; again in 60.0 s\n"
    )


def drained(terminal: int) -> str:
    """All that was written to a terminal whose other end is closed."""
    seen = b""
    # Linux says EIO when there is nothing more
    with suppress(OSError):
        while piece := os.read(terminal, 65536):
            seen += piece
    os.close(terminal)
    return seen.decode()


BOTH = """\
from driverforge_build.commands.shared.progress import shown_builds, shown_downloads
with shown_downloads(as_json=False) as progress, shown_builds(["a-cell"]) as told:
    with progress.download("linux-image.deb", 2_000_000) as advanced:
        advanced(1)
    told("a-cell", "open: open/nvidia.ko")
    told("a-cell", "passed")
"""


def test_downloads_and_cells_are_shown_side_by_side() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", BOTH], env=ENVIRONMENT, stderr=theirs, check=True)
    os.close(theirs)
    seen = drained(ours)
    assert "linux-image.deb" in seen
    assert "passed" in seen


def test_without_a_terminal_each_step_is_a_line_on_standard_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "a-cell: userspace 2/7 RUN fetch\na-cell: built\n"
    assert done.stdout == ""


def test_on_a_terminal_every_cell_has_a_line_with_its_last_step() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=ENVIRONMENT, stderr=theirs, stdout=subprocess.PIPE, check=True
    )
    seen = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    last = seen.splitlines()[-3:]
    assert any("a-cell" in line and "built" in line for line in last), seen
    assert any("b-cell" in line and "waiting" in line for line in last), seen
    assert done.stdout == b""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_download_that_takes_long_tells_its_bytes(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 4.0, 12.0, 12.0, 13.0])
    with Lines(as_json=as_json, now=lambda: next(seconds)).download("a.deb", 12_400_000) as advanced:
        for _ in range(3):
            advanced(1_000_000)
    told = capsys.readouterr().err.splitlines()
    if not as_json:
        assert told == ["download a.deb 12.4 MB", "download a.deb 2.0 of 12.4 MB"]
        return
    assert [json.loads(line) for line in told] == [
        {"event": "download", "name": "a.deb", "bytes": count, "total": 12_400_000}
        for count in (0, 2_000_000)
    ]


def test_a_pause_is_told_on_a_terminal_too() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", HOSTILE], env=ENVIRONMENT, stderr=theirs, check=True)
    os.close(theirs)
    assert "answers 503; again in 60.0 s" in drained(ours)


def test_lines_of_downloads_side_by_side_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Slow:
        """Gives other threads their turn between two writes."""

        def write(self, text: str) -> None:
            written.append(text)
            time.sleep(0.001)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Slow())
    lines = Lines(as_json=True)
    with ThreadPoolExecutor(4) as pool:
        for number in range(40):
            pool.submit(lines.waiting, f"mirror {number}", 1.0)
    told = [json.loads(line) for line in "".join(written).splitlines()]
    assert len(told) == 40
