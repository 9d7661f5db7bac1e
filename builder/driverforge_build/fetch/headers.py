"""Headers out of packages of a mirror: files of a .deb or .rpm, read as they stream by, never unpacked."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.packagefile import DAMAGED, members
from driverforge_core.errors import InputError

UNPACKED_LIMIT = 512 << 20
"""Bytes. A header tree of Debian's has 75 MB."""
HEADER_LIMIT = 4 << 20
"""Bytes. The headers that probes read have less than 0.2 MB."""
# the top of a header tree: Debian's and SUSE's lie in /usr/src, Red Hat's in /usr/src/kernels
_TREE = re.compile(r"(?:\./|/)?usr/src/(?:kernels/)?[^/]+")


class HeaderTexts:
    """Headers out of packages, kept by the package's digest.

    A package is downloaded for headers that nobody asked for before.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def kept(self, sha256: str, headers: Collection[str]) -> dict[str, str | None] | None:
        """The headers of a package if all were read before. One that the package does not have is None."""
        texts = self._load(sha256)
        return (
            {header: texts[header] for header in headers}
            if all(header in texts for header in headers)
            else None
        )

    def read(self, sha256: str, deb: Path, headers: Collection[str]) -> dict[str, str | None]:
        """The headers out of a package's file, and keep them."""
        found = read_members(deb, [f"*/{header}" for header in headers])
        texts: dict[str, str | None] = {header: found.get(f"*/{header}") for header in headers}
        with self._cache.new_file(self._path(sha256)) as file:
            file.write(json.dumps({**self._load(sha256), **texts}).encode())
        return texts

    def _load(self, sha256: str) -> dict[str, str | None]:
        try:
            texts = json.loads(self._path(sha256).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return texts if isinstance(texts, dict) else {}

    def _path(self, sha256: str) -> Path:
        return self._cache.folder / "headers" / f"{sha256}.json"


def read_members(package: Path, patterns: Sequence[str], *, limit: int = UNPACKED_LIMIT) -> dict[str, str]:
    """Texts of files in a package, by the pattern that named each.

    '*/include/linux/pci.h' is the file of that name nearest to the top. Reads on until each pattern has its
    file, else to the end. Raises InputError for a file that is no package, and one that unpacks to more than
    `limit` bytes, or has a header of more than HEADER_LIMIT.
    """
    wanted = {pattern: pattern.removeprefix("*") for pattern in patterns}
    found: dict[str, str] = {}
    try:
        with package.open("rb") as file:
            for member in members(file, limit=limit):
                fitting = (
                    pattern
                    for pattern, end in wanted.items()
                    if member.name.endswith(end) and _TREE.fullmatch(member.name.removesuffix(end))
                )
                if (pattern := next(fitting, None)) is None:
                    continue
                if member.size > HEADER_LIMIT:
                    raise EOFError(f"{member.name} has {member.size} bytes")
                found[pattern] = member.read().decode("utf-8", errors="replace")
                del wanted[pattern]
                if not wanted:
                    break
    except DAMAGED as error:
        raise InputError(
            f"{package} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error
    return found
