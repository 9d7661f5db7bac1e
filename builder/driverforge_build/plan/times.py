"""How long images took to build, and so how long others will: what shards are balanced by.

`build --times FILE` writes a time for each image that it built, `plan --times FILE` reads them. The first
image of a driver on an OS (the cells of one `group_of`) makes the layers that the others find made: its time
is marked, and what it took more than they do is the cost of these layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from driverforge_build.matrix import Cell
from driverforge_build.sharedfile import alone, read_json, replace_text
from driverforge_core.cell import CellId
from driverforge_core.errors import DriverforgeError, InputError

SCHEMA = 1

SHARED_S = 240.0
"""User space, and for modules the tool chain: packages from a mirror, where nothing was measured."""
JIT_S = 30.0
"""A JIT image above its user space and tool chain."""
MODULES_S = 150.0
"""The modules of one type for one kernel: some 340 seconds of CPU (535 and 550, open), on a few cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTime:
    """Wall time in seconds of one build. `first`: it made the layers that its group shares.

    `date` is when it ended, UTC, ISO 8601: of two times for a cell the newer one counts. `compiled`: whether
    it compiled modules. None where files of earlier versions do not say so: the time counts for its own cell.
    """

    seconds: float
    first: bool
    date: str
    compiled: bool | None


@dataclass(frozen=True, slots=True)
class _Kind:
    """What images take about as long as each other for, from the nearest to the farthest likeness."""

    os: str
    arch: str
    driver: str
    compiled: bool

    def likenesses(self) -> tuple[tuple[object, ...], ...]:
        branch = self.driver.partition(".")[0]
        return (
            (self.os, self.arch, self.driver, self.compiled),
            (self.arch, branch, self.compiled),
            (self.compiled,),
        )


def group_of(cell: Cell) -> str:
    """What cells have in common whose images share user space and tool chain: 'debian12-amd64-535.261.03'."""
    return f"{cell.os.id}-{cell.arch}-{cell.driver.version}"


@dataclass(frozen=True, slots=True)
class Times:
    """Measured times, and estimates from them for cells that were never built."""

    cells: Mapping[str, BuildTime] = field(default_factory=dict)
    _own: Mapping[tuple[object, ...], float] = field(init=False)
    _shared: Mapping[tuple[object, ...], float] = field(init=False)

    def __post_init__(self) -> None:
        told = [
            (_kind_of(CellId.parse(key), compiled=time.compiled), time)
            for key, time in self.cells.items()
            if time.compiled is not None
        ]
        own = _medians((kind, time.seconds) for kind, time in told if not time.first)
        object.__setattr__(self, "_own", own)
        firsts = (
            (kind, max(0.0, time.seconds - _nearest(own, kind, _guess(kind, 1))))
            for kind, time in told
            if time.first
        )
        object.__setattr__(self, "_shared", _medians(firsts))

    def own(self, cell: Cell) -> float:
        """Seconds for a cell's image where the layers that it shares are made already."""
        measured = self.cells.get(cell.key)
        if measured is not None and not measured.first:
            return measured.seconds
        kind = _kind(cell)
        return _nearest(self._own, kind, _guess(kind, len(cell.module_types)))

    def shared(self, cell: Cell) -> float:
        """Seconds for the layers that the images of a cell's group share."""
        return _nearest(self._shared, _kind(cell), SHARED_S)


def _kind(cell: Cell) -> _Kind:
    return _Kind(cell.os.id, cell.arch, cell.driver.version, cell.compiled)


def _kind_of(cell: CellId, *, compiled: bool) -> _Kind:
    return _Kind(cell.os.key, cell.arch, str(cell.driver), compiled)


def _guess(kind: _Kind, types: int) -> float:
    return MODULES_S * max(1, types) if kind.compiled else JIT_S


def _medians(measured: Iterable[tuple[_Kind, float]]) -> dict[tuple[object, ...], float]:
    found: dict[tuple[object, ...], list[float]] = {}
    for kind, seconds in measured:
        for likeness in kind.likenesses():
            found.setdefault(likeness, []).append(seconds)
    return {likeness: median(values) for likeness, values in found.items()}


def _nearest(known: Mapping[tuple[object, ...], float], kind: _Kind, otherwise: float) -> float:
    return next((known[likeness] for likeness in kind.likenesses() if likeness in known), otherwise)


def read_times(paths: Sequence[Path]) -> Times:
    """The times of files, and of all *.json in folders; one that is not there holds none.

    Raises InputError for a file that is damaged, which may be removed.
    """
    cells: dict[str, BuildTime] = {}
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            for key, time in _read(file).items():
                if key not in cells or cells[key].date <= time.date:
                    cells[key] = time
    return Times(cells)


def merge_times(path: Path, measured: Mapping[str, BuildTime]) -> None:
    """Add times to a file. Another run may have written its own since: they stay."""
    with alone(path):
        replace_text(path, _dump({**_read(path), **measured}), option="--times")


def _read(path: Path) -> dict[str, BuildTime]:
    try:
        document = read_json(path.read_bytes())
        if (schema := document["schema"]) != SCHEMA:
            raise ValueError(f"schema {schema}, and this program reads {SCHEMA}")
        cells = ((CellId.parse(key), value) for key, value in document["cells"].items())
        return {str(cell): _time(cell, value) for cell, value in cells}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", resolution="name another with --times"
        ) from error
    # an OverflowError for seconds of hundreds of digits
    except (
        DriverforgeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{path} is no file of build times",
            details=[f"{type(error).__name__}: {error}"],
            resolution="remove it: times are measured again",
        ) from error


def _time(cell: CellId, value: Mapping[str, object]) -> BuildTime:
    seconds, first, date = value["seconds"], value["first"], value["date"]
    if not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise ValueError(f"{seconds!r} are no seconds")
    if not isinstance(first, bool):
        raise TypeError(f"first: {first!r} is neither true nor false")
    compiled = value.get("compiled", False if cell.kernel is None else None)
    if compiled is not None and not isinstance(compiled, bool):
        raise TypeError(f"compiled: {compiled!r} is neither true nor false")
    return BuildTime(seconds=float(seconds), first=first, date=str(date), compiled=compiled)


def _dump(cells: Mapping[str, BuildTime]) -> str:
    lines = [f" {json.dumps(key)}: {json.dumps(_document(time))}" for key, time in sorted(cells.items())]
    return f'{{"schema": {SCHEMA}, "cells": {{\n' + ",\n".join(lines) + "\n}}\n"


def _document(time: BuildTime) -> dict[str, object]:
    said = {} if time.compiled is None else {"compiled": time.compiled}
    return {"seconds": round(time.seconds, 1), "first": time.first, **said, "date": time.date}
