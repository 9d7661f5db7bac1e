"""The checklists of CONTRIBUTING.md, followed in a copy of this checkout: each block as it is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = ("builder", "charts", "dockerfiles", "docs", "entrypoints", "hack", "tests")
FILES = ("CONTRIBUTING.md", "README.md", "matrix.yaml", "pyproject.toml")
NODE_PLAN = "entrypoints/driverforge_driver/driver/plan.py"
OPERANDS = "entrypoints/driverforge_operator/operands"

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the builder needs Python 3.11"),
    pytest.mark.timeout(1800),
]


def block(checklist: str, language: str) -> str:
    """The one block of a language in a checklist, without the indentation of its step."""
    section = TEXT.partition(f"## Checklist: {checklist}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^   ```{language}\n(.*?)^   ```", section, re.DOTALL | re.MULTILINE)
    return "".join(line.removeprefix("   ") for line in found.splitlines(keepends=True))


class Checkout:
    """A copy in which somebody follows the checklists, with what its programs and tests say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        unwanted = shutil.ignore_patterns("__pycache__", "golden")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
        shutil.copytree(ROOT / "tests/golden", folder / "tests/golden")
        for name in FILES:
            shutil.copy(ROOT / name, folder / name)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is there once."""
        file = self.folder / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path}: {old!r}"
        file.write_text(text.replace(old, new))

    def at_the_end(self, path: str, name: str, row: str) -> None:
        """Put a row at the end of a table of Python."""
        text = (self.folder / path).read_text()
        table = text[text.index(f"\n{name} = (\n") :].partition("\n)\n")[0]
        self.edit(path, table, f"{table}\n{row.rstrip()}")

    def run(self, *words: str, **environment: str) -> str:
        """Run a program; returns all that it printed. Raises AssertionError with it where it fails."""
        paths = os.pathsep.join(str(self.folder / name) for name in ("builder", "entrypoints", "tests"))
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHON": sys.executable, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)} exited {done.returncode}\n{done.stdout}"
        return done.stdout

    def test(self, *words: str, **environment: str) -> str:
        """Tests of the copy, by this checkout's pytest."""
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
        return self.run(*command, **environment)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """All checklists followed up to the step that generates; they are independent of each other."""
    copy = Checkout(tmp_path_factory.mktemp("checkout"))
    text = (copy.folder / "matrix.yaml").read_text()
    resembled = text[text.index("  - id: debian13\n") :].partition("\n\n")[0]
    copy.edit("matrix.yaml", resembled, f"{resembled}\n{block('add an operating system', 'yaml').rstrip()}")
    for branch in ("580", "595"):
        offered = text[text.index(f'  - id: "{branch}"\n    designation') :].partition('newest: "13"}')[0]
        copy.edit("matrix.yaml", f'{offered}newest: "13"}}', f'{offered}newest: "14"}}')
    probes = text[text.index("\nprobes:") :].partition("\n\n# ---")[0]
    row = block("add a kernel that a driver does not compile for", "yaml")
    copy.edit("matrix.yaml", probes, f"{probes}\n{row.rstrip()}")
    parameter = block("add a parameter that a kernel module gets by default", "text")
    copy.at_the_end(NODE_PLAN, "DEFAULT_PARAMETERS", parameter)
    manifest, row = (block("add an operand of the cluster", language) for language in ("yaml", "text"))
    (copy.folder / OPERANDS / "manifests/power-cap.yaml").write_text(manifest)
    copy.at_the_end(f"{OPERANDS}/table.py", "OPERANDS", row)
    cases = "tests/support/samples/operatorcases.py"
    copy.edit(cases, "OURS_ALONE = frozenset[str]()", 'OURS_ALONE = frozenset({"state-power-cap"})')
    start = "from driverforge_build.cli import main; main()"
    said = copy.run(sys.executable, "-c", start, "matrix", "validate", "matrix.yaml")
    assert "valid; " in said
    copy.run("hack/generate")
    return copy


def test_an_operating_system_and_a_probe_are_green(followed: Checkout) -> None:
    catalogue = (followed.folder / "entrypoints/driverforge_host/catalogue.py").read_text()
    assert "no-del-timer-sync" in catalogue
    assert "debian14" in (followed.folder / "docs/matrix.md").read_text()
    golden = ("tests/unit/test_render_golden.py", "tests/unit/test_matrix_asked.py")
    followed.test(*golden, "-k", "debian14", DRIVERFORGE_UPDATE_GOLDEN="1")
    assert list((followed.folder / "tests/golden").glob("debian14-*"))
    matrix = (str(path) for path in (followed.folder / "tests/unit").glob("test_matrix_*.py"))
    followed.test(golden[0], *matrix, "-k", "debian14 or probes")


def test_a_parameter_and_an_operand_are_green(followed: Checkout) -> None:
    operand = ("tests/unit/test_operator_table.py", "tests/unit/test_operator_labels.py")
    words = "state-power-cap or operand_is_one or default or order"
    followed.test(*operand, "tests/unit/test_operator_operands.py", "-k", words)
    followed.test("tests/unit/test_node_plan.py", "-k", "parameter")


@pytest.mark.full(reason="the whole unit tier once more")
def test_all_of_the_unit_tier_is_green(followed: Checkout) -> None:
    followed.test("tests/unit", "-n", "2", DRIVERFORGE_UPDATE_GOLDEN="1")


def test_a_block_is_dedented_as_a_reader_copies_it() -> None:
    assert textwrap.dedent(block("add an operand of the cluster", "yaml")) == block(
        "add an operand of the cluster", "yaml"
    )
