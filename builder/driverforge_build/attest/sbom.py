"""The SBOM of an image: CycloneDX 1.6, made from what the image was made from.

It holds what we put into the image, each package with the sha256 of its file in the lock, and names the base
image by its digest. What is in the base is left to the base's own SBOM, or to a scanner; that the list of it
is not here is said in the words of the format (`compositions`). What only helped to build, a precompiled
image's compiler and headers, is in the provenance.

The same image has the same SBOM, byte for byte: it states no time, and its serial number is made from the
image's digest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from driverforge_build.attest.purl import base_purl, image_purl, package_purl, purl, python_purl
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.render.context import BuildContext
from driverforge_build.render.files import digest_of
from driverforge_build.render.library import THIRD_PARTY
from driverforge_build.render.operator import OperatorSpec, wheel_of
from driverforge_build.render.spec import ImageSpec
from driverforge_build.render.templates import AnyImage
from driverforge_build.render.toolkit import ToolkitSpec
from driverforge_core import __version__
from driverforge_oci.reference import Reference

MEDIA_TYPE = "application/vnd.cyclonedx+json"
_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
_MANAGERS = {"debian": "deb", "rhel": "rpm", "suse": "rpm"}
Component = dict[str, Any]
# NVIDIA's licence of the driver is no text that SPDX knows. MODULE_LICENSE() of the open modules says
# "Dual MIT/GPL", and nvidia-container-toolkit's own files "Apache-2.0".
_NVIDIA = [{"license": {"name": "NVIDIA Software License"}}]
_MODULES = {"open": [{"expression": "MIT OR GPL-2.0-only"}], "proprietary": _NVIDIA}
_APACHE = [{"expression": "Apache-2.0"}]


def package_manager(image: AnyImage) -> str:
    """The kind of an image's packages: deb or rpm."""
    return _MANAGERS[image.family]


def sbom(context: BuildContext, place: Reference) -> bytes:
    """The SBOM of an image in a registry, whose name and digest `place` has."""
    image = context.image
    parts = [*_base(image), *_packages(image), *_driver(image), *_python(image)]
    document = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, str(place))}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "driverforge", "version": __version__}]},
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": place.name,
                "version": place.digest,
                "description": image.title,
                "purl": image_purl(place, arch=image.arch),
                "hashes": [_sha256(place.digest.partition(":")[2])],
                "properties": [
                    _property("cell", image.id),
                    _property("inputs", context.inputs),
                ],
            },
        },
        "components": parts,
        "dependencies": [
            {"ref": "image", "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
        "compositions": [{"aggregate": "incomplete", "assemblies": ["base"]}],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _base(image: AnyImage) -> Iterator[Component]:
    hashes = {"hashes": [_sha256(image.base.digest.partition(":")[2])]} if image.base.digest else {}
    named = base_purl(image.base)
    yield {
        "type": "container",
        "bom-ref": "base",
        "name": image.base.name,
        **({"version": image.base.digest} if image.base.digest else {}),
        **({"purl": named} if named else {}),
        **hashes,
    }


def shipped(image: AnyImage) -> Iterator[tuple[str, LockedPackage]]:
    """The packages whose files an image has, each once, with the list that names it.

    Tool chain and sources are a JIT image's, which has all that is pinned for it; headers are nobody's.
    """
    seen = set()
    builds = isinstance(image, ImageSpec) and not image.kernel
    for name, packages in sorted(image.pins.items()):
        if name in ("userspace", "firmware") or name.startswith("modules-") or builds:
            for package in packages:
                if package.key not in seen:
                    seen.add(package.key)
                    yield name, package


def _packages(image: AnyImage) -> Iterator[Component]:
    for name, package in shipped(image):
        named = package_purl(package, image.os, package_manager(image))
        yield {
            "type": "library",
            "bom-ref": named,
            "name": package.name,
            "version": package.version,
            "purl": named,
            "hashes": [_sha256(package.sha256)],
            "properties": [
                _property("list", name),
                _property("repository", package.suite),
                _property("path", package.path),
            ],
        }


def _driver(image: AnyImage) -> Iterator[Component]:
    """What NVIDIA made: the archive or the toolkit's files, and the modules that an image has."""
    if isinstance(image, OperatorSpec):
        return
    if isinstance(image, ToolkitSpec):
        yield {
            "type": "application",
            "bom-ref": "nvidia-container-toolkit",
            "name": "nvidia-container-toolkit",
            "version": image.version,
            "supplier": {"name": "NVIDIA Corporation"},
            "licenses": _APACHE,
            "properties": [_property("artifacts-sha256", digest_of(image.artifacts))],
        }
        return
    if image.payload != "packages":
        yield _whole_driver(image)
    for kind in image.module_types if image.kernel else ():
        yield {
            "type": "device-driver",
            "bom-ref": f"modules-{kind}",
            "name": f"nvidia-kernel-modules-{kind}",
            "version": image.driver,
            "supplier": {"name": "NVIDIA Corporation"},
            "licenses": _MODULES[kind],
            "properties": [_property("kernel", image.kernel)],
        }


def _whole_driver(image: ImageSpec) -> Component:
    """A driver that no package has: of an archive, or of the driver image that is the base."""
    archive = image.archive
    place = {"download_url": archive.url, "checksum": f"sha256:{archive.sha256}"} if archive else {}
    named = purl("generic", "nvidia-driver", image.driver, qualifiers=place)
    held = {"hashes": [_sha256(archive.sha256)]} if archive else {"properties": [_property("from", "base")]}
    return {
        "type": "device-driver",
        "bom-ref": named,
        "name": "nvidia-driver",
        "version": image.driver,
        "supplier": {"name": "NVIDIA Corporation"},
        "licenses": _NVIDIA,
        "purl": named,
        **held,
    }


def _python(image: AnyImage) -> Iterator[Component]:
    yield {**_distribution("driverforge", __version__), "licenses": _APACHE}
    if isinstance(image, OperatorSpec):
        for file, sha256 in image.wheels.items():
            yield {**_distribution(*wheel_of(file)), "hashes": [_sha256(sha256)]}
    # a driver image has the driver half, which needs no package of others
    if isinstance(image, ToolkitSpec):
        for name in THIRD_PARTY.values():
            yield {**_distribution(name, metadata.version(name)), "licenses": _declared(name)}


def _distribution(name: str, version: str) -> Component:
    named = python_purl(name, version)
    return {"type": "library", "bom-ref": named, "name": name, "version": version, "purl": named}


def _declared(distribution: str) -> list[dict[str, Any]]:
    """What an installed distribution says of its licence: an SPDX expression, or its own words (PEP 639)."""
    told = metadata.metadata(distribution)
    if "License-Expression" in told:
        return [{"expression": told["License-Expression"]}]
    return [{"license": {"name": told["License"]}}] if "License" in told else []


def _sha256(content: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": content}


def _property(name: str, value: str) -> dict[str, str]:
    return {"name": f"driverforge:{name}", "value": value}
