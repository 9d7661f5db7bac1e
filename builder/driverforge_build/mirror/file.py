"""`mirror.lock.json`: written so that the same inputs give the same bytes, and read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from driverforge_build.documents import MirrorImage, MirrorLockDocument, MirrorReason
from driverforge_build.mirror.ask import Found
from driverforge_build.mirror.chart import Chart
from driverforge_build.mirror.needs import Needs, Reason
from driverforge_core.errors import InputError
from driverforge_oci.reference import Reference

MIRROR_LOCK = Path("mirror.lock.json")

_READER = TypeAdapter(MirrorLockDocument)


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
        "images": [_image(name, needs.images[name], found[name]) for name in sorted(needs.images)],
        "left_out": [
            {"image": one.image, "slot": one.slot, "text": one.text}
            for one in sorted(needs.left_out, key=lambda one: (one.image, one.slot))
        ],
        "warnings": list(dict.fromkeys(needs.warnings)),
    }


def _image(name: str, reasons: list[Reason], found: Found) -> MirrorImage:
    return {
        "image": name,
        "digest": found.digest,
        "media_type": found.media_type,
        "size": found.size,
        "platforms": [
            {"platform": one.platform, "digest": one.digest, "size": one.size, "blobs": dict(one.blobs)}
            for one in found.platforms
        ],
        "reasons": [reason_document(reason) for reason in reasons],
    }


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


def load_mirror_lock(path: Path) -> MirrorLockDocument:
    """InputError for a file that is no such lock, with what to run."""
    again = "make it anew with `driverforge mirror lock`, or name another with --mirror-lock"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {why}", resolution=again) from None
    try:
        document = _READER.validate_json(text, strict=True)
        _check_names(document)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise InputError(f"{path} is no list of a mirror", details=problems, resolution=again) from None
    except InputError as error:
        raise InputError(f"{path} is no list of a mirror", details=[error.brief], resolution=again) from None
    return document


def _check_names(document: MirrorLockDocument) -> None:
    """InputError for a name or digest that is none: the file was carried, and they become parts of URLs."""
    for image in document["images"]:
        named = Reference.parse(image["image"])
        parts = [digest for one in image["platforms"] for digest in (one["digest"], *one["blobs"])]
        for digest in (image["digest"], *parts):
            named.with_digest(digest)
