"""Operating systems by name and version, and os-release(5)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.errors import InputError

_ID = re.compile(r"[a-z][a-z_-]*[a-z]")
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_KEY = re.compile(rf"({_ID.pattern})({_VERSION.pattern})")
_DROPS_MINOR = ("rhel", "rocky", "ol")
_ASSIGNMENT = re.compile(r"""(?P<name>[A-Za-z0-9_]+)=(?P<quote>["']?)(?P<value>.*)(?P=quote)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class OsId:
    """An OS as ID and VERSION_ID of os-release state it.

    ('ubuntu', '22.04'), ('rhel', '9.4'), ('debian', '12').
    """

    id: str
    version: str

    def __post_init__(self) -> None:
        if not (_ID.fullmatch(self.id) and _VERSION.fullmatch(self.version)):
            raise InputError(
                f"{self.id!r} {self.version!r} is not an OS name and version",
                details=["a rolling release (Debian sid) states no VERSION_ID: images are named by version"]
                if not self.version
                else (),
                resolution="give both, e.g. debian 12, ubuntu 22.04, rhel 9.4",
            )

    @classmethod
    def parse(cls, text: str) -> OsId:
        """From a key: 'debian12', 'ubuntu22.04', 'sles15.7'."""
        found = _KEY.fullmatch(text)
        if not found:
            raise InputError(
                f"{text!r} is not an OS",
                resolution="write its name and version together, e.g. debian12, ubuntu22.04, rhel9",
            )
        return cls(id=found[1], version=found[2])

    def __str__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name and full version together: 'debian12', 'ubuntu22.04', 'rhel9.4'."""
        return self.id + self.version

    @property
    def tag(self) -> str:
        """What an image tag ends with.

        NVIDIA's operator drops the minor version of rhel, rocky and ol, and of nothing else.
        """
        return self.id + self.version.partition(".")[0] if self.id in _DROPS_MINOR else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class OsRelease:
    """What os-release says.

    `version` is VERSION_ID, '' where the file has none; `like` is ID_LIKE, nearest relative first.
    """

    id: str
    version: str
    codename: str
    like: tuple[str, ...]
    pretty_name: str


def parse_os_release(text: str) -> OsRelease:
    """Read os-release(5); where ID is missing it is 'linux', as the man page says.

    Lines that are no assignment are skipped.
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        if found := _ASSIGNMENT.fullmatch(line.strip()):
            values[found["name"]] = re.sub(r"""\\([\\$"'`])""", r"\1", found["value"])
    return OsRelease(
        id=values.get("ID", "linux"),
        version=values.get("VERSION_ID", ""),
        codename=values.get("VERSION_CODENAME", ""),
        like=tuple(values.get("ID_LIKE", "").split()),
        pretty_name=values.get("PRETTY_NAME", "Linux"),
    )
