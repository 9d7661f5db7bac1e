"""`mirror.lock.json`: the same bytes for the same inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from driverforge_mirror.charts.chart import Chart
from driverforge_mirror.contents.found import Found
from driverforge_mirror.needs.needed import Needs, Reason
from driverforge_mirror.shapes import MirrorContent, MirrorImage, MirrorLockDocument, MirrorReason


def lock_document(
    chart: Chart | None, inputs: Mapping[str, str], needs: Needs, found: Mapping[str, Found]
) -> MirrorLockDocument:
    """The lock, sorted by image."""
    return {
        "schema": 1,
        "chart": {
            "name": chart.name,
            "version": chart.version,
            "prefix": chart.prefix,
            "source": chart.source,
            "sha256": chart.sha256,
        }
        if chart
        else None,
        "inputs": dict(sorted(inputs.items())),
        "images": [image_document(name, needs.images[name], found[name]) for name in sorted(needs.images)],
        "left_out": [
            {"image": one.image, "slot": one.slot, "text": one.text}
            for one in sorted(needs.left_out, key=lambda one: (one.image, one.slot))
        ],
        "warnings": list(dict.fromkeys(needs.warnings)),
    }


def image_document(name: str, reasons: Sequence[Reason], found: Found) -> MirrorImage:
    return {
        "image": name,
        **_content(found),
        "reasons": [reason_document(reason) for reason in reasons],
        "attached": [
            {"subject": one.subject, "tag": one.tag, "kind": one.kind, **_content(one.found)}
            for one in found.attached
        ],
    }


def _content(found: Found) -> MirrorContent:
    content: MirrorContent = {
        "digest": found.digest,
        "media_type": found.media_type,
        "size": found.size,
        "made": found.made,
        "platforms": [
            {"platform": one.platform, "digest": one.digest, "size": one.size, "blobs": dict(one.blobs)}
            for one in found.platforms
        ],
    }
    if found.addresses:
        content["addresses"] = dict(found.addresses)
    return content


def reason_document(reason: Reason) -> MirrorReason:
    pool = reason.pool
    return {
        "slot": reason.slot,
        "text": reason.text,
        "object": reason.object_name,
        "said": dict(reason.said),
        "os": pool.os.key if pool else "",
        "kernel": pool.kernel.text if pool and pool.kernel else "",
        "next_boot": bool(pool and pool.next_boot),
        "nodes": sorted(reason.nodes),
    }


def dump_mirror_lock(document: MirrorLockDocument) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
