"""Which version of CDI's format a containerd reads. It skips a spec that states a newer one.

The library that a release is built with knows the versions up to its own (containerd's go.mod:
container-device-interface). A distribution may build it with another one: Debian's 1.7.24 reads 0.8.0.
"""

from __future__ import annotations

# the first release with each, in order; a later branch starts with what is its own
CONTAINERD: tuple[tuple[tuple[int, int, int], str], ...] = (
    ((1, 7, 0), "0.5.0"),
    ((1, 7, 12), "0.6.0"),
    ((1, 7, 16), "0.7.0"),
    ((1, 7, 27), "0.8.0"),
    ((2, 0, 0), "0.8.0"),
    ((2, 0, 5), "1.0.0"),
    ((2, 2, 1), "1.1.0"),
)


def newest_read(containerd: tuple[int, ...]) -> str:
    """The newest version that a release of containerd reads, '' where it knows no CDI."""
    return next((version for first, version in reversed(CONTAINERD) if containerd >= first), "")


def is_newer(version: str, than: str) -> bool:
    """Whether a version of the format is newer than another; one that is no number is not."""
    try:
        return _numbers(version) > _numbers(than or "0")
    except ValueError:
        return False


def first_reader(version: str) -> str:
    """The first release of containerd that reads a version of the format, '' where none is known."""
    reading = (release for release, read in CONTAINERD if not is_newer(version, read))
    return ".".join(map(str, next(reading, ())))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
