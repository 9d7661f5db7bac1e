"""Pins of packages, by whatever sum their index knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from driverforge_build.discover.offered import Package
from driverforge_build.discover.pin import Pins, locked
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.ports import Downloads, Listed

WORKERS = 4


def pins_of(
    addresses: Mapping[str, Callable[[str], str]], downloads: Downloads, packages: Iterable[Package]
) -> Pins:
    """The pins of packages. Those that are known by another sum than sha256 are downloaded, but once.

    `addresses` maps a repository's id to what makes an address of a package's path. Raises as `locked` and
    Downloads.
    """
    asked = list(dict.fromkeys(packages))
    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(asked, pool.map(partial(_pin, addresses, downloads), asked), strict=True))


def _pin(
    addresses: Mapping[str, Callable[[str], str]], downloads: Downloads, package: Package
) -> LockedPackage:
    url = addresses[package.suite](package.path)
    found = downloads.pinned(Listed(urls=(url,), sum=package.sum, size=package.size))
    return locked(package, found.sha256)
