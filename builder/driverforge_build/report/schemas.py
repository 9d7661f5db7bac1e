"""The published JSON schemas, made from `documents`. `hack/generate` writes them into data/reports."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from driverforge_build import documents

DOCUMENTS: dict[str, type] = {
    "plan": documents.PlanDocument,
    "explain": documents.ExplainDocument,
    "generate": documents.GenerateDocument,
    "matrix": documents.MatrixDocument,
    "build": documents.BuildDocument,
    "lock-report": documents.LockDocument,
    "push": documents.PushDocument,
    "push-plan": documents.PushPlanDocument,
    "index": documents.IndexDocument,
    "covered": documents.CoveredDocument,
    "failure": documents.FailureDocument,
    "attestations": documents.AttestationsDocument,
    "verify": documents.VerifyDocument,
    "watch": documents.WatchDocument,
    "times": documents.TimesDocument,
    "mirror-lock": documents.MirrorLockDocument,
    "mirror-inventory": documents.MirrorInventoryDocument,
    "mirror-archive": documents.MirrorArchiveDocument,
    "mirror-copy": documents.MirrorCopyDocument,
    "mirror-volumes": documents.MirrorVolumesDocument,
    "mirror-prune": documents.MirrorPruneDocument,
    "mirror-shelf": documents.MirrorShelfDocument,
}
"""Name of a schema file to the document that it describes."""

Schema = dict[str, Any]


def document_schema(document: type) -> Schema:
    """A document's schema as JSON data; sentences of docstrings in one line."""
    schema = TypeAdapter(document).json_schema(ref_template="#/$defs/{model}")
    for one in (schema, *schema.get("$defs", {}).values()):
        if "description" in one:
            one["description"] = " ".join(one["description"].split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
