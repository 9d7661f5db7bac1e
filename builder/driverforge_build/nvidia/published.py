"""Where the sha256 of an archive can be read: the places where NVIDIA publishes it, in their order.

1. A checksum file beside the archive that the driver's row names: of a site's own copy, or of NVIDIA's common
   runfiles. NVIDIA has none beside the runfiles of data centre drivers.
2. The checksum file of the common runfile, which has the same name.
3. The manifest of the redistributable archives, which is another file with the same driver in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driverforge_build.lock import sound
from driverforge_build.lock.pins import LockedArchive, Origin
from driverforge_build.nvidia.site import COMMON, REDISTRIBUTABLE, Site
from driverforge_build.ports import LastRead
from driverforge_core.arch import to_machine
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unavailable

# as sha256sum writes it; '*' stands for binary mode
_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:[^\n]*/)?([^/\n]+)")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redistributable:
    """An archive of a manifest: its path below the manifest's folder, its sha256, its size in bytes."""

    path: str
    sha256: str
    size: int


def checksum_of(name: str, text: str) -> str:
    """What a file of `sha256sum` says of the file `name`. Raises Unavailable where that is nothing."""
    found = {matched[2]: matched[1] for line in text.splitlines() if (matched := _LINE.fullmatch(line))}
    if name in found:
        return found[name]
    raise Unavailable(
        f"the checksum file says nothing of {name}",
        details=[f"it is about {other}" for other in list(found)[:3]] or ["it has no line of sha256sum"],
    )


def redistributable_of(version: str, platform: str, body: bytes) -> Redistributable:
    """The driver in a manifest `redistrib_VERSION.json`; `platform` is 'linux-x86_64' or 'linux-sbsa'.

    Raises Unavailable where the manifest does not name it, or is none.
    """
    try:
        driver = json.loads(body)["nvidia_driver"]
        entry = driver[platform]
        found = Redistributable(
            path=entry["relative_path"],
            sha256=sound.sha256(version, entry["sha256"]),
            size=sound.size(version, int(entry["size"])),
        )
        fits = (
            driver["version"] == version
            and _PATH.fullmatch(found.path)
            and ".." not in found.path
            and found.path.endswith(f"/nvidia_driver-{platform}-{version}-archive.tar.xz")
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _no_manifest(version, platform, f"{type(error).__name__}: {error}") from None
    if not fits:
        raise _no_manifest(version, platform, f"it says {found.path!r} of {driver['version']!r}")
    return found


def _no_manifest(version: str, platform: str, why: str) -> Unavailable:
    return Unavailable(f"the manifest does not name the driver {version} for {platform}", details=[why[:200]])


_PLATFORMS = {"amd64": "linux-x86_64", "arm64": "linux-sbsa"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An archive that cells need, as the driver's row says: full version, address, sha256 ('' for none)."""

    version: str
    arch: str
    url: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """`file` is the archive's address, `source` that of the text with its sha256, which `read` reads."""

    file: str
    source: str
    read: Callable[[bytes], tuple[str, int]]
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the places say. `silent` where one of them did not answer, so that it may know more later.

    `told` has a line for each place that was asked in vain. `last_read` is when the one that has it said so.
    """

    found: LockedArchive | None = None
    last_read: LastRead | None = None
    told: tuple[str, ...] = ()
    silent: bool = False


def ask(wanted: Wanted, site: Site, only: str = "") -> Answer:
    """The first place's answer that has one; with `only`, of the places that speak of a file of that name."""
    told: list[str] = []
    silent = False
    for place in _places(wanted):
        if only and place.file.rpartition("/")[2] != only:
            continue
        try:
            document = site.dated_document(place.source)
            sha256, size = place.read(document.body)
        except (TemporaryFailure, Unavailable) as error:
            silent = silent or isinstance(error, TemporaryFailure)
            told.append(_in_vain(place.source, error))
            continue
        found = LockedArchive(
            version=wanted.version,
            arch=wanted.arch,
            url=place.file,
            sha256=sha256,
            size=size,
            origin=place.origin,
            source=place.source,
        )
        return Answer(found=found, last_read=document.last_read, told=tuple(told), silent=silent)
    return Answer(told=tuple(told), silent=silent)


def common_url(wanted: Wanted) -> str:
    """The address of the common runfile."""
    machine = to_machine(wanted.arch)
    name = f"NVIDIA-Linux-{machine}-{wanted.version}.run"
    return f"{COMMON}/Linux-{machine}/{DriverVersion(wanted.version).without_grid}/{name}"


def redistributable_url(wanted: Wanted) -> str:
    platform = _PLATFORMS[wanted.arch]
    name = f"nvidia_driver-{platform}-{wanted.version}-archive.tar.xz"
    return f"{REDISTRIBUTABLE}/nvidia_driver/{platform}/{name}"


def _places(wanted: Wanted) -> Sequence[_Place]:
    files = dict.fromkeys((wanted.url, common_url(wanted)))
    manifest = _Place(
        file=redistributable_url(wanted),
        source=f"{REDISTRIBUTABLE}/redistrib_{wanted.version}.json",
        read=lambda body: _of_manifest(wanted, body),
        origin=Origin.MANIFEST,
    )
    return [*(_beside(file) for file in files), manifest]


def _beside(file: str) -> _Place:
    def read(body: bytes) -> tuple[str, int]:
        return checksum_of(file.rpartition("/")[2], body.decode("utf-8", errors="replace")), 0

    return _Place(file=file, source=f"{file}.sha256sum", read=read, origin=Origin.CHECKSUM_FILE)


def _of_manifest(wanted: Wanted, body: bytes) -> tuple[str, int]:
    found = redistributable_of(wanted.version, _PLATFORMS[wanted.arch], body)
    return found.sha256, found.size


def _in_vain(source: str, error: DriverforgeError) -> str:
    """One line: what was asked, and what came."""
    evidence = [line for line in error.details if line != source]
    return f"{source}: {error.brief}" + (f" ({evidence[0]})" if evidence else "")
