"""The coverage page in a real browser, Debian's Chromium: the shipped matrix's own plan; a hostile one.

Most look at the page of a few systems: to load all of them and lay them out is half of what a test takes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from driverforge_build.cli import run as driverforge
from driverforge_build.documents.plans import PlanDocument
from driverforge_build.report.coverage import Documents, coverage
from driverforge_build.report.webpage import COLUMNS, page_text
from support.machines.browser import Browser, Tab, browser
from support.samples.coverages import (
    NODE,
    READY,
    covered_image,
    failed_build,
    shipped_plan,
    verified_cell,
)
from support.samples.hostiledocuments import TAKEN, hostile_documents
from support.skipping import provided

JIT = "debian12-amd64-535.261.03-jit"
BLOCKED = "debian13-amd64-550.163.01-6.12.94+deb13-cloud-amd64"
OLDER = "debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64"
GONE = "debian12-amd64-535.247.01-6.1.0-41-cloud-amd64"
BROKEN = "debian12-arm64-535.261.03-6.1.0-50-cloud-arm64"
FEW = ("debian12", "debian13", "rocky9", "sles15.7", "ubuntu24.04")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with_one = browser(tmp_path_factory.mktemp("chromium"))
    found = provided(with_one.__enter__)
    try:
        yield found
    finally:
        with_one.__exit__(None, None, None)


@pytest.fixture
def chromium(started: Browser) -> Iterator[Browser]:
    yield started
    started.close_tabs()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page that `driverforge page` made, with every status on it."""
    return made_page(tmp_path_factory.mktemp("page"), plan_of(FEW, there=[JIT, READY]))


def plan_of(systems: Collection[str], *, there: Collection[str] = ()) -> PlanDocument:
    """The shipped matrix's plan, of some systems."""
    plan = shipped_plan(there=there)
    plan["cells"] = [cell for cell in plan["cells"] if cell["os"] in systems]
    return plan


