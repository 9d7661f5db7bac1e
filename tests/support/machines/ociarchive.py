"""A container image without an engine: an OCI archive made of files that a test names.

An OCI archive is an image-layout in a tar.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Layer = Mapping[str, bytes | Path]
"""Files of a layer by path.

An executable one starts with `#!` or has the bit set where it comes from. `.wh.NAME` removes NAME.
"""


def write(
    target: Path, layers: Sequence[Layer], *, config: Mapping[str, Any] | None = None, name: str = ""
) -> str:
    """Write an image and return its manifest's digest.

    `config` is the part that `docker inspect` shows as Config. `name` is what an importer calls the image.
    """
    blobs: dict[str, bytes] = {}
    descriptors, diff_ids = [], []
    for layer in layers:
        plain = _tar(layer)
        diff_ids.append(_digest(plain))
        descriptors.append(
            _add(blobs, gzip.compress(plain, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
        )
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    image = _add(blobs, json.dumps(document).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": image,
        "layers": descriptors,
    }
    top = _add(blobs, json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    files: dict[str, bytes | Path] = {
        f"blobs/sha256/{digest.partition(':')[2]}": data for digest, data in blobs.items()
    }
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    listed = {**top, "annotations": {"io.containerd.image.name": name}} if name else top
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode()
    target.write_bytes(_tar(files))
    return str(top["digest"])


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _add(blobs: dict[str, bytes], data: bytes, media_type: str) -> dict[str, Any]:
    blobs[_digest(data)] = data
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _tar(files: Layer) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in sorted(files.items()):
            data = content.read_bytes() if isinstance(content, Path) else content
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size = len(data)
            executable = data.startswith(b"#!") or (
                isinstance(content, Path) and bool(content.stat().st_mode & 0o111)
            )
            entry.mode = 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def push(archive: Path, registry: str, name: str, tag: str) -> None:
    """Put an archive's image into a plain-HTTP registry.

    The blobs are pushed whole (OCI distribution specification, "Pushing blobs", monolithic).
    """
    with tarfile.open(archive) as tar:
        files = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar.getmembers()}
    manifest = json.loads(files["index.json"])["manifests"][0]
    for path, data in files.items():
        if path.startswith("blobs/") and not path.endswith(manifest["digest"].partition(":")[2]):
            begin = urllib.request.Request(
                f"http://{registry}/v2/{name}/blobs/uploads/", method="POST", data=b""
            )
            with urllib.request.urlopen(begin, timeout=30) as answer:
                place = str(answer.headers["Location"])
            separator = "&" if "?" in place else "?"
            _put(f"{place}{separator}digest={_digest(data)}", data, "application/octet-stream")
    top = files[f"blobs/sha256/{manifest['digest'].partition(':')[2]}"]
    _put(f"http://{registry}/v2/{name}/manifests/{tag}", top, manifest["mediaType"])


def _put(url: str, data: bytes, media_type: str) -> None:
    request = urllib.request.Request(url, method="PUT", data=data, headers={"Content-Type": media_type})
    with urllib.request.urlopen(request, timeout=30):
        pass
