"""Known vulnerabilities of drivers, by the security advisories that NVIDIA publishes as CSAF 2.0.

They are files of the GitHub repository NVIDIA/product-security (2026/5821/5821.json), and nobody is asked for
them: a user names them. There, a branch `Linux(R535)` of the product tree has the product Tesla in two
versions, which differ in their ids alone:

    linuxr535_tesla_all_driver_versions_prior_to_535_309_01    known_affected
    linuxr535_tesla_535_309_01                                 fixed
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError

_BRANCH = re.compile(r"Linux\s?\(R(\d+)\)")
_FIXED = re.compile(r"_((\d+)_\d+(?:_\d+)?)\Z")
_PRODUCT = "Tesla"
"""What NVIDIA's bulletins call its data centre drivers."""
Read = Callable[[Path], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vulnerability:
    """Of all drivers of a branch that are older than `fixed`.

    `score` is the base score of CVSS 3, 0 where there is none; `bulletin` is NVIDIA's number of the advisory.
    """

    cve: str
    score: float
    fixed: DriverVersion
    bulletin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisories:
    """What some files say. A branch that has ended is in no new bulletin: nothing is known of it then."""

    known: tuple[Vulnerability, ...] = ()

    def of(self, driver: DriverVersion) -> tuple[Vulnerability, ...]:
        """What a driver has, the worst first."""
        mine = {
            one.cve: one for one in self.known if one.fixed.branch == driver.branch and driver < one.fixed
        }
        return tuple(sorted(mine.values(), key=lambda one: (-one.score, one.cve)))

    def told(self, driver: DriverVersion) -> str:
        """A sentence about a driver; '' where nothing is known of it."""
        return told(driver.text, self.of(driver))


def told(driver: str, found: Sequence[Vulnerability]) -> str:
    """A sentence about a driver and what it has, the worst first; '' where that is nothing."""
    if not found:
        return ""
    last = max(found, key=lambda one: one.fixed)
    worst = f"{found[0].cve} ({found[0].score})" if found[0].score else found[0].cve
    number = f"{len(found)} known vulnerabilities, the worst" if len(found) > 1 else "a known vulnerability,"
    return (
        f"driver {driver} has {number} {worst}: {last.fixed} has none of them "
        f"(NVIDIA's bulletin {last.bulletin})"
    )


NO_ADVISORIES = Advisories()


def read_advisories(paths: Iterable[Path], read: Read = Path.read_bytes) -> Advisories:
    """The advisories in files, and in all files *.json of folders that are such.

    Raises InputError for a file that is none, and for a damaged one of a folder.
    """
    documents = [document for path in paths for document in _documents(path, read)]
    return Advisories(known=tuple(one for document in documents for one in _vulnerabilities(document)))


def _documents(path: Path, read: Read) -> Iterator[Mapping[str, Any]]:
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    for file in files:
        try:
            document = json.loads(read(file))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{file} cannot be read as JSON: {error}", resolution=_WHERE) from None
        # beside each advisory lie records of its vulnerabilities in another format (CVE-2026-24187.json)
        if _is_csaf(document):
            yield document
        elif file == path:
            raise InputError(f"{file} is not a CSAF 2 document", resolution=_WHERE)


def _is_csaf(document: Any) -> bool:
    try:
        return str(document["document"]["csaf_version"]).startswith("2.")
    except (KeyError, TypeError):
        return False


_WHERE = (
    "give advisories as NVIDIA publishes them, or a folder with some: github.com/NVIDIA/product-security, "
    "such as 2026/5821/5821.json"
)


def _vulnerabilities(document: Mapping[str, Any]) -> Iterator[Vulnerability]:
    try:
        bulletin = str(document["document"]["tracking"]["id"])
        fixes = dict(_fixes(document["product_tree"], ""))
        for one in document.get("vulnerabilities", ()):
            status = one.get("product_status", {})
            named = {name for kind in ("fixed", "known_affected") for name in status.get(kind, ())}
            for version in {fixes[name] for name in named & fixes.keys()}:
                yield Vulnerability(cve=str(one["cve"]), score=_score(one), fixed=version, bulletin=bulletin)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"an advisory is not as NVIDIA writes them: {type(error).__name__}: {error}", resolution=_WHERE
        ) from None


def _fixes(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, DriverVersion]]:
    """The ids of a data centre driver's versions, fixed or prior to a fix, with the fixed version."""
    for branch in tree.get("branches", ()):
        product = branch.get("product", {})
        number, version = _BRANCH.fullmatch(above), _FIXED.search(str(product.get("product_id", "")))
        if number and version and branch["name"] == _PRODUCT and version[2] == number[1]:
            yield product["product_id"], DriverVersion(version[1].replace("_", "."))
        yield from _fixes(branch, str(branch["name"]))


def _score(vulnerability: Mapping[str, Any]) -> float:
    scores = (score.get("cvss_v3", {}).get("baseScore", 0) for score in vulnerability.get("scores", ()))
    return max(map(float, scores), default=0.0)
