"""Where NVIDIA publishes drivers, and how a mirror of that is addressed.

The lock and every Dockerfile name NVIDIA's own addresses. A mirror has the same paths below an address of its
own, and takes the place of NVIDIA's hosts when something is downloaded: `--mirror nvidia=URL`, or for one
host alone `--mirror nvidia/us.download.nvidia.com=URL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from driverforge_build.nvidia.inside import HEAD, LARGEST
from driverforge_build.ports import DatedDocument, Downloads, Measured
from driverforge_core.errors import UsageError

MIRROR = "nvidia"
"""What `--mirror` calls all of NVIDIA's hosts together."""
COMMON = "https://download.nvidia.com/XFree86"
"""Runfiles by architecture and version, each with a checksum file beside it."""
REDISTRIBUTABLE = "https://developer.download.nvidia.com/compute/nvidia-driver/redist"
"""Archives for redistribution; a manifest a version has their checksums."""
RELEASES = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
HOSTS = (
    "developer.download.nvidia.com",
    "docs.nvidia.com",
    "download.nvidia.com",
    "us.download.nvidia.com",  # runfiles of data centre drivers, without a checksum
)


def is_nvidias(url: str) -> bool:
    return urlsplit(url).hostname in HOSTS


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """The address to download from: the mirror's where there is one of that host, else the address itself."""
    if not is_nvidias(url):
        return url
    parts = urlsplit(url)
    mirror = mirrors.get(f"{MIRROR}/{parts.hostname}") or mirrors.get(MIRROR)
    return f"{mirror.rstrip('/')}{parts.path}" if mirror else url


def check_hosts(mirrors: Mapping[str, str]) -> None:
    """Raises UsageError where `--mirror nvidia/HOST=URL` names a host that is none of NVIDIA's."""
    for key in mirrors:
        name, slash, host = key.partition("/")
        if name == MIRROR and slash and host not in HOSTS:
            raise UsageError(
                f"--mirror {key}: driverforge asks no such host of NVIDIA's",
                resolution=f"write {MIRROR}=URL for all of them, or one of "
                f"{', '.join(f'{MIRROR}/{known}' for known in HOSTS)}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """NVIDIA's hosts as a run reaches them."""

    downloads: Downloads
    mirrors: Mapping[str, str] = field(default_factory=dict)

    def document(self, url: str) -> bytes:
        """What stands at one of NVIDIA's addresses. Raises what `Downloads.document` raises."""
        return self.dated_document(url).body

    def dated_document(self, url: str) -> DatedDocument:
        """The same, with when it was read."""
        return self.downloads.dated_document(mirrored(url, self.mirrors))

    def measured(self, url: str) -> Measured:
        """An archive, at one of NVIDIA's addresses or any other. Raises what `Downloads.measured` raises."""
        return self.downloads.measured(mirrored(url, self.mirrors), head=HEAD, limit=LARGEST)
