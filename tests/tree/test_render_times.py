"""What a RUN writes gets one time: dockerfiles/scripts/settle-times."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

from driverforge_build.render.spec import FILE_TIME
from support.process import run

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "dockerfiles/scripts/settle-times"
# stages of which nothing but /out is in an image
ASIDE = ("modules", "signed", "verified")
OLD = 1_500_000_000


def test_what_was_written_since_gets_the_time_and_a_packages_file_keeps_its_own(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "made/inside").mkdir(parents=True)
    (tree / "made/inside/compiled.pyc").write_bytes(b"x")
    (tree / "made/link").symlink_to("nothing")
    (tree / "made/linked").symlink_to("inside")
    packaged = tree / "old/packaged"
    packaged.parent.mkdir()
    packaged.write_bytes(b"x")
    for path in (packaged, packaged.parent):
        os.utime(path, (OLD, OLD))
    run(
        sys.executable,
        "-I",
        SCRIPT,
        str(FILE_TIME),
        env={"DRIVERFORGE_ROOT": str(tree), "DRIVERFORGE_SINCE": str(time.time())},
    )
    times = {str(path.relative_to(tmp_path)): path.lstat().st_mtime for path in (tree, *tree.rglob("*"))}
    assert times == {
        "tree": FILE_TIME,
        "tree/made": FILE_TIME,
        "tree/made/inside": FILE_TIME,
        "tree/made/inside/compiled.pyc": FILE_TIME,
        "tree/made/link": FILE_TIME,
        "tree/made/linked": FILE_TIME,
        "tree/old": OLD,
        "tree/old/packaged": OLD,
    }


def test_without_being_told_it_is_what_the_first_process_here_has_lived_to_see(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"x")
    os.utime(tmp_path / "new", (time.time() + 60, time.time() + 60))
    (tmp_path / "old").write_bytes(b"x")
    os.utime(tmp_path / "old", (OLD, OLD))
    run(sys.executable, "-I", SCRIPT, str(FILE_TIME), env={"DRIVERFORGE_ROOT": str(tmp_path)})
    assert [(tmp_path / name).stat().st_mtime for name in ("new", "old")] == [FILE_TIME, OLD]


def test_every_run_that_is_in_an_image_ends_with_it() -> None:
    seen = 0
    for dockerfile in sorted((TOP / "tests/golden").glob("*/Dockerfile")):
        for stage in re.split(r"^FROM ", dockerfile.read_text(), flags=re.MULTILINE)[1:]:
            if stage.splitlines()[0].rpartition(" AS ")[2] in ASIDE:
                continue
            for words in re.findall(r"^RUN (?:.*\\\n)*.*$", stage, re.MULTILINE):
                assert words.endswith(f"/scripts/settle-times {FILE_TIME}"), f"{dockerfile}: {words}"
                seen += 1
    assert seen > 100
