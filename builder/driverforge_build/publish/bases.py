"""What the tags of base images, and of driver images, stand for now: the digests that the lock pins.

A base without a digest in the lock is built on all the same, for it may be in an engine's store alone; so a
registry that does not say leaves what the lock has, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from driverforge_build.lock.pins import LockedBase
from driverforge_core.errors import DriverforgeError
from driverforge_oci.client import Manifest, RegistryClient
from driverforge_oci.presence import environment
from driverforge_oci.reference import Reference


class Freshness(Enum):
    FRESH = "fresh"
    """Its registry said so in this run."""
    STALE = "stale"
    """The digest is the one that the lock had."""
    UNKNOWN = "unknown"
    """There is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBase:
    """What a run knows of a base image. `problem` is why its registry's answer was of no use, else ''."""

    reference: str
    base: LockedBase | None
    problem: str = ""

    @property
    def freshness(self) -> Freshness:
        if not self.problem:
            return Freshness.FRESH
        return Freshness.STALE if self.base else Freshness.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBase:
    """A base image, and what the lock has in its place, which may be another image.

    `driver` is the version that a driver image has to hold, '' for a system's base.
    """

    key: str
    arch: str
    reference: str
    locked: LockedBase | None
    driver: str = ""


def find_bases(client: RegistryClient | None, wanted: Iterable[WantedBase]) -> dict[str, FoundBase]:
    """What each base image stands for, by key; a registry is asked once for an image.

    One that names its own digest is left out: there is nothing to find. Without a client nothing is asked.
    """
    asked: dict[str, Manifest | DriverforgeError] = {}
    found = {}
    for one in wanted:
        if "@" in one.reference:
            continue
        if client is not None and one.reference not in asked:
            asked[one.reference] = _ask(client, one.reference)
        found[one.key] = _found(one, asked.get(one.reference), client)
    return found


def _ask(client: RegistryClient, reference: str) -> Manifest | DriverforgeError:
    parsed = Reference.parse(reference)
    try:
        # as engines read a name without a tag
        return client.get_manifest(parsed if parsed.tag else parsed.with_tag("latest"))
    except DriverforgeError as error:
        return error


def _found(
    wanted: WantedBase, answer: Manifest | DriverforgeError | None, client: RegistryClient | None
) -> FoundBase:
    if isinstance(answer, Manifest) and client is not None:
        image = answer.entry(f"linux/{wanted.arch}") if answer.is_index else answer
        problem = (
            _unfit(client, wanted, image.digest) if image else f"it has no image for linux/{wanted.arch}"
        )
        if image and not problem:
            base = LockedBase(reference=wanted.reference, digest=image.digest, index=answer.digest)
            return FoundBase(reference=wanted.reference, base=base)
    else:
        problem = answer.brief if isinstance(answer, DriverforgeError) else "no registry was asked"
    kept = wanted.locked if wanted.locked and wanted.locked.reference == wanted.reference else None
    return FoundBase(reference=wanted.reference, base=kept, problem=problem)


def _unfit(client: RegistryClient, wanted: WantedBase, digest: str) -> str:
    """Why an image is not the wanted driver's, '' where it is, or does not say.

    NVIDIA's images and ours have the version in their environment.
    """
    if not wanted.driver:
        return ""
    try:
        image = Reference.parse(wanted.reference).with_digest(digest)
        said = environment(client, image, f"linux/{wanted.arch}").get("DRIVER_VERSION", wanted.driver)
    except DriverforgeError as error:
        return error.brief
    return "" if said == wanted.driver else f"it holds driver {said}, as its DRIVER_VERSION says"
