"""A suite's Release file: what it is, how fresh it is, and the digests of its indexes.

Source: the Debian repository format, wiki.debian.org/DebianRepository/Format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from driverforge_build.packed import SUFFIXES
from driverforge_core import deb822
from driverforge_core.errors import InputError

_DIGEST = re.compile(r"\s*([0-9a-fA-F]{64})\s+([0-9]{1,18})\s+(\S+)\s*", re.ASCII)
_ANOTHER = (
    "check the address given with --mirror, or use another mirror: this one's metadata is not what "
    "apt would read"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """`date` and `valid_until` in UTC; `indexes` maps a path below the suite's folder to its digest.

    `automatic` is False where the suite asks not to be used by itself (NotAutomatic: backports,
    experimental).
    """

    origin: str
    suite: str
    codename: str
    date: datetime
    valid_until: datetime | None
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    by_hash: bool
    automatic: bool
    indexes: Mapping[str, Digest]

    def index(self, component: str, arch: str) -> tuple[str, Digest] | None:
        """Path and digest of a component's Packages file, in the first of the compressions that are read.

        None where the suite has none. The security archive names its components 'updates/main' and keeps
        their indexes under 'main'. A flat repository has one index, of the component ''.
        """
        for folder in (component, component.removeprefix("updates/")):
            for suffix in (*SUFFIXES, ""):
                path = f"{folder}/binary-{arch}/Packages{suffix}" if folder else f"Packages{suffix}"
                if (digest := self.indexes.get(path)) is not None:
                    return path, digest
        return None


def parse(text: str, *, name: str) -> ReleaseFile:
    """A Release from its text; InputError if it lacks what the format demands."""
    stanza = next(deb822.parse(text), {})
    if "SHA256" not in stanza or "Date" not in stanza:
        raise InputError(
            f"{name} is no Release file of a repository: it has no Date or no SHA256 field",
            resolution=_ANOTHER,
        )
    until = stanza.get("Valid-Until", "")
    return ReleaseFile(
        origin=stanza.get("Origin", ""),
        suite=stanza.get("Suite", ""),
        codename=stanza.get("Codename", ""),
        date=_moment(stanza["Date"], name),
        valid_until=_moment(until, name) if until else None,
        components=tuple(stanza.get("Components", "").split()),
        architectures=tuple(stanza.get("Architectures", "").split()),
        by_hash=stanza.get("Acquire-By-Hash", "") == "yes",
        automatic=stanza.get("NotAutomatic", "") != "yes",
        indexes=dict(_digests(stanza["SHA256"], name)),
    )


def _digests(field: str, name: str) -> list[tuple[str, Digest]]:
    found = []
    for line in field.split("\n"):
        if not line.strip():
            continue
        if (matched := _DIGEST.fullmatch(line)) is None:
            raise InputError(
                f"{name}: not a digest, a size and a path: {line.strip()[:200]!r}", resolution=_ANOTHER
            )
        found.append((matched[3], Digest(sha256=matched[1].lower(), size=int(matched[2]))))
    return found


def _moment(text: str, name: str) -> datetime:
    try:
        moment = parsedate_to_datetime(text.replace("UTC", "+0000"))
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    # a year that no clock has
    except (ValueError, OverflowError):
        raise InputError(f"{name}: {text!r} is not a date", resolution=_ANOTHER) from None


def iso(moment: datetime | None) -> str:
    """'2026-11-18T22:17:41Z'; '' for None."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""
