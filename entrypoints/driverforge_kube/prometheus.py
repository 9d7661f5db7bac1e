"""Metrics in Prometheus' text format (prometheus.io, "Exposition formats", version 0.0.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`about` is what it says, for people."""

    name: str
    kind: Literal["counter", "gauge", "summary"] = "gauge"
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A value of a metric. `part` is 'sum' or 'count' of a summary."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    part: str = ""


def page(families: Iterable[tuple[Metric, Iterable[Sample]]]) -> str:
    """The text of all metrics that have samples, in this order.

    Raises ValueError for a name that Prometheus does not take.
    """
    lines = [line for metric, samples in families for line in _lines(metric, samples)]
    return "".join(f"{line}\n" for line in lines)


def _lines(metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    name, found = _name(_METRIC, metric.name), list(samples)
    if not found:
        return
    about = metric.about.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {metric.kind}"
    for one in found:
        pairs = ",".join(f"{_name(_LABEL, label)}={_quoted(value)}" for label, value in one.labels.items())
        whole = f"{name}_{one.part}" if one.part else name
        # whole numbers of seconds and bytes stay whole
        yield f"{whole}{{{pairs}}} {one.value:.15g}" if pairs else f"{whole} {one.value:.15g}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _name(form: re.Pattern[str], name: str) -> str:
    if not form.fullmatch(name):
        raise ValueError(f"{name!r} is no name for Prometheus")
    return name
