"""Package URLs, by which scanners know packages (ECMA-427; purl-spec's types deb, rpm, oci, pypi)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from driverforge_build.lock.pins import LockedPackage
from driverforge_build.render.requirements import BaseImage
from driverforge_core.errors import InputError
from driverforge_core.osid import OsId
from driverforge_oci.reference import Reference

_VENDORS = {"rhel": "redhat", "ol": "oracle", "sles": "suse", "amzn": "amazon"}
"""The namespace where it is not the ID of os-release: what scanners have for these distributions."""


def python_purl(name: str, version: str) -> str:
    """'pkg:pypi/typing-extensions@4.16.0': lower case, and dashes for underscores (purl-spec, type pypi)."""
    return purl("pypi", name.lower().replace("_", "-"), version)


def purl(
    kind: str, name: str, version: str, *, namespace: str = "", qualifiers: Mapping[str, str] | None = None
) -> str:
    """'pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12'."""
    path = "/".join(_quoted(part) for part in (kind, namespace, name) if part)
    said = "&".join(
        f"{key}={_quoted(value, '/')}" for key, value in sorted((qualifiers or {}).items()) if value
    )
    return f"pkg:{path}" + (f"@{_quoted(version)}" if version else "") + (f"?{said}" if said else "")


def package_purl(package: LockedPackage, os: str, manager: str) -> str:
    """A distribution's package; `os` is 'debian12', `manager` the kind of its packages: deb or rpm."""
    system = OsId.parse(os)
    version, qualifiers = package.version, {"arch": package.arch, "distro": f"{system.id}-{system.version}"}
    if manager == "rpm":
        epoch, colon, rest = version.partition(":")
        if colon:
            version, qualifiers = rest, {**qualifiers, "epoch": epoch.lstrip("0")}
    namespace = _VENDORS.get(system.id, system.id)
    return purl(manager, package.name, version, namespace=namespace, qualifiers=qualifiers)


def image_purl(place: Reference, *, arch: str = "") -> str:
    """An image by its digest; one without is named by its tag alone."""
    qualifiers = {"repository_url": place.name, "tag": place.tag, "arch": arch}
    return purl("oci", place.repository.rpartition("/")[2], place.digest, qualifiers=qualifiers)


def base_purl(base: BaseImage) -> str:
    """The base image; '' for a name that no registry could have."""
    try:
        return image_purl(Reference.parse(str(base)))
    except InputError:
        return ""


def _quoted(text: str, also: str = "") -> str:
    # a colon separates nothing in a purl, and is written as it is
    return quote(text, safe=f":{also}")
