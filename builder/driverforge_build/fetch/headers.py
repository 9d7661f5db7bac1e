"""Headers out of packages of a mirror: files of a .deb or .rpm, read as they stream by, never unpacked."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.packagefile import DAMAGED, members
from driverforge_build.ports import ReadHeaders
from driverforge_core.errors import InputError
from driverforge_core.headertree import HeaderDigests, HeaderTree

UNPACKED_LIMIT = 512 << 20
"""Bytes. A header tree of Debian's has 75 MB."""
HEADER_LIMIT = 4 << 20
"""Bytes. The headers that probes read have less than 0.2 MB."""
FILE_LIMIT = 64 << 20
"""Bytes. The largest file beside headers, the types of the kernel's own image, has 5 MB."""
# counts up where HeaderTree makes other digests of the same files
_DIGESTS = ".digests-1"
# the top of a header tree: Debian's and SUSE's lie in /usr/src, Red Hat's in /usr/src/kernels
_TREE = re.compile(r"(?:\./|/)?usr/src/(?:kernels/)?[^/]+")


class HeaderTexts:
    """Headers out of packages, and digests of all that is in one, kept by the package's digest.

    A package is downloaded for what nobody asked for before.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def kept(self, sha256: str, headers: Collection[str], abi: str | None = None) -> ReadHeaders | None:
        """What was read of a package before, if that is all that is asked for."""
        texts = self._load(sha256)
        digests = None if abi is None else self._load(sha256, _DIGESTS).get(abi)
        if not all(header in texts for header in headers) or (abi is not None and digests is None):
            return None
        return ReadHeaders(
            texts={header: texts[header] for header in headers},
            digests=HeaderDigests(**digests) if digests else None,
        )

    def read(self, sha256: str, deb: Path, headers: Collection[str], abi: str | None = None) -> ReadHeaders:
        """Read a package's file, and keep what was found."""
        tree = None if abi is None else HeaderTree(abi)
        found = read_members(deb, [f"*/{header}" for header in headers], tree=tree)
        texts: dict[str, str | None] = {header: found.get(f"*/{header}") for header in headers}
        self._keep(sha256, texts)
        if tree is None or abi is None:
            return ReadHeaders(texts=texts)
        digests = tree.digests()
        self._keep(sha256, {abi: asdict(digests)}, _DIGESTS)
        return ReadHeaders(texts=texts, digests=digests)

    def _keep(self, sha256: str, found: Mapping[str, Any], kind: str = "") -> None:
        with self._cache.new_file(self._path(sha256, kind)) as file:
            file.write(json.dumps({**self._load(sha256, kind), **found}).encode())

    def _load(self, sha256: str, kind: str = "") -> dict[str, Any]:
        try:
            found = json.loads(self._path(sha256, kind).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _path(self, sha256: str, kind: str) -> Path:
        return self._cache.folder / "headers" / f"{sha256}{kind}.json"


def read_members(
    package: Path, patterns: Sequence[str], *, limit: int = UNPACKED_LIMIT, tree: HeaderTree | None = None
) -> dict[str, str]:
    """Texts of files in a package, by the pattern that named each.

    '*/include/linux/pci.h' is the file of that name nearest to the top. Reads on until each pattern has its
    file, else to the end; `tree` gets every file. Raises InputError for a file that is no package, and one
    that unpacks to more than `limit` bytes, or has a header of more than HEADER_LIMIT; FileNotFoundError.
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
                pattern = next(fitting, None)
                if pattern is None and tree is None:
                    continue
                if member.size > (HEADER_LIMIT if pattern else FILE_LIMIT):
                    raise EOFError(f"{member.name} has {member.size} bytes")
                content = member.read()
                if tree:
                    tree.add(member.name, content)
                if pattern:
                    found[pattern] = content.decode("utf-8", errors="replace")
                    del wanted[pattern]
                if not (wanted or tree):
                    break
    # it is an OSError, and no damage: another run that shares the cache removes what it has read
    except FileNotFoundError:
        raise
    except DAMAGED as error:
        raise InputError(
            f"{package} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error
    return found
