"""Plans: verdicts in the order of cells, a table, JSON, and the registry's answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.lock.pins import HeaderFact, Lock, LockedBase
from driverforge_build.matrix import Cell
from driverforge_build.plan.evidence import document, find_cell, paragraphs
from driverforge_build.plan.rows import ImageLookup, Plan, all_cells, excluded_by_name, make_plan
from driverforge_build.plan.text import json_lines, summary, table
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State
from driverforge_core.errors import InputError, UsageError
from driverforge_oci.presence import Absent, Presence, Present, Unknown
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import BARE, NEW, OLD, sample_matrix

LOCK = Lock(
    targets={
        "debian12-amd64": target(
            kernel("6.1.0-100-cloud-amd64"),
            kernel(OLD),
            kernel("6.1.0-9-cloud-amd64"),
            drivers={"535.261.03": sample_driver()},
            without_headers=(BARE,),
        )
    }
)
NO_PROBES = sample_matrix()
KEYS = [
    "debian12-amd64-535.261.03-jit",
    "ubuntu24.04-amd64-535.261.03-jit",
    "debian12-amd64-535.261.03-6.1.0-9-cloud-amd64",
    f"debian12-amd64-535.261.03-{OLD}",
    "debian12-amd64-535.261.03-6.1.0-100-cloud-amd64",
]


@pytest.mark.parametrize("locked", [True, False])
def test_a_selected_cell_of_an_excluded_flavour_is_there_once(locked: bool) -> None:
    """Also where a lock of before the exclusion has its kernel, and where it is selected twice."""
    release = "6.1.0-53-rt-amd64"
    key = f"debian12-amd64-535.261.03-{release}"
    lock = Lock(targets={"debian12-amd64": target(*([kernel(release)] if locked else []))})
    named = excluded_by_name(NO_PROBES, lock, [key, key])
    found = [cell for cell in (*all_cells(NO_PROBES, lock), *named) if cell.key == key]
    assert [cell.excluded.id for cell in found if cell.excluded] == ["no-realtime"]


def judge() -> Judge:
    return Judge(NO_PROBES, LOCK, today=date(2026, 1, 1))


def plan(published: ImageLookup | None = None) -> Plan:
    return make_plan(all_cells(NO_PROBES, LOCK), judge(), published)


def json_text(made: Plan, lock: Lock) -> str:
    given = Given(matrix=Path("site.yaml"))
    return "\n".join(json_lines(made, lock, given=given, made=datetime(2026, 1, 2, 3, tzinfo=timezone.utc)))


def test_cells_come_jit_first_and_kernels_oldest_first() -> None:
    assert [cell.key for cell in all_cells(NO_PROBES, LOCK)] == KEYS


def test_a_table_has_a_line_a_cell() -> None:
    lines = list(table(plan()))
    assert [line.split()[:2] for line in lines] == [
        [key, verdict]
        for key, verdict in zip(KEYS, ["build", "unknown", "unknown", "unknown", "unknown"], strict=True)
    ]
    assert len({line.index(line.split()[1]) for line in lines}) == 1


def test_the_summary_says_each_thing_once() -> None:
    lines = summary(plan())
    assert lines[0] == "5 cells: 1 build, 4 unknown"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "unknown (1 cell), to run",
        "unknown (3 cells), to run",
    ]


def test_one_cell_is_one_cell() -> None:
    assert summary(make_plan(list(all_cells(NO_PROBES, LOCK))[:1], judge()))[0] == "1 cell: 1 build"


def test_json_is_one_document() -> None:
    told = json.loads(json_text(plan(), LOCK))
    assert [row["cell"] for row in told["cells"]] == KEYS
    assert told["cells"][0]["verdict"] == "build"
    assert told["cells"][0]["kernel"] is None
    assert told["summary"] == {"build": 1, "exists": 0, "blocked": 0, "unknown": 4}
    assert told["made"] == "2026-01-02T03:00:00Z"
    assert told["inputs"] == {"matrix": "site.yaml", "lock": "driverforge.lock.json", "bases": {}}


def test_json_has_what_the_lock_has_for_the_cells() -> None:
    told = json.loads(json_text(plan(), LOCK))["targets"]
    assert list(told) == ["debian12-amd64", "ubuntu24.04-amd64"]
    debian, ubuntu = told.values()
    assert debian["suites"] == [{"suite": "bookworm", "date": "2026-11-20T12:00:00Z", "sha256": "cd" * 32}]
    assert [package["name"] for package in debian["kernels"][OLD]] == [
        f"linux-headers-{OLD}",
        f"linux-image-{OLD}",
    ]
    assert BARE not in debian["kernels"]
    assert (ubuntu["name"], ubuntu["suites"], ubuntu["kernels"]) == ("Ubuntu 24.04", [], {})


def test_json_names_the_image_that_the_registry_was_asked_for() -> None:
    asked = plan(lambda cell: (f"registry.site/driver:{cell.key}-r1", Absent()))
    told = json.loads(json_text(asked, LOCK))["cells"]
    assert [row["image"] for row in told if row["verdict"] == "build"] == [
        f"registry.site/driver:{KEYS[0]}-r1"
    ]
    assert {row["image"] for row in told if row["verdict"] != "build"} == {""}


def test_a_cell_with_a_type_that_breaks_is_planned_without_it() -> None:
    """The registry is asked for the narrowed image, and the narrowed cell is built."""
    whole = LOCK.targets["debian12-amd64"]
    common = package("linux-headers-6.1.0-53-common")
    question = "include/linux/pci.h: arguments 4 pci_resize_resource"
    fact = HeaderFact(breaks=True, found="include/linux/pci.h:9: x")
    new = kernel(NEW, package(f"linux-headers-{NEW}"), common)
    lock = Lock(
        targets={whole.key: replace(whole, kernels={NEW: new}, header_facts={common.key: {question: fact}})}
    )
    asked: list[Cell] = []

    def published(cell: Cell) -> tuple[str, Presence]:
        asked.append(cell)
        return "registry/driver:tag", Absent()

    key = f"debian12-amd64-535.261.03-{NEW}"
    (cell,) = [cell for cell in all_cells(NO_PROBES, lock) if cell.key == key]
    made = make_plan([cell], Judge(NO_PROBES, lock, today=date(2026, 1, 1)), published)
    assert [one.module_types for one in (*asked, *made.to_build())] == [("proprietary",)] * 2
    (row,) = json.loads(json_text(made, lock))["cells"]
    assert (row["module_types"], row["source"]) == (["proprietary"], "compile")
    assert row["left_out"] == {"open": "pci_resize_resource() has four arguments"}
    assert summary(made)[-1] == (
        "warning (1 cell): built without open modules: pci_resize_resource() has four arguments"
    )
    (first, *_) = paragraphs(cell, made.rows[0].verdict, NO_PROBES, lock, {})
    assert "modules: proprietary, compiled with the image" in first.lines
    assert f"warning: {summary(made)[-1].partition(': ')[2]}" in first.lines


def test_an_empty_plan() -> None:
    empty = make_plan([], judge())
    assert list(table(empty)) == []
    assert summary(empty) == ["0 cells: none"]
    assert json.loads(json_text(empty, LOCK))["cells"] == []


@pytest.mark.parametrize(
    ("answer", "state", "degraded"),
    [
        (Present("sha256:1"), State.EXISTS, False),
        (Absent(), State.BUILD, False),
        (Unknown("429"), State.UNKNOWN, True),
    ],
)
def test_the_registry_is_asked_about_what_would_be_built(
    answer: Presence, state: State, degraded: bool
) -> None:
    asked = []

    def published(cell: Cell) -> tuple[str, Presence]:
        asked.append(cell.key)
        return "registry/driver:tag", answer

    made = plan(published)
    assert asked == ["debian12-amd64-535.261.03-jit"]
    assert made.rows[0].verdict.state is state
    assert made.degraded is degraded
    assert [cell.key for cell in made.to_build()] == (asked if state is State.BUILD else [])


def test_a_registrys_words_are_no_commands_to_the_terminal_of_a_table() -> None:
    made = plan(lambda _: ("registry/driver:tag", Unknown("made from \x1b]0;owned\x07")))
    told = "\n".join(table(made))
    assert r"made from \x1b]0;owned\x07" in told
    assert "\x1b" not in told


def test_explain_shows_where_everything_comes_from() -> None:
    cell = find_cell(NO_PROBES, LOCK, f"debian12-amd64-535.261.03-{OLD}")
    verdict = judge().verdict(cell)
    found = {section.title: section.lines for section in paragraphs(cell, verdict, NO_PROBES, LOCK, {})}
    assert list(found)[1:] == ["matrix", "kernel", "probes", "base image", "driver", "repositories"]
    assert found["matrix"][0] == "site.yaml:20: Debian 12"
    assert f"linux-headers-{OLD} 1-1 amd64, 0.0 MB, from bookworm" in found["kernel"]
    assert found["probes"] == ("resize (open): not in the lock",)
    assert any(line.strip() == f"sha256 {'ab' * 32}" for line in found["driver"])
    assert found["repositories"][0].startswith("bookworm of 2026-11-20T12:00:00Z; InRelease sha256 cdcd")
    assert (
        json.loads(json.dumps(document(cell, verdict, NO_PROBES, LOCK, {})))["verdict"]["state"] == "unknown"
    )


def test_explain_tells_the_base_image_that_is_used_from_the_one_of_the_lock() -> None:
    whole = LOCK.targets["debian12-amd64"]
    base = LockedBase(reference="site/debian:12", digest="sha256:" + "1" * 64, index="sha256:" + "2" * 64)
    lock = Lock(targets={whole.key: replace(whole, base=base)})
    cell = find_cell(NO_PROBES, lock, "debian12-amd64-535.261.03-jit")

    def told(**bases: str) -> tuple[str, ...]:
        found = paragraphs(cell, judge().verdict(cell), NO_PROBES, lock, bases)
        return next(one.lines for one in found if one.title == "base image")

    assert told(debian12="site/debian:12") == (
        f"site/debian:12@{base.digest}",
        f"  as the lock has it; the index over all architectures is {base.index}",
    )
    assert told(debian12="other:1") == (
        "the lock has no digest of the base image other:1: nobody notices when it moves",
        f"  the lock has site/debian:12@{base.digest}",
    )


def test_explain_knows_kernels_that_the_lock_does_not_offer() -> None:
    cell = find_cell(NO_PROBES, LOCK, f"debian12-amd64-535.261.03-{BARE}")
    assert judge().verdict(cell).state is State.BLOCKED


def test_explain_names_the_nearest_kernels_of_the_lock() -> None:
    with pytest.raises(InputError, match=r"no kernel 6\.1\.0-101-cloud-amd64 for debian12-amd64") as told:
        find_cell(NO_PROBES, LOCK, "debian12-amd64-535.261.03-6.1.0-101-cloud-amd64")
    assert told.value.details[0] == "near: 6.1.0-100-cloud-amd64"


def test_explain_of_no_id_says_how_ids_are_written() -> None:
    with pytest.raises(UsageError, match="'nonsense' is not a cell") as told:
        find_cell(NO_PROBES, LOCK, "nonsense")
    assert "<os>-<arch>-<driver>-<kernel or jit>" in told.value.resolution
    assert told.value.details[0].startswith("near: ")


@pytest.mark.parametrize(
    "key", ["debian12-amd64-535.261.03-jitt", "nonsense", "debian12-amd64-535.261.03-6.6.1-x"]
)
def test_explain_names_near_cells(key: str) -> None:
    with pytest.raises(UsageError) as told:
        find_cell(NO_PROBES, LOCK, key)
    assert told.value.details
