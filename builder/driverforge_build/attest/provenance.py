"""Where an image comes from: SLSA provenance (https://slsa.dev/spec/v1.0/provenance).

`externalParameters` are the cell and the source; `resolvedDependencies` every download that the build had,
those of the build stages too: matrix and lock, the base image, each package, NVIDIA's archive. Times are
stated by the run that built the image alone. Whoever attaches what is missing later, after a kill or for an
image of before, has not seen the build: that it was made from these inputs, the image's own label says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from driverforge_build.attest.purl import base_purl, package_purl, python_purl
from driverforge_build.attest.sbom import package_manager
from driverforge_build.attest.statement import PROVENANCE, statement
from driverforge_build.render.context import BuildContext
from driverforge_build.render.files import digest_of
from driverforge_build.render.operator import OperatorSpec, wheel_of
from driverforge_build.render.requirements import unique_packages
from driverforge_build.render.templates import AnyImage
from driverforge_build.render.toolkit import ToolkitSpec
from driverforge_core import __version__
from driverforge_oci.reference import Reference

BUILD_TYPE = "urn:x-driverforge:image-build:1"
UNNAMED_BUILDER = "urn:x-driverforge:builder:unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run that attests, and what it was given.

    `builder` is the URI of what is trusted to build, `invocation` of this very run, `source` of the
    repository with matrix and lock, whose commit is `revision`; each '' where nobody says so. `files` maps
    matrix and lock to their sha256.
    """

    builder: str = ""
    invocation: str = ""
    source: str = ""
    revision: str = ""
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpan:
    """When an image was built, in UTC."""

    started: datetime
    finished: datetime


def provenance(
    context: BuildContext, place: Reference, origin: Origin, *, name: str, sbom: str, built: BuildSpan | None
) -> bytes:
    """The statement about an image at `place`, which is called `name`.

    `sbom` is the digest of the artifact that holds its SBOM, `built` None where this run has not built it.
    """
    image = context.image
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "cell": image.id,
                **({"source": _source(origin)} if origin.source else {}),
            },
            "internalParameters": {"inputs": {"sha256": context.inputs}},
            "resolvedDependencies": [*_given(origin), *_downloads(image)],
        },
        "runDetails": {
            "builder": {
                "id": origin.builder or UNNAMED_BUILDER,
                "version": {"driverforge": __version__},
            },
            "metadata": {
                **({"invocationId": origin.invocation} if origin.invocation else {}),
                **({"startedOn": _time(built.started), "finishedOn": _time(built.finished)} if built else {}),
            },
            "byproducts": [
                {
                    "name": "sbom",
                    "uri": str(place.with_digest(sbom)),
                    "digest": {"sha256": sbom.partition(":")[2]},
                }
            ],
        },
    }
    document = statement(name, place.digest, PROVENANCE, predicate)
    return json.dumps(document, indent=1).encode() + b"\n"


def _source(origin: Origin) -> dict[str, Any]:
    commit = {"digest": {"gitCommit": origin.revision}} if origin.revision else {}
    return {"uri": f"git+{origin.source}", **commit}


def _given(origin: Origin) -> Iterator[dict[str, Any]]:
    for name, sha256 in origin.files:
        yield {"name": name, "digest": {"sha256": sha256}}


def _downloads(image: AnyImage) -> Iterator[dict[str, Any]]:
    base = image.base
    digest = {"digest": {"sha256": base.digest.partition(":")[2]}} if base.digest else {}
    yield {"name": "base", "uri": base_purl(base) or base.name, **digest}
    everything = unique_packages(package for packages in image.pins.values() for package in packages)
    for package in everything:
        yield {
            "name": package.path.rpartition("/")[2],
            "uri": package_purl(package, image.os, package_manager(image)),
            "digest": {"sha256": package.sha256},
        }
    if isinstance(image, OperatorSpec):
        for file, sha256 in image.wheels.items():
            yield {"name": file, "uri": python_purl(*wheel_of(file)), "digest": {"sha256": sha256}}
    elif isinstance(image, ToolkitSpec):
        yield {
            "name": "artifacts",
            "annotations": {"driverforge:artifacts-sha256": digest_of(image.artifacts)},
            "uri": f"pkg:generic/nvidia-container-toolkit@{image.version}",
        }
    elif image.archive:
        yield {
            "name": image.archive.url.rpartition("/")[2],
            "uri": image.archive.url,
            "digest": {"sha256": image.archive.sha256},
        }


def _time(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
