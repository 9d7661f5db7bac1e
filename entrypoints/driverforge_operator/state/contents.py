"""ConfigMaps and Secrets that pods use: which entries they have, and a digest; never what is in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from driverforge_operator.ports import kind_at
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER, Metadata


class ContentDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ConfigMap or Secret as it is decoded, and forgotten again.

    `digest` is what a snapshot says of one that lost its secrets; no API server has such a field.
    """

    metadata: Metadata
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    digest: str = ""


CONFIG_MAPS = kind_at("v1", "ConfigMap", "configmaps", ContentDocument)
SECRETS = kind_at("v1", "Secret", "secrets", ContentDocument)
CONTENTS = ((CONFIG_MAPS, f"{MANAGED_BY}!={MANAGER}"), (SECRETS, "owner!=helm"))
"""What is read of our namespace: not what we make, nor Helm's releases, each a Secret of a megabyte."""

CONTENT_KINDS = (CONFIG_MAPS, SECRETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A ConfigMap or Secret of our namespace."""

    secret: bool
    name: str

    def __str__(self) -> str:
        return f"{'Secret' if self.secret else 'ConfigMap'} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a source holds: its keys, sorted, and a digest of all of it."""

    keys: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, document: ContentDocument) -> Content:
        entries = sorted((*document.data.items(), *document.binary_data.items()))
        told = msgspec.json.encode(entries)
        digest = document.digest or hashlib.sha256(told).hexdigest()[:16]
        return cls(keys=tuple(sorted(document.data)), digest=digest)
