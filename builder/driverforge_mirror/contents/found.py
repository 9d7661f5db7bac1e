"""What a registry has of an image, or what takes its place: the content that a copy carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """An image of an index; `platform` is 'linux/amd64', '' where none is stated. `blobs`: digest to size."""

    platform: str
    digest: str
    size: int
    blobs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An image in its registry. `size` is that of all that a copy takes, each part once.

    `made` is the text of an index that no registry has, '' as a rule: some platforms of one that is there,
    or the manifest of files, whose `addresses` say where each blob is.
    """

    digest: str
    media_type: str
    size: int
    platforms: tuple[Platform, ...]
    made: str = ""
    attached: tuple[Attached, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What refers to the digest `subject`, by a list of referrers, or by cosign's `tag`."""

    subject: str
    tag: str
    kind: str
    found: Found
