"""What a compilation takes of the disk."""

from __future__ import annotations

from driverforge_core.errors import StorageFailed
from driverforge_host.ports import Host

# Measured: sources with debug information grow threefold while they are linked (192 to 594 MB, 241 to 715
# MB), and headers unpack to 60 MB.
GROWTH = 4
HEADERS = 256 << 20
# Bytes of a header that is precompiled: measured 61 to 70 MB.
PRECOMPILED = 72 << 20


def needed(host: Host, sources: str) -> int:
    """Bytes, for all that comes of these sources."""
    listed = host.commands.run(["du", "--summarize", "--block-size=1024", "--dereference-args", sources])
    return int(listed.stdout.split()[0]) * 1024 * GROWTH + HEADERS


def require_space(host: Host, source: str, folder: str) -> None:
    """Raises StorageFailed where a compilation would fill the disk."""
    wanted, free = needed(host, source), host.files.free_bytes(folder)
    if free < wanted:
        raise StorageFailed(
            f"not enough space to compile: {free >> 20} MiB free, about {wanted >> 20} MiB needed",
            details=[f"work folder: {folder}", f"sources: {source}"],
            resolution="free space there (df -h), or name another folder with --work-dir",
        )
