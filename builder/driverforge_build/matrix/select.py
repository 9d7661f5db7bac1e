"""Choosing cells by glob: `--select 'debian12-*-jit' --skip '*-arm64-*'`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Protocol, TypeVar

from driverforge_build.matrix.globs import glob_set
from driverforge_core.errors import UsageError

MAX_COMPARED = 2000
SHOWN = 5
NO_ROW = (
    "take a cell that there is (`driverforge matrix show`), or add the row that is missing to a matrix of "
    "your own (docs/matrix.md)"
)


class Keyed(Protocol):
    @property
    def key(self) -> str: ...


CellT = TypeVar("CellT", bound=Keyed)


def select_cells(
    cells: Iterable[CellT],
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    why_none: Callable[[str], Iterable[str]] = lambda _: (),
) -> tuple[CellT, ...]:
    """The cells whose id any of `select` matches and none of `skip` does, in their order.

    Without `select` all match. Raises UsageError where a glob of `select` matches no cell (near ids are
    named, and what `why_none` says of the glob), or where nothing is left.
    """
    everything = tuple(cells)
    wanted = glob_set(tuple(select) or ("*",))
    chosen = tuple(cell for cell in everything if wanted(cell.key))
    keys = [cell.key for cell in chosen]
    for glob in select:
        # a second pass over the chosen only: with one glob it is the same question
        if not chosen or (len(select) > 1 and not any(map(glob_set((glob,)), keys))):
            raise _no_match(glob, [cell.key for cell in everything], [*why_none(glob)])
    unwanted = glob_set(tuple(skip))
    left = tuple(cell for cell in chosen if not unwanted(cell.key)) if skip else chosen
    if chosen and not left:
        raise UsageError(
            f"--skip {' '.join(skip)} leaves none of {len(chosen)} cells",
            details=[f"skipped: {key}" for key in keys[:SHOWN]],
            resolution="skip fewer, or select others",
        )
    return left


def _no_match(glob: str, keys: Sequence[str], why_none: Sequence[str]) -> UsageError:
    close = near_ids(glob, keys)
    if glob.startswith("toolkit") and not any(key.startswith("toolkit") for key in keys):
        return UsageError(
            f"--select {glob}: the container toolkit's images have no verdict: "
            "no repository is searched for them",
            resolution="`generate`, `build` and `push` take it, with NVIDIA's files: --toolkit-artifacts "
            "ARCH=DIR (docs/toolkit.md)",
        )
    if not keys:
        return UsageError(
            f"--select {glob} matches no cell: there are none", resolution="look at `driverforge matrix show`"
        )
    return UsageError(
        f"--select {glob} matches none of {len(keys)} cells",
        details=[*why_none, *(f"near: {key}" for key in close)],
        resolution=NO_ROW
        if why_none
        else "quote globs from the shell; `driverforge matrix show` lists what there is, `driverforge lock` "
        "finds new kernels",
    )


def check_named(option: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError when an option names an OS of no selected cell."""
    stray = sorted(set(names) - set(known))
    if stray:
        raise UsageError(
            f"{option} names {', '.join(stray)}, and no selected cell is of that OS",
            resolution=f"write one of {', '.join(sorted(set(known)))}",
        )


def mirror_os(key: str) -> str:
    """The OS that --mirror names: 'ubuntu24.04' of 'ubuntu24.04-arm64/noble'."""
    return key.partition("/")[0].removesuffix("-amd64").removesuffix("-arm64")


def near_ids(glob: str, keys: Sequence[str], count: int = SHOWN) -> tuple[str, ...]:
    """The ids that resemble a glob most, best first.

    Those of the system and architecture that it names, where there are some, else those of the system.
    """
    text = glob.replace("*", "").lower()
    for start in ("-".join(text.split("-")[:2]), text.partition("-")[0]):
        if own := [key for key in keys if key.startswith(f"{start}-")]:
            keys = own
            break
    # similarity is quadratic; a sample answers as well
    step = max(1, len(keys) // MAX_COMPARED)
    matcher = SequenceMatcher(b=text, autojunk=False)

    def similarity(key: str) -> float:
        matcher.set_seq1(key)
        return matcher.ratio()

    return tuple(nlargest(count, keys[::step], key=similarity))
