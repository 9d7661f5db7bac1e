"""Pages for users name files that are there, and matrices that are whole files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driverforge_build.matrix.load import parse_matrix

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


MATRICES = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}: {number}")
    for page in PAGES
    for number, text in enumerate(
        re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
    if re.search(r"^(systems|exclusions|keep|branches):", text, re.MULTILINE)
]


@pytest.mark.parametrize("text", MATRICES)
def test_a_matrix_that_is_copied_from_a_page_is_one(text: str) -> None:
    parse_matrix(text.encode(), name="site.yaml")
