"""NVIDIA's own list of its data centre drivers, `releases.json`.

An object: branch to `type` ("production branch", "lts branch", ...) and `driver_info`, a list of objects with
`release_version` and `release_date`. Nobody describes it; whoever reads it takes these keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError, Unavailable

OPEN_ONLY_FROM = 620
"""The first branch without proprietary modules (NVIDIA's driver installation guide, 620 of 2026-11-09)."""

RUNFILE_URL = "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
"""Where NVIDIA has the archives of its data centre drivers (NVIDIA/gpu-driver-container, Dockerfiles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """`date` is NVIDIA's, YYYY-MM-DD, or '' where the list has none; `kind` is the branch's."""

    version: DriverVersion
    date: str
    kind: str

    @property
    def branch(self) -> str:
        return str(self.version.branch)


def newest_releases(body: bytes) -> dict[str, Release]:
    """The newest release of each branch. Raises Unavailable where the text is no such list.

    What has no version is left out: the list has had drivers of other systems.
    """
    try:
        branches: Mapping[str, Any] = json.loads(body)
        releases = [
            release
            for branch in branches.values()
            for entry in branch["driver_info"]
            if (release := _release(entry, str(branch.get("type", ""))))
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_list(f"{type(error).__name__}: {error}"[:200]) from None
    if not releases:
        raise _no_list("it names no driver")
    return {release.branch: release for release in sorted(releases, key=lambda release: release.version)}


def _release(entry: Mapping[str, Any], kind: str) -> Release | None:
    try:
        version = DriverVersion(str(entry["release_version"]))
    except InputError:
        return None
    return Release(version=version, date=str(entry.get("release_date", "")), kind=kind)


def _no_list(why: str) -> Unavailable:
    return Unavailable("NVIDIA's list of releases cannot be read", details=[why])
