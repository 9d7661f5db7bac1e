"""What the tags of base images stand for now: the digests that the lock pins.

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
    """What a run knows of a target's base image. `problem` is why its registry did not say, else ''."""

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
    """A target's base image, and what the lock has of the target's base, which may be another image."""

    target: str
    arch: str
    reference: str
    locked: LockedBase | None


def find_bases(client: RegistryClient | None, wanted: Iterable[WantedBase]) -> dict[str, FoundBase]:
    """What each target's base image stands for, by target; a registry is asked once for an image.

    One that names its own digest is left out: there is nothing to find. Without a client nothing is asked.
    """
    asked: dict[str, Manifest | DriverforgeError] = {}
    found = {}
    for one in wanted:
        if "@" in one.reference:
            continue
        if client is not None and one.reference not in asked:
            asked[one.reference] = _ask(client, one.reference)
        found[one.target] = _found(one, asked.get(one.reference))
    return found


def _ask(client: RegistryClient, reference: str) -> Manifest | DriverforgeError:
    parsed = Reference.parse(reference)
    try:
        # as engines read a name without a tag
        return client.get_manifest(parsed if parsed.tag else parsed.with_tag("latest"))
    except DriverforgeError as error:
        return error


def _found(wanted: WantedBase, answer: Manifest | DriverforgeError | None) -> FoundBase:
    if isinstance(answer, Manifest):
        image = answer.entry(f"linux/{wanted.arch}") if answer.is_index else answer
        if image is not None:
            base = LockedBase(reference=wanted.reference, digest=image.digest, index=answer.digest)
            return FoundBase(reference=wanted.reference, base=base)
        problem = f"it has no image for linux/{wanted.arch}"
    else:
        problem = answer.brief if answer else "no registry was asked"
    kept = wanted.locked if wanted.locked and wanted.locked.reference == wanted.reference else None
    return FoundBase(reference=wanted.reference, base=kept, problem=problem)
