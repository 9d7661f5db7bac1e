"""Plans: verdicts in the order of cells, a table, JSON, and the registry's answers."""

from __future__ import annotations

import json
from datetime import date

import pytest

from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell
from driverforge_build.plan.evidence import document, find_cell, paragraphs
from driverforge_build.plan.rows import ImageLookup, Plan, all_cells, make_plan
from driverforge_build.plan.text import json_lines, summary, table
from driverforge_build.verdict import Judge, State
from driverforge_core.errors import InputError, UsageError
from driverforge_oci.presence import Absent, Presence, Present, Unknown
from support.samples.locks import kernel, sample_driver, target
from support.samples.sampledebian import BARE, OLD, sample_matrix

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


def judge() -> Judge:
    return Judge(NO_PROBES, LOCK, today=date(2026, 1, 1))


def plan(published: ImageLookup | None = None) -> Plan:
    return make_plan(all_cells(NO_PROBES, LOCK), judge(), published)


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
    told = json.loads("\n".join(json_lines(plan())))
    assert [row["cell"] for row in told["cells"]] == KEYS
    assert told["cells"][0]["verdict"] == "build"
    assert told["cells"][0]["kernel"] is None
    assert told["summary"] == {"build": 1, "exists": 0, "vendor-ships": 0, "blocked": 0, "unknown": 4}


def test_an_empty_plan() -> None:
    empty = make_plan([], judge())
    assert list(table(empty)) == []
    assert summary(empty) == ["0 cells: none"]
    assert json.loads("\n".join(json_lines(empty)))["cells"] == []


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
    found = {section.title: section.lines for section in paragraphs(cell, verdict, NO_PROBES, LOCK)}
    assert list(found)[1:] == ["matrix", "kernel", "probes", "driver", "repositories"]
    assert found["matrix"][0] == "site.yaml:20: Debian 12"
    assert f"linux-headers-{OLD} 1-1 amd64, 0.0 MB, from bookworm" in found["kernel"]
    assert found["probes"] == ("resize (open): not in the lock",)
    assert any(line.strip() == f"sha256 {'ab' * 32}" for line in found["driver"])
    assert found["repositories"][0].startswith("bookworm of 2026-11-20T12:00:00Z; InRelease sha256 cdcd")
    assert json.loads(json.dumps(document(cell, verdict, NO_PROBES, LOCK)))["verdict"]["state"] == "unknown"


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
