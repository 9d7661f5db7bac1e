"""Shards: every cell in one of them, about as much work each, and what shares layers together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_build.matrix import Cell, load_matrix
from driverforge_build.plan.shards import GITLAB_JOBS, Shard, ShardWanted, deal, deal_for
from driverforge_build.plan.times import MODULES_S, SHARED_S, BuildTime, Times, group_of
from driverforge_core.kernel import KernelRelease
from support.samples.synthetic import all_cells

CELLS = tuple(all_cells(load_matrix()))
PRECOMPILED = next(
    cell for cell in CELLS if cell.kernel and cell.os.id == "debian12" and cell.arch == "amd64"
)
NOTHING = Times()


def kernels(count: int, like: Cell = PRECOMPILED) -> list[Cell]:
    """Cells of one group: so many kernels of one driver on one OS."""
    prefix = f"{group_of(like)}-"
    releases = [f"6.1.0-{number}-cloud-amd64" for number in range(100, 100 + count)]
    return [replace(like, key=prefix + text, kernel=KernelRelease.parse(text)) for text in releases]


def measured(seconds: float, *, first: bool = False, compiled: bool | None = True) -> BuildTime:
    return BuildTime(seconds=seconds, first=first, date="2026-11-22T10:00:00Z", compiled=compiled)


def keys(shards: tuple[Shard, ...]) -> list[tuple[str, ...]]:
    return [tuple(cell.key for cell in shard.cells) for shard in shards]


chosen_cells = st.lists(st.sampled_from(CELLS), unique_by=lambda cell: cell.key, max_size=60)
some_times = st.dictionaries(
    st.sampled_from([cell.key for cell in CELLS]),
    st.builds(measured, st.floats(0, 3600), first=st.booleans(), compiled=st.none() | st.booleans()),
    max_size=20,
).map(Times)


@given(cells=chosen_cells, times=some_times, count=st.integers(1, 40))
def test_every_cell_is_in_one_shard_and_there_are_as_many_as_wanted(
    cells: list[Cell], times: Times, count: int
) -> None:
    shards = deal(cells, times, count)
    dealt = Counter(key for shard in keys(shards) for key in shard)
    assert dealt == Counter(cell.key for cell in cells)
    assert [shard.number for shard in shards] == list(range(1, count + 1))


@given(cells=chosen_cells, times=some_times, count=st.integers(1, 40), data=st.data())
def test_the_order_of_the_cells_does_not_matter(
    cells: list[Cell], times: Times, count: int, data: st.DataObject
) -> None:
    other = data.draw(st.permutations(cells))
    assert [set(shard) for shard in keys(deal(cells, times, count))] == [
        set(shard) for shard in keys(deal(other, times, count))
    ]


@given(cells=chosen_cells.filter(bool), times=some_times, most=st.integers(2, GITLAB_JOBS))
def test_there_are_never_more_shards_than_the_ci_system_takes_or_than_cells(
    cells: list[Cell], times: Times, most: int
) -> None:
    shards = deal_for(cells, times, seconds=60, most=most)
    assert 1 <= len(shards) <= min(most, len(cells))
    assert all(shard.cells for shard in shards)


def test_the_catalogue_is_dealt_evenly() -> None:
    shards = deal(CELLS, NOTHING, 24)
    longest, mean = shards[0].seconds, sum(shard.seconds for shard in shards) / 24
    assert longest <= 1.4 * mean
    assert shards[0].seconds == max(shard.seconds for shard in shards)


def test_what_shares_layers_stays_together_while_that_keeps_nobody_waiting() -> None:
    shards = deal(CELLS, NOTHING, 12)
    homes = {group_of(cell): set[int]() for cell in CELLS}
    for shard in shards:
        for cell in shard.cells:
            homes[group_of(cell)].add(shard.number)
    split = [name for name, numbers in homes.items() if len(numbers) > 1]
    assert len(split) <= 0.1 * len(homes)


def test_a_group_that_would_keep_all_others_waiting_is_cut() -> None:
    shards = deal(kernels(40), NOTHING, 8)
    assert {len(shard.cells) for shard in shards} == {5}
    assert shards[0].seconds == SHARED_S + 5 * MODULES_S * len(PRECOMPILED.module_types)


def test_a_shard_has_one_architecture_where_there_are_enough() -> None:
    assert {shard.arch for shard in deal(CELLS, NOTHING, 8)} == {"amd64", "arm64"}
    assert [shard.arch for shard in deal(CELLS, NOTHING, 1)] == [""]


def test_a_measured_time_counts_and_what_is_like_it_is_estimated_by_it() -> None:
    known, unknown = kernels(2)
    times = Times({known.key: measured(600)})
    assert (times.own(known), times.own(unknown)) == (600, 600)
    assert times.own(replace(unknown, kernel=None)) != 600


def test_finished_modules_of_a_distribution_say_nothing_of_modules_that_are_compiled() -> None:
    """They are on the same kernels, and in an image within seconds."""
    like = next(cell for cell in CELLS if cell.kernel and cell.driver.vendor_modules)
    known, other, unknown = kernels(3, like)
    times = Times({known.key: measured(12, compiled=False), other.key: measured(14, compiled=False)})
    guess = MODULES_S * len(PRECOMPILED.module_types)
    assert (times.own(unknown), times.own(PRECOMPILED)) == (13, guess)
    # of an earlier version, which did not tell them apart
    old = {known.key: measured(12, compiled=None), other.key: measured(900, first=True, compiled=None)}
    times = Times(old)
    assert (times.own(known), times.own(PRECOMPILED), times.shared(unknown)) == (12, guess, SHARED_S)


def test_what_the_first_image_of_a_group_took_more_is_the_cost_of_the_shared_layers() -> None:
    first, second, third = kernels(3)
    times = Times({first.key: measured(1000, first=True), second.key: measured(100)})
    assert (times.shared(third), times.own(first), times.own(third)) == (900, 100, 100)


def test_a_slow_cell_gets_a_shard_for_itself() -> None:
    slow, *others = kernels(4)
    times = Times({cell.key: measured(100) for cell in others} | {slow.key: measured(3000)})
    assert keys(deal([slow, *others], times, 2))[0] == (slow.key,)


def test_jobs_that_deal_for_themselves_have_all_cells_together() -> None:
    parts = [ShardWanted(number=number, of=5).of_cells(CELLS) for number in range(1, 6)]
    assert sorted(cell.key for part in parts for cell in part) == sorted(cell.key for cell in CELLS)


@pytest.mark.parametrize(("count", "name"), [(1, "(1)"), (3, "(3)")])
def test_a_shard_is_named_by_its_first_group(count: int, name: str) -> None:
    (shard,) = deal(kernels(count), NOTHING, 1)
    assert shard.name == f"{group_of(PRECOMPILED)} {name}"
