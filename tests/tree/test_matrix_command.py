"""`driverforge matrix` as a program, and the files that are generated from the matrix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.jsonschemas import check_document, problems

ROOT = Path(__file__).parents[2]
DRIVERFORGE = (sys.executable, "-c", "from driverforge_build.cli import main; main()")


def driverforge(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'builder'}:{ROOT / 'entrypoints'}"}
    return subprocess.run(
        [*DRIVERFORGE, *map(str, arguments)],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_generated_is_up_to_date() -> None:
    found = subprocess.run(
        [sys.executable, ROOT / "hack/lib/run.py", "pages.catalogue", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, f"run hack/generate\n{found.stdout}{found.stderr}"


def test_validate_accepts_the_shipped_catalogue() -> None:
    found = driverforge("matrix", "validate")
    assert (found.returncode, found.stderr) == (0, "")
    assert re.fullmatch(
        r"matrix\.yaml: valid; \d+ operating systems, \d+ drivers, \d+ JIT cells\n", found.stdout
    )


def test_validate_tells_every_problem_of_any_file_and_exits_65(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("extends: builtin\nsytems: []\nkeep:\n\tsystems: [debain13]\n")
    found = driverforge("matrix", "validate", "my.yaml", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (os.EX_DATAERR, "")
    assert found.stderr.splitlines() == [
        "error: my.yaml has 3 problems",
        "  | my.yaml:2: unknown key 'sytems'; did you mean systems?",
        "  | my.yaml:4: 'debain13' matches none of the systems; did you mean debian13 or debian12?",
        "  | my.yaml:4: a tab; indent and separate with spaces",
        "  next: correct the lines above; `driverforge matrix validate FILE` checks again",
    ]


def test_the_site_file_of_the_documentation_is_valid(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(# my\.yaml\n.*?)```", (ROOT / "docs/matrix.md").read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "my.yaml").write_text(example[1])
    found = driverforge("matrix", "show", "--matrix", "my.yaml", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout)
    assert {row["id"] for row in data["systems"]} == {"debian12", "rocky8", "rocky9", "rocky10", "alma9"}
    assert data["origins"]["systems/alma9"].startswith("my.yaml:")
    check_document("matrix", data)


def test_show_is_plain_aligned_text_where_there_is_no_terminal() -> None:
    found = driverforge("matrix", "show")
    assert found.returncode == 0, found.stderr
    head, *rows = found.stdout.splitlines()
    start = head.index("driver ")
    assert all(row[start - 1] == " " and row[start].isdigit() for row in rows)
    assert "\x1b" not in found.stdout


def test_show_lists_cells_by_glob() -> None:
    found = driverforge("matrix", "show", "--select", "debian12-*-535.*")
    assert found.stdout.splitlines() == ["debian12-amd64-535.261.03-jit", "debian12-arm64-535.261.03-jit"]
    missed = driverforge("matrix", "show", "--select", "debain12-*")
    assert (missed.returncode, missed.stdout) == (os.EX_USAGE, "")
    assert "near: debian12-" in missed.stderr


def test_packages_prints_what_images_of_an_os_ask_of_repositories() -> None:
    golden = [(ROOT / f"tests/golden/pins/rocky9-{arch}.txt").read_text() for arch in ("amd64", "arm64")]
    assert driverforge("matrix", "packages", "rocky9").stdout == "\n".join(golden)
    found = driverforge("matrix", "packages", "rocky*", "ol9", "--arch", "arm64")
    titles = [line for line in found.stdout.splitlines() if " arm64: " in line]
    assert [title.partition(" ")[0] for title in titles] == ["rocky9", "rocky8", "rocky10", "ol9"]
    missed = driverforge("matrix", "packages", "rokcy9")
    assert (missed.returncode, missed.stdout) == (os.EX_USAGE, "")
    assert "did you mean rocky9" in missed.stderr


def read_as_editors_do(text: str) -> object:
    import yaml

    return yaml.safe_load(text)


SCHEMA = json.loads((ROOT / "builder/driverforge_build/data/matrix.schema.json").read_text())


def test_the_published_schema_accepts_the_shipped_file_as_editors_read_it() -> None:
    assert list(problems(SCHEMA, read_as_editors_do((ROOT / "matrix.yaml").read_text()))) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: builtn", "$.extends: 'builtn' is not one of ['builtin']"),
        ("sytems: []", "$: Additional properties are not allowed ('sytems' was unexpected)"),
        ("systems: [{base: x}]", "$.systems[0]: 'id' is a required property"),
        ("systems: [{id: a, archs: amd64}]", "$.systems[0].archs: 'amd64' is not of type 'array'"),
        (
            "systems: [{id: a, drivers: [{id: '1', payload: run}]}]",
            "$.systems[0].drivers[0].payload: 'run' is not one of",
        ),
    ],
)
def test_the_published_schema_refuses_what_the_loader_refuses(text: str, said: str) -> None:
    told = list(problems(SCHEMA, read_as_editors_do(text)))
    assert any(problem.startswith(said) for problem in told), told


def test_matrix_yaml_names_its_schema_for_editors() -> None:
    first = (ROOT / "matrix.yaml").read_text().partition("\n")[0]
    path = first.removeprefix("# yaml-language-server: $schema=")
    assert path != first
    assert (ROOT / path).is_file()
