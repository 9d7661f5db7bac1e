"""The chart's archive: from a file, an OCI registry, or a chart repository; and how it is carried."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_mirror.charts.chart import OPERATOR, about_chart
from driverforge_mirror.charts.values import table_at, text_at
from driverforge_mirror.contents.carried import Carried, CarriedFile, artifact
from driverforge_mirror.contents.found import Found
from driverforge_mirror.lists.mediatypes import TITLE
from driverforge_mirror.lists.target import in_registry
from driverforge_mirror.needs.needed import Reason
from driverforge_mirror.needs.slots import CHART_SLOT
from driverforge_mirror.ports import Files
from driverforge_mirror.yamltext import mapping, parse_documents, read_bytes
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.transport import without_secrets

OCI = "oci://"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_LIMIT = 8 << 20
_ABOUT = ("apiVersion", "name", "version", "appVersion", "description", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartArchive:
    """A chart's archive that was read: `source` is what it was named by.

    `address` is where a copy takes it from; '' where it is in a registry, as `image`.
    """

    data: bytes
    source: str
    address: str = ""
    image: str = ""


def chart_file(path: Path) -> ChartArchive:
    """Raises InputError for a file that cannot be read."""
    try:
        return ChartArchive(data=read_bytes(path), source=str(path), address=str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def chart_in_registry(client: RegistryClient, text: str, registries: Mapping[str, str]) -> ChartArchive:
    """A chart that `helm push` has brought to a registry: 'oci://HOST/charts/gpu-operator:v26.7.0'.

    Raises InputError for an image that is no chart, and as the client does.
    """
    named = Reference.parse(text.removeprefix(OCI))
    place = in_registry(named, registries)
    layers = [one for one in client.get_manifest(place).layers if one.media_type == _CHART]
    if len(layers) != 1 or layers[0].size > _LIMIT:
        raise InputError(f"{text} is no chart", resolution="name it as `helm pull` does, with its version")
    content = io.BytesIO()
    client.get_blob(place, layers[0].digest, content, limit=_LIMIT)
    return ChartArchive(data=content.getvalue(), source=text, image=str(named))


def check_unmoved(archive: ChartArchive, found: Found) -> None:
    """TemporaryFailure where a chart's image is another one than was read: its tag has moved meanwhile."""
    digest = f"sha256:{hashlib.sha256(archive.data).hexdigest()}"
    if not any(digest in one.blobs for one in found.platforms):
        raise TemporaryFailure(
            f"{archive.source} has become another chart while the list was made", resolution="make it again"
        )


def chart_in_repository(files: Files, url: str, text: str) -> ChartArchive:
    """A chart of the repository at `url`: 'v26.7.0' or 'gpu-operator-v26.7.0', by the digest of its index.

    Raises InputError for one that the index does not have, Unavailable for other bytes than the digest's.
    """
    index = urljoin(f"{url.rstrip('/')}/", "index.yaml")
    told = without_secrets(index)
    documents = parse_documents(files.document(index), told)
    entries = table_at(mapping(documents[0] if documents else None, told), "entries")
    offered = {
        f"{name}-{text_at(one, 'version')}": one
        for name, versions in entries.items()
        for one in (versions if isinstance(versions, list) else ())
        if isinstance(one, dict)
    }
    found = offered.get(text) or offered.get(f"{OPERATOR}-{text}") or offered.get(f"{OPERATOR}-v{text}")
    if found is None:
        raise InputError(
            f"{told} has no chart {text}",
            details=[f"it has: {', '.join(list(offered)[:8]) or 'none'}"],
            resolution=f"name the version, or the chart and its version: {OPERATOR}-v26.7.0",
        )
    return _downloaded(files, urljoin(index, _first_url(found)), text_at(found, "digest"), told)


def _first_url(entry: dict[str, Any]) -> str:
    urls = entry.get("urls")
    return urls[0] if isinstance(urls, list) and urls and isinstance(urls[0], str) else ""


def _downloaded(files: Files, url: str, stated: str, index: str) -> ChartArchive:
    data, address = files.document(url), without_secrets(url)
    sha256 = hashlib.sha256(data).hexdigest()
    if stated.removeprefix("sha256:") != sha256:
        raise Unavailable(
            f"{address} is not what {index} says",
            details=[f"sha256 {sha256}", f"the index has {stated or 'none'}"],
            resolution="ask whoever keeps this repository; or give the chart as a file, once you trust it",
        )
    if address != url:
        # no list has secrets, so a copy takes it from the cache
        files.file(url, sha256=sha256, size=len(data))
    return ChartArchive(data=data, source=address, address=address)


def carried_chart(archive: ChartArchive) -> Carried:
    """The artifact that `helm pull oci://MIRROR/charts/NAME --version VERSION` reads."""
    about = about_chart(archive.data, archive.source)
    name, version = text_at(about, "name"), text_at(about, "version")
    config = {key: text_at(about, key) for key in _ABOUT if text_at(about, key)}
    file = CarriedFile(
        media_type=_CHART,
        sha256=hashlib.sha256(archive.data).hexdigest(),
        size=len(archive.data),
        address=archive.address,
        title=f"{name}-{version}.tgz",
    )
    return Carried(
        # helm's own way with versions that no tag can be
        image=f"localhost/charts/{name}:{version.replace('+', '_')}",
        found=artifact(
            CarriedFile.of(_CONFIG, json.dumps(config).encode()),
            [file],
            notes={TITLE: name, "org.opencontainers.image.version": version},
        ),
        reasons=[chart_reason(archive)],
    )


def chart_reason(archive: ChartArchive) -> Reason:
    return Reason(slot=CHART_SLOT, text=f"the chart itself, of {archive.source}")
