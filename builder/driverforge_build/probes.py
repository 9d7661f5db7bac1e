"""Header probes on packages of a mirror: one file out of a .deb, read as it streams by, without unpacking anything to disk.

A .deb is an ar archive with a compressed tar inside, deb(5). Which driver breaks on what is data of the matrix; how a header is
judged is `driverforge_core.headerprobe`, shared with the node.
"""

from __future__ import annotations

import gzip
import json
import lzma
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from driverforge_build.lock import HeaderFact
from driverforge_build.matrix.model import Probe
from driverforge_core.errors import InputError
from driverforge_core.headerprobe import HeaderProbe, ProbeRule

from .discover.cache import Cache

MAX_ARGUMENTS = 20


def header_probe(row: Probe) -> HeaderProbe:
    """The question that a matrix row asks."""
    return HeaderProbe(
        kind=row.kind, symbol=row.symbol, header=row.header, struct=row.struct, arguments=row.arguments
    )


def probe_rule(row: Probe) -> ProbeRule:
    """A matrix row with whom it concerns, as builder and node judge by it."""
    return ProbeRule(
        id=row.id,
        probe=header_probe(row),
        drivers=tuple((int(target.branch), target.before or "") for target in row.drivers),
        module_types=row.module_types,
        since=tuple(map(int, row.since.split("."))) if row.since else (),
        reason=row.reason,
    )


def question(probe: HeaderProbe) -> str:
    """A probe as text, the key of its answer in the lock: a row that changes is another question."""
    number = "" if probe.arguments is None else f" {probe.arguments}"
    member = f" in struct {probe.struct}" if probe.struct else ""
    return f"{probe.header}: {probe.kind}{number} {probe.symbol}{member}"


def answer(probe: HeaderProbe, text: str | None) -> HeaderFact:
    """What a header (None: the tree does not have it) says to a probe."""
    if text is None:
        return HeaderFact(breaks=None, found=f"{probe.header} is not among the headers")
    if (evidence := probe.breaks(text)) is not None:
        return HeaderFact(breaks=True, found=evidence)
    return HeaderFact(breaks=False, found=_instead(probe, text))


def _instead(probe: HeaderProbe, text: str) -> str:
    """What stands there where a probe finds nothing wrong."""
    if probe.kind == "missing-member" and probe.symbol not in text:
        return f"{probe.header}: does not define struct {probe.struct}"
    if probe.kind != "arguments":
        return f"{probe.header}: has {probe.symbol}"
    others = (replace(probe, arguments=number).breaks(text) for number in range(MAX_ARGUMENTS))
    return next((found for found in others if found), f"{probe.header}: does not declare {probe.symbol}")


def answers(probes: Iterable[HeaderProbe], members: Mapping[str, str | None]) -> dict[str, HeaderFact]:
    """Answers of all probes about one header tree; `members` maps a header's path below the tree to its text."""
    return {question(probe): answer(probe, members.get(probe.header)) for probe in probes}


class HeaderTexts:
    """Headers out of packages, kept by the package's digest: a package is downloaded for headers that nobody asked for before."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def kept(self, sha256: str, headers: Collection[str]) -> dict[str, str | None] | None:
        """The headers of a package if all were read before; a header that the package does not have is None."""
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
            texts: dict[str, str | None] = json.loads(self._path(sha256).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return texts

    def _path(self, sha256: str) -> Path:
        return self._cache.folder / "headers" / f"{sha256}.json"


def read_members(deb: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Texts of files in a .deb, by the pattern that named each: '*/include/linux/pci.h' is the file nearest to the top.

    Reads on until each pattern has its file, else to the end. InputError for a file that is no .deb.
    """
    wanted = {pattern: pattern.removeprefix("*") for pattern in patterns}
    found: dict[str, str] = {}
    try:
        with deb.open("rb") as file, tarfile.open(fileobj=_data_member(file, deb), mode="r|") as archive:
            for member in archive:
                name = next(
                    (
                        pattern
                        for pattern, end in wanted.items()
                        if member.name.endswith(end) and member.isfile()
                    ),
                    None,
                )
                if name is None or not _is_tree(member.name.removesuffix(wanted[name])):
                    continue
                content = archive.extractfile(member)
                found[name] = content.read().decode("utf-8", errors="replace") if content else ""
                del wanted[name]
                if not wanted:
                    break
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise InputError(
            f"{deb} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error
    return found


def _is_tree(folder: str) -> bool:
    """Whether a folder is the top of a header tree: ./usr/src/linux-headers-6.1.0-50-common. Debian's hold no tree inside a tree."""
    return folder.removeprefix("./").count("/") <= 2


def _data_member(file: IO[bytes], deb: Path) -> IO[bytes]:
    """The data.tar of a .deb, unpacked as it is read."""
    if file.read(8) != b"!<arch>\n":
        raise InputError(
            f"{deb} is not a Debian package", resolution="remove the file and run the command again"
        )
    while len(head := file.read(60)) == 60:
        name, size = head[:16].decode("ascii", errors="replace").strip().rstrip("/"), int(head[48:58])
        if name == "data.tar.xz":
            return cast(IO[bytes], lzma.LZMAFile(file))
        if name == "data.tar.gz":
            return cast(IO[bytes], gzip.GzipFile(fileobj=file))
        if name == "data.tar":
            return file
        file.seek(size + size % 2, 1)
    raise InputError(
        f"{deb} has no data.tar in a compression that this program reads (xz, gz, none)",
        resolution="its distribution needs a newer driverforge; leave it out with --skip",
    )
