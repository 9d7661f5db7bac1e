"""What `build` did, as the document that `--json` prints and that the other reports are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from driverforge_build.app.prepare import Prepared
from driverforge_build.app.runner import CellReport
from driverforge_build.documents.failures import failure
from driverforge_build.render.bake import local_reference
from driverforge_build.render.context import BuildContext

if TYPE_CHECKING:
    from driverforge_build.documents.images import BuildCell


def build_cells(
    prepared: Prepared, contexts: Sequence[BuildContext], reports: Sequence[CellReport]
) -> Iterator[BuildCell]:
    """Every cell of the plan and every toolkit image, with what became of it."""
    rows = {row.key: row for row in prepared.plan.rows}
    made = {context.image.id: context for context in contexts}
    ended = {report.cell: report for report in reports}
    for key in dict.fromkeys((*rows, *made, *ended)):
        cell = _untouched(key)
        if row := rows.get(key):
            cell["verdict"], cell["reason"] = row.verdict.state.value, row.verdict.reason
        if context := made.get(key):
            cell["inputs"], cell["reference"] = context.inputs, local_reference(context)
        if report := ended.get(key):
            _tell(cell, report)
        yield cell


def _untouched(key: str) -> BuildCell:
    """A cell that nothing was done about; a toolkit image, which has no row in a plan, is to be built."""
    return {
        "cell": key,
        "verdict": "build",
        "reason": "",
        "inputs": None,
        "reference": None,
        "result": None,
        "seconds": None,
        "attempts": [],
        "log": None,
        "id": None,
        "size": None,
        "layers": [],
        "pushed": None,
        "error": None,
    }


def _tell(cell: BuildCell, report: CellReport) -> None:
    cell["result"] = report.result.value
    cell["reference"] = report.reference
    cell["seconds"] = round(report.seconds, 1)
    cell["attempts"] = [{"reason": one.reason, "seconds": round(one.seconds, 1)} for one in report.attempts]
    cell["log"] = str(report.log) if report.log else None
    if image := report.image:
        cell["id"], cell["size"] = image.id, image.size
        cell["layers"] = [
            {"digest": layer.digest, "size": layer.size, "created_by": layer.created_by}
            for layer in image.layers
        ]
    cell["pushed"] = report.pushed.document() if report.pushed else None
    cell["error"] = failure(report.error) if report.error else None
