"""The step summary: Markdown for the page of a pipeline's run, a grid of kernels and driver branches."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from driverforge_build.junit import Outcome
from driverforge_build.report.cases import Case
from driverforge_core.cell import JIT
from driverforge_core.errors import StorageFailed
from driverforge_core.printable import printable

LIMIT = 900_000
"""Bytes. GitHub takes 1 MiB a step, and nothing at all of what is larger."""

_MARKS = {
    "built": "✅",
    "exists": "☑️",
    "build": "🔨",
    "failed": "❌",
    "blocked": "⛔",
    "unknown": "❔",
    "not begun": "⏭️",
}
Lines = list[str]


def append_summary(path: Path, title: str, cases: Iterable[Case]) -> None:
    """Add a summary to a file, as GitHub wants $GITHUB_STEP_SUMMARY to be used. Raises StorageFailed."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(summary_text(title, cases))
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror}", resolution="choose another file with --summary"
        ) from error


def summary_text(title: str, cases: Iterable[Case]) -> str:
    """Counts, what went wrong, and a grid for each OS and architecture, as many as may be."""
    everything = list(cases)
    counts = Counter(case.word for case in everything)
    head = ", ".join(f"{_marked(word)} {count}" for word, count in counts.most_common()) or "no cells"
    parts = [[f"## {title}", "", head, ""], *_wrong(everything), *_grids(everything)]
    written, size = Lines(), 0
    for number, part in enumerate(parts):
        text = "\n".join(part) + "\n"
        size += len(text.encode())
        if size > LIMIT:
            written.append(f"… and {len(parts) - number} parts more: this page has no room for them.\n")
            break
        written.append(text)
    return "".join(written)


def _wrong(cases: list[Case]) -> Iterator[Lines]:
    for case in cases:
        if case.outcome in (Outcome.FAILED, Outcome.ERROR):
            message, text = (html.escape(printable(said)) for said in (case.message, case.text))
            head = f"{_marked(case.word)} <code>{case.cell}</code>: {message}"
            yield [
                f"<details><summary>{head}</summary>",
                "",
                f"<pre>{message}\n\n{text}</pre>",
                "",
                "</details>",
                "",
            ]


def _grids(cases: list[Case]) -> Iterator[Lines]:
    systems: dict[tuple[str, str], dict[str, dict[str, Case]]] = {}
    others = []
    for case in cases:
        parsed = case.parsed
        if parsed is None:
            others.append(case)
            continue
        rows = systems.setdefault((parsed.os.key, parsed.arch), {})
        rows.setdefault(case.kernel, {})[str(parsed.driver)] = case
    for (system, arch), rows in systems.items():
        drivers = list(dict.fromkeys(driver for row in rows.values() for driver in row))
        yield [
            f"### {system} {arch}",
            "",
            "| kernel | " + " | ".join(drivers) + " |",
            "|---|" + "---|" * len(drivers),
            # the image that compiles on the node comes first
            *(_row(kernel, rows[kernel], drivers) for kernel in sorted(rows, key=lambda name: name != JIT)),
            "",
        ]
    if others:
        yield ["### other images", "", *(f"* `{case.cell}`: {_told(case)}" for case in others), ""]


def _row(kernel: str, row: dict[str, Case], drivers: list[str]) -> str:
    cells = (_told(row[driver]) if driver in row else "" for driver in drivers)
    return f"| `{kernel}` | " + " | ".join(cells) + " |"


def _told(case: Case) -> str:
    return _marked(case.word) + (f" {case.seconds:.0f} s" if case.word == "built" else "")


def _marked(word: str) -> str:
    return f"{_MARKS.get(word, '')} {word}".strip()
