"""`driverforge plan --github` and `--gitlab`, and the jobs that take a shard from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from driverforge_build.cli import run
from driverforge_build.commands.shared import adapters
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.times import BuildTime, merge_times, read_times
from driverforge_core.errors import InputError
from support.fakes.fakeengine import FakeEngine
from support.jsonschemas import check_document
from support.samples.locks import kernel, sample_driver, target
from support.samples.sampledebian import MATRIX, write_matrix
from support.samples.synthetic import synthetic_lock

SELECT = ("--select", "debian1?-*")


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made_up = synthetic_lock(load_matrix())
    file = tmp_path / "driverforge.lock.json"
    targets = {key: target for key, target in made_up.targets.items() if key.startswith("debian")}
    file.write_text(dump_lock(Lock(targets=targets)))
    return file


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert run(list(words)) == status
    return capsys.readouterr().out


def to_build(capsys: pytest.CaptureFixture[str]) -> set[str]:
    document = json.loads(said(capsys, "plan", *SELECT, "--json"))
    check_document("plan", document)
    return {row["cell"] for row in document["cells"] if row["verdict"] == "build"}


def listed(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def test_githubs_matrix_is_one_line_and_its_jobs_have_all_cells(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    due = to_build(capsys)
    text = said(capsys, "plan", *SELECT, "--github", "--shards", "shards", "--minutes", "20")
    assert text.count("\n") == 1
    jobs: list[dict[str, Any]] = json.loads(text)["include"]
    assert 2 <= len(jobs) <= 256
    cells = [cell for job in jobs for cell in listed(Path(job["cells"]))]
    assert sorted(cells) == sorted(due)
    assert [job["count"] for job in jobs] == [len(listed(Path(job["cells"]))) for job in jobs]
    assert {job["arch"] for job in jobs} == {"amd64", "arm64"}
    assert jobs[0]["shard"] == f"1/{len(jobs)}"


def test_gitlabs_child_pipeline_extends_the_sites_own_job(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(
        capsys,
        "plan",
        *SELECT,
        "--gitlab",
        "ci/shard.yml",
        "--shards",
        "s",
        "--max-jobs",
        "3",
        "--minutes",
        "1",
    )
    pipeline = yaml.safe_load(text)
    assert pipeline["include"] == [{"local": "ci/shard.yml"}]
    assert pipeline["build"]["extends"] == ".driverforge-shard"
    jobs = pipeline["build"]["parallel"]["matrix"]
    assert [job["DRIVERFORGE_SHARD"] for job in jobs] == ["1/3", "2/3", "3/3"]
    assert jobs[0]["DRIVERFORGE_CELLS"] == "s/1.txt"
    assert all(isinstance(value, str) for job in jobs for value in job.values())
    # what GitLab makes of it is the job's name
    assert all(len(f"build: [{', '.join(job.values())}]") <= 255 for job in jobs)


@pytest.mark.parametrize(("words", "most"), [(("--github",), 256), (("--gitlab", "ci/shard.yml"), 200)])
def test_no_matrix_has_more_jobs_than_its_system_takes(
    words: tuple[str, ...], most: int, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_matrix(Path(), MATRIX[: MATRIX.index("probes:")] + MATRIX[MATRIX.index("systems:\n") :])
    kernels = [kernel(f"6.1.0-{number}-cloud-amd64") for number in range(100, 400)]
    pins = target(*kernels, drivers={"535.261.03": sample_driver()})
    lock.write_text(dump_lock(Lock(targets={pins.key: pins})))
    given = ("--matrix", "site.yaml", "--select", "debian12-*", "--minutes", "1", "--max-jobs", "999")
    text = said(capsys, "plan", *given, *words)
    document = yaml.safe_load(text)
    jobs = document["include"] if most == 256 else document["build"]["parallel"]["matrix"]
    assert len(jobs) == most


def test_nothing_to_build_is_no_job_for_github_and_one_that_says_so_for_gitlab(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock.write_text(dump_lock(Lock(targets={})))
    assert json.loads(said(capsys, "plan", *SELECT, "--github")) == {"include": []}
    pipeline = yaml.safe_load(said(capsys, "plan", *SELECT, "--gitlab", "ci/shard.yml"))
    assert "nothing to build" in pipeline["nothing-to-build"]["script"][0]


def test_lists_of_an_earlier_plan_are_removed(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "plan", *SELECT, "--shards", "shards", "--minutes", "5")
    assert Path("shards/4.txt").exists()
    (Path("shards") / "notes.txt").touch()
    said(capsys, "plan", *SELECT, "--shards", "shards", "--max-jobs", "2")
    assert sorted(path.name for path in Path("shards").iterdir()) == ["1.txt", "2.txt", "notes.txt"]


def test_measured_times_move_cells(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = "debian12-amd64-535.261.03-jit"
    Path("times").mkdir()
    merge_times(Path("times/a.json"), {cell: took(100) for cell in to_build(capsys)})
    merge_times(Path("times/b.json"), {slow: took(40000, "2026-11-23T10:00:00Z")})
    said(capsys, "plan", *SELECT, "--shards", "s", "--max-jobs", "4", "--times", "times")
    assert listed(Path("s/1.txt")) == [slow]


def fake_engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()
    monkeypatch.setattr(adapters, "engines", lambda *_, **__: (engine,))
    return engine


BUILD = ("build", "--select", "debian12-amd64-535*-jit", "--cache-dir", "cache", "--json")


def test_the_times_of_a_build_get_their_folder(
    lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fake_engine(monkeypatch)
    document = json.loads(said(capsys, *BUILD, "--times", "times/0.json"))
    check_document("times", json.loads(Path("times/0.json").read_text()))
    assert list(read_times([Path("times")]).cells) == [cell["cell"] for cell in document["cells"]]
    assert len(engine.built) == 1


def test_damaged_times_are_told_before_anything_is_built(
    lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fake_engine(monkeypatch)
    Path("times.json").write_text("{")
    assert "no file of build times" in said(capsys, *BUILD, "--times", "times.json", status=65)
    assert engine.built == []


def test_times_that_cannot_be_merged_leave_the_reports(
    lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    Path("times.json").mkdir()
    assert run([*BUILD, "--times", "times.json", "--junit", "junit.xml"]) == 65
    told = capsys.readouterr()
    check_document("build", json.loads(told.out))
    assert "times.json cannot be read" in told.err
    assert Path("junit.xml").exists()


def took(seconds: float, date: str = "2026-11-22T10:00:00Z") -> BuildTime:
    return BuildTime(seconds=seconds, first=False, date=date, compiled=False)


def test_times_are_merged_and_the_newest_counts(tmp_path: Path) -> None:
    one, two = "debian12-amd64-535.261.03-jit", "debian13-amd64-550.163.01-jit"
    file, other = tmp_path / "times.json", tmp_path / "b.json"
    merge_times(file, {one: took(1)})
    merge_times(file, {two: took(2, "2026-11-23T10:00:00Z")})
    merge_times(other, {two: took(3, "2026-11-22T10:00:00Z")})
    check_document("times", json.loads(file.read_text()))
    assert {key: time.seconds for key, time in read_times([tmp_path]).cells.items()} == {one: 1, two: 2}
    assert read_times([tmp_path / "nowhere.json"]).cells == {}


def test_times_of_earlier_versions_do_not_say_what_was_compiled(tmp_path: Path) -> None:
    """What is for no kernel never was."""
    kernel = "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64"
    (file := tmp_path / "times.json").write_text(
        f'{{"schema": 1, "cells": {{{CELL}, {CELL.replace("debian12-amd64-535.261.03-jit", kernel)}}}}}'
    )
    check_document("times", json.loads(file.read_text()))
    merge_times(file, {"debian13-amd64-550.163.01-jit": took(1)})
    check_document("times", json.loads(file.read_text()))
    read = read_times([file])
    assert {key: time.compiled for key, time in read.cells.items()} == {
        "debian12-amd64-535.261.03-jit": False,
        kernel: None,
        "debian13-amd64-550.163.01-jit": False,
    }


CELL = '"debian12-amd64-535.261.03-jit": {"seconds": 5, "first": false, "date": ""}'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"schema": 2}',
        '{"schema": 1, "cells": {"x": {}}}',
        f'{{"schema": 1, "cells": {{{CELL}, {CELL}}}}}',
        f'{{"schema": 1, "cells": {{{CELL.replace("5,", "9" * 400 + ",")}}}}}',
        f'{{"schema": 1, "cells": {{{CELL.replace("5,", "NaN,")}}}}}',
        f'{{"schema": 1, "cells": {{{CELL.replace("false", chr(34) + "no" + chr(34))}}}}}',
        f'{{"schema": 1, "cells": {{{CELL.replace("}", ", " + chr(34) + "compiled" + chr(34) + ": 1}")}}}}}',
        "\ud800",
    ],
)
def test_damaged_times_say_that_the_file_may_go(tmp_path: Path, text: str) -> None:
    (tmp_path / "times.json").write_text(text, errors="surrogatepass")
    with pytest.raises(InputError, match="no file of build times") as told:
        read_times([tmp_path / "times.json"])
    assert told.value.resolution.startswith("remove it")


def test_a_list_of_cells_and_a_shard_choose_what_is_built(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    due = to_build(capsys)
    one = min(due)
    Path("cells.txt").write_text(f"# a list\n{one}\n\n")
    assert f"{one}  build" in said(capsys, "build", "--cells-from", "cells.txt", "--plan")
    assert "would build 1 image\n" in said(capsys, "build", "--cells-from", "cells.txt", "--plan")
    parts = []
    for number in (1, 2, 3):
        text = said(capsys, "build", *SELECT, "--shard", f"{number}/3", "--plan", "--json")
        check_document("build", json.loads(text))
        parts += [row["cell"] for row in json.loads(text)["cells"]]
    assert sorted(parts) == sorted(due)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("build", "--shard", "4/3"), "is not NUMBER/COUNT"),
        (("build", "--shard", "a/b"), "is not NUMBER/COUNT"),
        (("build", "--cells-from", "/dev/null"), "names no cell"),
        (("plan", "--github", "--json"), "choose one"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words)) == 64
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "build"])
def test_reports_are_written_where_a_pipeline_says(
    command: str, lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("what an earlier step said\n")
    words = ["--plan"] if command == "build" else []
    said(capsys, command, *SELECT, *words, "--junit", "report.xml")
    assert ET.parse("report.xml").getroot().get("name") == f"driverforge {command}"
    text = Path("summary.md").read_text()
    assert text.startswith(f"what an earlier step said\n## driverforge {command}\n")
    assert "| `jit` |" in text


def test_a_push_needs_to_know_where_to(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", "--push"]) == 64
    assert "--push needs --registry" in capsys.readouterr().err
