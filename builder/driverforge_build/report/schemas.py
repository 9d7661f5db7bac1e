"""The published JSON schemas, made from `documents`. `hack/generate` writes them into data/reports."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from driverforge_build.documents import failures, images, locks, mirrors, pipelines, plans, proofs

DOCUMENTS: dict[str, type] = {
    "plan": plans.PlanDocument,
    "explain": plans.ExplainDocument,
    "generate": plans.GenerateDocument,
    "matrix": plans.MatrixDocument,
    "build": images.BuildDocument,
    "lock-report": locks.LockDocument,
    "push": images.PushDocument,
    "push-plan": images.PushPlanDocument,
    "index": images.IndexDocument,
    "covered": pipelines.CoveredDocument,
    "failure": failures.FailureDocument,
    "attestations": proofs.AttestationsDocument,
    "verify": proofs.VerifyDocument,
    "watch": pipelines.WatchDocument,
    "times": pipelines.TimesDocument,
    "mirror-lock": mirrors.MirrorLockDocument,
    "mirror-inventory": mirrors.MirrorInventoryDocument,
    "mirror-archive": mirrors.MirrorArchiveDocument,
    "mirror-copy": mirrors.MirrorCopyDocument,
    "mirror-volumes": mirrors.MirrorVolumesDocument,
    "mirror-prune": mirrors.MirrorPruneDocument,
    "mirror-shelf": mirrors.MirrorShelfDocument,
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
