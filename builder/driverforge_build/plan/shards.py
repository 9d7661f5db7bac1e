"""Cells dealt to the jobs of a pipeline: about as much work each, and what shares layers together.

The cells of one group (an OS, architecture and driver) share user space and tool chain, which are made once
in every shard that has one of them. So a group stays whole unless that would keep the pipeline waiting: then
it is cut in two, again and again. The dealing itself is longest processing time first.

The same cells and times give the same shards, in whatever order they come. A shard has one architecture
where there are shards enough: its runner can be a native one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from driverforge_build.matrix import Cell
from driverforge_build.plan.times import Times, group_of

GITHUB_JOBS = 256
"""Jobs that a matrix of a GitHub workflow may have (docs.github.com, actions limits)."""
GITLAB_JOBS = 200
"""Jobs that `parallel: matrix` of GitLab may have (gitlab#438369)."""
UNEVEN = 1.2
"""How much longer than the mean shard the longest one may take before a group is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One job's cells, in their order; `seconds` is what they take one after the other."""

    number: int
    of: int
    cells: tuple[Cell, ...]
    seconds: float

    @property
    def arch(self) -> str:
        """The architecture of its cells; '' where they have several, or there are none."""
        archs = {cell.arch for cell in self.cells}
        return archs.pop() if len(archs) == 1 else ""

    @property
    def name(self) -> str:
        """'debian12-amd64-535.261.03 (4)', for people; '+2' more groups, and the number of cells."""
        groups = list(dict.fromkeys(map(group_of, self.cells)))
        more = f" +{len(groups) - 1}" if len(groups) > 1 else ""
        return f"{groups[0] if groups else 'nothing'}{more} ({len(self.cells)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWanted:
    """`--shard 3/12`: one of the shards that each job deals for itself.

    All of them have to deal alike, so no measured times are looked at.
    """

    number: int
    of: int

    def of_cells(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        return deal(cells, Times(), self.of)[self.number - 1].cells


@dataclass(frozen=True, slots=True)
class _Stack:
    """Cells of one group that stay together."""

    cells: tuple[Cell, ...]
    seconds: float

    @property
    def rank(self) -> tuple[float, str]:
        return -self.seconds, self.cells[0].key if self.cells else ""


def enough(cells: Sequence[Cell], times: Times, *, seconds: float, most: int) -> int:
    """How many shards it takes so that each needs about `seconds`; at most `most`, and one for each cell."""
    total = sum(stack.seconds for stack in _groups(cells, times))
    archs = len({cell.arch for cell in cells})
    return min(most, len(cells), max(archs, math.ceil(total / seconds)))


def deal_for(cells: Sequence[Cell], times: Times, *, seconds: float, most: int) -> tuple[Shard, ...]:
    """Shards of about `seconds` each, `most` of them at most, and none without a cell."""
    count = enough(cells, times, seconds=seconds, most=most)
    while count:
        shards = deal(cells, times, count)
        if all(shard.cells for shard in shards):
            return shards
        count = sum(bool(shard.cells) for shard in shards)
    return ()


def deal(cells: Sequence[Cell], times: Times, count: int) -> tuple[Shard, ...]:
    """Exactly `count` shards, the longest first; every cell is in one of them."""
    hands: list[list[_Stack]] = []
    for mine, number in _by_arch(cells, times, count):
        hands += _dealt(_groups(mine, times), times, number)
    hands.sort(key=lambda hand: (-_seconds(hand), hand[0].rank if hand else (0.0, "")))
    order = {cell.key: position for position, cell in enumerate(cells)}
    return tuple(
        Shard(
            number=number,
            of=count,
            cells=tuple(
                sorted((cell for stack in hand for cell in stack.cells), key=lambda cell: order[cell.key])
            ),
            seconds=_seconds(hand),
        )
        for number, hand in enumerate(hands, start=1)
    )


def _by_arch(cells: Sequence[Cell], times: Times, count: int) -> list[tuple[list[Cell], int]]:
    """The cells of each architecture with its number of shards, by what they cost."""
    by_arch: dict[str, list[Cell]] = {}
    for cell in cells:
        by_arch.setdefault(cell.arch, []).append(cell)
    if len(by_arch) < 2 or count < len(by_arch):
        return [(list(cells), count)]
    costs = {arch: sum(stack.seconds for stack in _groups(mine, times)) for arch, mine in by_arch.items()}
    numbers = dict.fromkeys(by_arch, 1)
    for _ in range(count - len(by_arch)):
        # the next one goes to whoever has the longest shards, and something to put into it
        open_to = [arch for arch in sorted(by_arch) if numbers[arch] < len(by_arch[arch])] or sorted(by_arch)
        numbers[max(open_to, key=lambda arch: costs[arch] / numbers[arch])] += 1
    return [(by_arch[arch], numbers[arch]) for arch in sorted(by_arch)]


def _groups(cells: Iterable[Cell], times: Times) -> list[_Stack]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group_of(cell), []).append(cell)
    return [_stack(sorted(mine, key=lambda cell: cell.key), times) for _, mine in sorted(groups.items())]


def _stack(cells: Sequence[Cell], times: Times) -> _Stack:
    return _Stack(tuple(cells), times.shared(cells[0]) + sum(map(times.own, cells)))


def _dealt(stacks: list[_Stack], times: Times, count: int) -> list[list[_Stack]]:
    share = max(_seconds(stacks) / count, 1e-9)
    whole = [part for stack in stacks for part in _cut(stack, times, math.ceil(stack.seconds / share))]
    best = now = _longest_first(whole, count)
    # several shards may be the longest: one cut alone shortens nothing then
    for _ in range(2 * count):
        longest = max(now, key=_seconds, default=[])
        if _seconds(longest) <= UNEVEN * _seconds(whole) / count:
            break
        largest = min((stack for stack in longest if len(stack.cells) > 1), key=_rank, default=None)
        if largest is None:
            break
        whole = [stack for stack in whole if stack is not largest] + _cut(largest, times, 2)
        now = _longest_first(whole, count)
        best = min(best, now, key=lambda hands: max(map(_seconds, hands)))
    return best


def _cut(stack: _Stack, times: Times, parts: int) -> list[_Stack]:
    """A group in parts that take about as long as each other; each pays for the shared layers once more."""
    parts = min(parts, len(stack.cells))
    if parts < 2:
        return [stack]
    singles = [_Stack((cell,), times.own(cell)) for cell in stack.cells]
    hands = _longest_first(singles, parts)
    return [_stack([single.cells[0] for single in hand], times) for hand in hands if hand]


def _longest_first(stacks: Sequence[_Stack], count: int) -> list[list[_Stack]]:
    """Each to whoever has least so far, the longest first."""
    hands: list[tuple[float, int]] = [(0.0, number) for number in range(count)]
    held: list[list[_Stack]] = [[] for _ in range(count)]
    for stack in sorted(stacks, key=_rank):
        seconds, number = heappop(hands)
        held[number].append(stack)
        heappush(hands, (seconds + stack.seconds, number))
    return held


def _rank(stack: _Stack) -> tuple[float, str]:
    return stack.rank


def _seconds(hand: Iterable[_Stack]) -> float:
    return sum(stack.seconds for stack in hand)
