"""The coverage page as text: what is in it, what it lets nobody do, and how large it may become."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from driverforge_build import resources
from driverforge_build.documents.plans import ClassOfKernels
from driverforge_build.report.coverage import Coverage, Documents, coverage
from driverforge_build.report.webpage import CELLS, OPEN, page_text
from driverforge_core.errors import UsageError
from support.samples.coverages import (
    NODE,
    READY,
    covered_image,
    digest_of,
    image_of,
    shipped_plan,
    verified_cell,
)
from support.samples.hostiledocuments import hostile_documents

PLAN = shipped_plan(there=[READY])
KNOWN = Documents(
    plan=PLAN,
    covered={NODE: [covered_image(READY, tested=True)]},
    verified={READY: verified_cell(READY)},
)
PAGE = page_text(coverage(KNOWN))


class Elements(HTMLParser):
    """Every element with its attributes, and each text with the elements that it is in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.found if name == tag)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_card_of_an_image_has_all_that_a_person_asks_for() -> None:
    at = PAGE.index(f"<code>{READY}</code>")
    card = Elements(PAGE[PAGE.rindex("<details name", 0, at) : PAGE.index("</details>", at)]).text
    assert f"pull registry.site/nvidia/driver:535-{NODE}-debian12" in card
    assert f"image {image_of(READY)}@{digest_of(READY)}" in card
    assert "boot test passed: QEMU 7.2.22, TCG" in card
    assert "modules open, proprietary: compiled with the image" in card


def test_rows_say_where_they_come_from() -> None:
    text = Elements(PAGE).text
    assert f"linux-headers-{NODE} 1 of bookworm sha256" in text
    assert "Repositories as of 2026-01-01 00:00 UTC" in text
    assert "The lock has no repository" not in text
    assert f"bookworm of 2026-01-01 00:00 UTC , index sha256:{'0' * 64}" in text
    assert "Plan of 2026-01-02 03:04 UTC" in text


def test_a_kernel_names_the_others_of_its_class() -> None:
    plan = shipped_plan()
    one: ClassOfKernels = {
        "kernels": ["6.1.0-49-cloud-amd64", NODE],
        "compiler": "gcc-12",
        "headers": "0" * 64,
        "config": "1" * 64,
        "symvers": "2" * 64,
    }
    assert "of one class with" not in PAGE
    plan["targets"]["debian12-amd64"]["classes"].append(one)
    text = Elements(page_text(coverage(Documents(plan=plan)))).text
    assert f"{NODE} of one class with 6.1.0-49-cloud-amd64 linux-headers-{NODE}" in text
    assert text.count("of one class with") == 1


def test_tables_are_tables_to_a_screen_reader() -> None:
    page = Elements(PAGE)
    groups = {(cell["os"], cell["arch"]) for cell in PLAN["cells"]}
    assert len(list(page.all("table"))) == len(list(page.all("caption"))) == len(groups)
    heads = list(page.all("th"))
    assert {head["scope"] for head in heads} == {"col", "row"}
    (search,) = (one for one in page.all("input") if one["type"] == "search")
    assert any(label.get("for") == search["id"] for label in page.all("label"))


def test_only_what_there_is_can_be_asked_for() -> None:
    boxes = {one["value"] for one in Elements(PAGE).all("input") if one["type"] == "checkbox"}
    assert boxes == {status.name.lower() for status in coverage(KNOWN).count}


def test_a_small_page_is_open() -> None:
    few = replace(coverage(KNOWN), groups=coverage(KNOWN).groups[:1])
    assert "<details open>" in page_text(few)
    assert "<details open>" not in page_text(coverage(Documents(plan=shipped_plan(kernels=OPEN))))


def test_ids_are_there_once() -> None:
    ids = [attributes["id"] for _, attributes in Elements(PAGE).found if "id" in attributes]
    assert len(ids) == len(set(ids))


def policy(page: str) -> dict[str, str]:
    (text,) = (
        meta["content"]
        for meta in Elements(page).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert text
    parts = (part.strip().partition(" ")[::2] for part in text.split(";"))
    return dict(parts)


@pytest.mark.parametrize("kind", ["style", "script"])
def test_the_policy_allows_the_one_script_and_style_that_there_are(kind: str) -> None:
    (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert policy(PAGE)[f"{kind}-src"] == f"'sha256-{digest}'"
    assert {policy(PAGE)[name] for name in ("default-src", "base-uri", "form-action")} == {"'none'"}
    assert policy(PAGE)["require-trusted-types-for"] == "'script'"
    assert content == (resources.page() / {"style": "page.css", "script": "page.js"}[kind]).read_text()


def test_the_policy_stands_before_all_that_it_is_about() -> None:
    assert PAGE.index("Content-Security-Policy") < PAGE.index("<style>") < PAGE.index("<script>")


def test_the_page_names_no_other_file() -> None:
    page = Elements(PAGE)
    places = [
        (tag, value)
        for tag, attributes in page.found
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data", "poster", "background", "style")
    ]
    assert places == [("link", "data:,")]
    style = "".join(re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL))
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_texts_are_texts() -> None:
    page = page_text(coverage(hostile_documents()))
    elements = Elements(page)
    assert len(list(elements.all("script"))) == len(list(elements.all("style"))) == 1
    assert not list(elements.all("img"))
    attributes = {name for _, found in elements.found for name in found}
    assert not {name for name in attributes if name.startswith("on")}
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert r"\u202e\x1b[31m" in page


@pytest.mark.parametrize("text", ["", "²", "٣" * 5000, "9" * 5000, "a" * 10_000])
def test_strange_names_of_kernels_and_drivers_make_a_page(text: str) -> None:
    assert page_text(coverage(hostile_documents(text)))


def test_an_empty_plan_is_a_page() -> None:
    page = page_text(Coverage(made="2026-01-01T00:00:00Z", groups=()))
    assert "0 of 0 are in the registry" in Elements(page).text


def test_a_moment_that_is_none_is_shown_as_it_is() -> None:
    assert "Plan of yesterday" in Elements(page_text(Coverage(made="yesterday", groups=()))).text


def test_a_thousand_cells_are_less_than_a_megabyte() -> None:
    plan = shipped_plan(kernels=300)
    plan["cells"] = plan["cells"][-1000:]
    assert len(page_text(coverage(Documents(plan=plan))).encode()) < 1_000_000


def test_a_page_too_large_for_a_browser_is_refused_with_advice() -> None:
    group = coverage(KNOWN).groups[0]
    many = Coverage(made="", groups=[replace(group, rows=[*group.rows] * (CELLS // group.count.total() + 1))])
    with pytest.raises(UsageError) as error:
        page_text(many)
    assert "driverforge plan --json --select 'debian12-*'" in error.value.resolution
    assert error.value.details
