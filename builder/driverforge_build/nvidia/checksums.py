"""What NVIDIA says of its files: checksum files, and the manifests of the redistributable archives."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from driverforge_build.lock import sound
from driverforge_core.errors import Unavailable

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