def made_page(folder: Path, plan: PlanDocument) -> str:
    covered = {
        NODE: [covered_image(READY, tested=True)],
        OLDER.split("-", 3)[3]: [covered_image(OLDER, revision="r0")],
        GONE.split("-", 3)[3]: [covered_image(GONE)],
    }
    documents = {
        "plan.json": plan,
        "covered.json": {"schema": 1, "kernels": covered},
        "build.json": {"schema": 1, "engine": "docker", "cells": [failed_build(BROKEN)]},
        "verify.json": {"schema": 1, "cells": [verified_cell(READY)]},
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    output = folder / "index.html"
    words = [str(folder / name) for name in documents]
    assert driverforge(["page", *words, "--output", str(output)]) == 0
    return output.as_uri()


ALL_SHOWN = len(plan_of(FEW)["cells"]) + 1  # the image of an earlier plan


def cells(tab: Tab) -> list[str]:
    """The cells that are shown, whether their system is open or not."""
    shown = "[...document.querySelectorAll('td > details')].filter(one => !one.closest('[hidden]'))"
    found = tab.run(f"{shown}.map(one => one.querySelector('dd:last-child code').textContent)")
    assert isinstance(found, list)
    return found


def search(tab: Tab, text: str) -> None:
    tab.run("document.querySelector('#q').select(), 0")
    tab.run("document.querySelector('#q').focus(), 0")
    tab.type(text)
    tab.key("Enter", text="\r")


def choose(tab: Tab, name: str, value: str) -> None:
    one, event = f"document.querySelector('#{name}')", "new Event('change', {bubbles: true})"
    tab.run(f"{one}.value = '{value}'; {one}.dispatchEvent({event})")


def answer(tab: Tab) -> str:
    return " ".join(str(tab.run("document.querySelector('#answer').innerText")).split())


def test_it_opens_without_a_word_of_complaint_and_asks_nobody(chromium: Browser, tmp_path: Path) -> None:
    plan = shipped_plan()
    page = made_page(tmp_path, plan)
    for script, width in ((True, 1280), (False, 360)):
        tab = chromium.open(page, width=width, script=script)
        assert tab.requested() == [page]
        assert tab.complaints() == []
        assert len(cells(tab)) == len(plan["cells"]) + 1


def test_a_web_server_is_asked_for_the_page_alone(chromium: Browser, page: str) -> None:
    asked: list[str] = []

    class Server(SimpleHTTPRequestHandler):
        def log_request(self, code: object = "-", size: object = "-") -> None:
            asked.append(self.path)

    folder, name = page.removeprefix("file://").rsplit("/", 1)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            tab = chromium.open(f"http://127.0.0.1:{server.server_port}/{name}")
            search(tab, NODE)
            assert "Yes" in answer(tab)
            tab.go(f"http://127.0.0.1:{server.server_port}/{name}?again")
        finally:
            server.shutdown()
    assert asked == [f"/{name}", f"/{name}?again"]
    assert tab.complaints() == []


def test_all_is_shown_before_anything_is_asked(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    assert len(cells(tab)) == ALL_SHOWN
    assert tab.run("document.querySelector('#answer').hidden")
    assert tab.run("location.hash") == ""


# -- the question -------------------------------------------------------------------------------------------

UNAME = f"Linux node-7 {NODE} #1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-01-11) x86_64 GNU/Linux"
OS_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\nHOME_URL="https://x/"'


@pytest.mark.parametrize("text", [NODE, f"  {NODE}\n", UNAME, f"{NODE} {OS_RELEASE}"])
def test_a_nodes_own_words_give_the_answer(chromium: Browser, page: str, text: str) -> None:
    tab = chromium.open(page)
    search(tab, text)
    assert answer(tab).startswith(f"Yes: 1 image for {NODE} 535.261.03 image")
    assert f"registry.site/nvidia/driver:535-{NODE}-debian12" in answer(tab)
    assert "tested" in answer(tab)
    assert "modules: open, proprietary: compiled with the image" in answer(tab)
    assert {cell.split("-", 3)[3] for cell in cells(tab)} == {NODE}
    assert {cell.split("-")[0] for cell in cells(tab)} == {"debian12"}
    assert tab.run("[...document.querySelectorAll('.group:not([hidden]) > details')].every(one => one.open)")


def test_typing_alone_is_enough(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    tab.run("document.querySelector('#q').focus(), 0")
    tab.type(NODE)
    tab.until("!document.querySelector('#answer').hidden")
    assert "Yes" in answer(tab)


def test_the_release_file_alone_chooses_the_system(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    for text, system in (
        (OS_RELEASE, "debian12"),
        ('NAME="Rocky Linux" VERSION="9.6" ID="rocky" ID_LIKE="rhel" VERSION_ID="9.6"', "rocky9"),
        ('ID="sles" VERSION_ID="15.7"', "sles15.7"),
        ("VERSION_ID=24.04 ID=ubuntu", "ubuntu24.04"),
    ):
        search(tab, text)
        assert {cell.split("-")[0] for cell in cells(tab)} == {system}
    search(tab, "ID=plan9 VERSION_ID=4")
    assert cells(tab) == []


def test_a_kernel_without_an_image_names_what_compiles_on_the_node(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    kernel = "6.12.94+deb13-cloud-amd64"
    search(tab, kernel)
    assert answer(tab).startswith(f"No image for {kernel}")
    assert "Images that compile on the node" in answer(tab)
    assert "Debian 12" not in answer(tab)


def test_a_kernel_that_nobody_knows_gets_its_neighbours(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    search(tab, "6.1.0-51-cloud-amd64")
    assert answer(tab).startswith("No image for 6.1.0-51-cloud-amd64 The plan does not know this kernel")
    assert cells(tab) == []
    tab.click("#answer button")
    assert answer(tab).startswith(f"Yes: 1 image for {NODE}")


def test_an_image_of_an_earlier_plan_is_an_answer(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    search(tab, "6.1.0-41-cloud-amd64")
    assert "Yes: 1 image" in answer(tab)
    assert "older image" in answer(tab)


def test_a_part_of_a_name_filters(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    search(tab, "Bookworm arm64 535 jit")
    assert cells(tab) == ["debian12-arm64-535.261.03-jit"]
    assert tab.run("document.querySelector('#count').textContent") == f"1 of {ALL_SHOWN} shown"
    assert tab.run("document.querySelector('#answer').hidden")


STRANGE = ("Linux", "Linux a", "constructor", "Linux x y __proto__", "ID=", "5" * 5000)


def test_strange_questions_break_nothing(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    for text in STRANGE:
        search(tab, text)
        search(tab, NODE)
        assert "Yes" in answer(tab), text
        assert tab.complaints() == []


# -- filters ------------------------------------------------------------------------------------------------


def test_filters_leave_what_they_name(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    choose(tab, "os", "debian12")
    assert {cell.split("-")[0] for cell in cells(tab)} == {"debian12"}
    choose(tab, "arch", "arm64")
    assert {cell.split("-")[1] for cell in cells(tab)} == {"arm64"}
    choose(tab, "branch", "535")
    assert {cell.split("-")[2] for cell in cells(tab)} == {"535.261.03"}
    columns = "[...document.querySelectorAll('.group:not([hidden]) thead th:not([hidden])')]"
    assert tab.run(f"{columns}.map(one => one.innerText)") == ["kernel", "535.261.03"]
    tab.click("#statuses label.failed")
    assert cells(tab) == [BROKEN]
    tab.click("#statuses label.failed")
    for name in ("os", "arch", "branch"):
        choose(tab, name, "")
    assert len(cells(tab)) == ALL_SHOWN


@pytest.mark.parametrize(
    ("status", "cell"), [("ready", READY), ("older", OLDER), ("older", GONE), ("failed", BROKEN)]
)
def test_a_status_is_a_filter(chromium: Browser, page: str, status: str, cell: str) -> None:
    tab = chromium.open(f"{page}#is={status}")
    assert cell in cells(tab)
    assert tab.run(f"document.querySelectorAll('td > details:not([hidden]):not(.{status})').length") == 0


def test_a_view_can_be_shared(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    search(tab, "cloud +deb12")
    choose(tab, "os", "debian12")
    choose(tab, "branch", "535")
    tab.click("#statuses label.older")
    tab.click("#statuses label.due")
    told = tab.run("location.hash")
    assert parse_qs(told[1:]) == {
        "q": ["cloud +deb12"],
        "os": ["debian12"],
        "branch": ["535"],
        "is": ["older", "due"],
    }
    again = chromium.open(f"{page}{told}")
    assert cells(again) == cells(tab) != []
    assert again.run("location.hash") == told
    again.run("location.hash = ''")
    again.until("document.querySelector('#q').value === ''")
    assert len(cells(again)) == ALL_SHOWN


@pytest.mark.parametrize("words", ["os=gone&arch=", "branch=x%22%3E&is=gone", "q=%00%ff", "=&="])
def test_a_damaged_address_shows_everything_that_it_can(chromium: Browser, page: str, words: str) -> None:
    tab = chromium.open(f"{page}#{words}")
    assert tab.complaints() == []
    choose(tab, "os", "debian12")
    assert tab.run("document.querySelector('#os').value") == "debian12"


# -- people -------------------------------------------------------------------------------------------------


# the smallest phone, a phone, the last width of the small layout, and a desk
OFTEN = ((320, True), (360, False), (1024, True), (1280, True))
FULL = pytest.mark.full(reason="more widths")


@pytest.mark.parametrize(
    ("width", "script"),
    [
        pytest.param(width, script, marks=() if (width, script) in OFTEN else FULL)
        for width in (320, 360, 768, 1024, 1025, 1280)
        for script in (True, False)
    ],
)
def test_nothing_is_wider_than_the_screen(chromium: Browser, page: str, width: int, script: bool) -> None:
    tab = chromium.open(page, width=width, script=script)
    widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    opened = "for (const one of document.querySelectorAll('details')) one.open = true; 0"
    for change in ("0", opened, f"document.querySelector('#q').value = '{NODE}'; 0"):
        tab.run(change)
        if script and "value" in change:
            search(tab, NODE)
        needed, there = tab.run(widths)
        assert needed <= there


@pytest.mark.parametrize(
    ("drivers", "width"),
    [
        (COLUMNS, 1025),
        (COLUMNS + 1, 1025),
        (30, 360),
        pytest.param(COLUMNS, 360, marks=FULL),
        pytest.param(COLUMNS + 1, 360, marks=FULL),
        pytest.param(30, 1025, marks=FULL),
    ],
)
def test_many_drivers_fit_the_screen(chromium: Browser, tmp_path: Path, drivers: int, width: int) -> None:
    """Images of drivers that were replaced stay in covered.json, and each has a column."""
    plan = plan_of(["debian12"])
    plan["cells"] = [cell for cell in plan["cells"] if cell["arch"] == "amd64"]
    more = drivers - len({cell["driver"] for cell in plan["cells"]})
    cells = (f"debian12-amd64-535.{number}.01-{NODE}" for number in range(100, 100 + more))
    older = [covered_image(cell, tested=True) for cell in cells]
    file = tmp_path / "index.html"
    file.write_text(page_text(coverage(Documents(plan=plan, covered={NODE: older}))))
    tab = chromium.open(file.as_uri(), width=width)
    needed, there = tab.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert needed <= there
    columns = tab.run(
        "document.querySelector('thead').checkVisibility() && !!document.querySelector('.grid')"
    )
    assert columns is (drivers <= COLUMNS)
    assert tab.run("document.querySelectorAll('td > details.older i').length") == more


CONTRAST = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const one = text.parentElement;
    if (!text.data.trim() || !one.checkVisibility() || one.closest("script, style, noscript")) continue;
    const [a, b] = [light(numbers(getComputedStyle(one).color)), light(behind(one))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found[`${one.tagName}.${one.className} ${text.data.trim().slice(0, 30)}`] = ratio;
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_contrast(chromium: Browser, page: str, dark: bool) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    tab = chromium.open(f"{page}#q={NODE}", dark=dark, width=360)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true; 0")
    assert tab.run(CONTRAST) == {}
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_it_is_used_by_keyboard(chromium: Browser, page: str) -> None:
    tab = chromium.open(f"{page}#q={NODE}&arch=amd64")
    focus = "document.activeElement.closest('td') && document.activeElement.innerText"
    for _ in range(30):
        tab.key("Tab")
        if "535.261.03" in str(tab.run(focus)):
            break
    tab.key("Enter", text="\r")
    opened = "document.querySelectorAll('td > details[open]').length"
    assert tab.run(opened) == 1
    tab.key("Escape")
    assert tab.run(opened) == 0
    assert "535.261.03" in tab.run(focus)


def test_a_card_closes_when_another_one_opens(chromium: Browser, page: str) -> None:
    for script in (True, False):
        tab = chromium.open(page, script=script)
        tab.run("document.querySelector('.group > details').open = true; 0")
        tab.click(".group tbody tr:nth-child(1) td:nth-child(3) summary")
        tab.click(".group tbody tr:nth-child(1) td:nth-child(4) summary")
        assert tab.run("document.querySelectorAll('td > details[open]').length") == 1


@pytest.mark.parametrize("width", [360, 1280])
def test_a_screen_reader_finds_tables_heads_and_the_question(
    chromium: Browser, page: str, width: int
) -> None:
    tab = chromium.open(f"{page}#q={NODE}&arch=amd64", width=width)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    names = {
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if node.get("name") and not node["ignored"]
    }
    assert ("searchbox", "Is there an image for my node?") in names
    assert (
        "table",
        "Images for Debian 12 (bookworm) on amd64: a row for each kernel, a column for each driver",
    ) in names
    assert ("columnheader", "535.261.03") in names
    assert ("rowheader", NODE) in names
    assert ("DisclosureTriangleGrouped", "535.261.03 image tested") in names
    live = [node for node in nodes if node["role"]["value"] == "status"]
    assert [node["role"]["value"] for node in live] == ["status"]


def test_without_scripts_all_of_it_can_be_read(chromium: Browser, tmp_path: Path) -> None:
    plan = shipped_plan()
    tab = chromium.open(made_page(tmp_path, plan), script=False)
    assert "Search and filters need JavaScript" in tab.run("document.body.innerText")
    assert tab.run("document.querySelector('#filters').checkVisibility()") is False
    assert len(cells(tab)) == len(plan["cells"]) + 1
    tab.click(".group summary")
    tab.click(".group tbody tr:first-child td:nth-child(4) summary")
    assert "debian12-amd64-535.261.03-jit" in tab.run(
        "document.querySelector('td > details[open]').innerText"
    )


def test_print_has_every_system(chromium: Browser, page: str) -> None:
    tab = chromium.open(page)
    few = len(tab.call("Page.printToPDF")["data"])
    assert tab.run("[...document.querySelectorAll('.group > details')].every(one => one.open)")
    assert len(tab.call("Page.printToPDF")["data"]) >= few


# -- hostile texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [True, False])
def test_hostile_texts_do_nothing(chromium: Browser, tmp_path: Path, script: bool) -> None:
    file = tmp_path / "index.html"
    file.write_text(page_text(coverage(hostile_documents())))
    tab = chromium.open(file.as_uri(), script=script)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true; 0")
    if script:
        search(tab, TAKEN)
        choose(tab, "arch", "amd64")
        # a kernel whose name is hostile, where it is called unknown
        search(tab, f"Linux node 6.1.{TAKEN.replace(' ', '_')} x86_64")
        assert "document.title" in answer(tab)
    assert tab.run("document.title") == "Driver images"
    assert tab.run("[document.images.length, document.scripts.length, document.links.length]") == [0, 1, 0]
    assert tab.requested() == [file.as_uri()]
    assert tab.complaints() == []


def test_the_policy_stops_what_would_get_past_the_escaping(
    chromium: Browser, page: str, tmp_path: Path
) -> None:
    """The same page, with markup in the place of a text."""
    whole = (Path(page.removeprefix("file://"))).read_text()
    file = tmp_path / "index.html"
    bad = "<script>document.title='taken'</script><img src='http://evil.test/a' onerror='document.title=1'>"
    file.write_text(whole.replace("<main>", f"<main>{bad}", 1))
    tab = chromium.open(file.as_uri())
    assert tab.run("document.title") == "Driver images"
    assert tab.requested() == [file.as_uri()]
    assert any(
        "Content Security Policy" in told or "ContentSecurityPolicy" in told for told in tab.complaints()
    )


def test_the_browser_would_tell_of_a_request_and_of_an_error(chromium: Browser, tmp_path: Path) -> None:
    """What the tests above rely on."""
    file = tmp_path / "index.html"
    file.write_text("<img src='http://evil.test/a'><script>nothing.there()</script>")
    tab = chromium.open(file.as_uri())
    assert "http://evil.test/a" in tab.requested()
    assert any("nothing is not defined" in told for told in tab.complaints())
