"""zypper."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree as ET

from driverforge_core import rpmversion
from driverforge_core.errors import DriverforgeError
from driverforge_driver.packages import (
    PackageAccess,
    PackageFile,
    PackageRequest,
    changed_on_mirror,
    headers_missing,
    mirror_unreachable,
    not_verified,
    rpm,
    storage_error_or,
)
from driverforge_host.ports import Result

# zypper(8): ZYPPER_EXIT_INF_CAP_NOT_FOUND, and ZYPPER_EXIT_INF_REPOS_SKIPPED, which says nothing of what came
NO_SUCH_PACKAGE = 104
REPOSITORIES_SKIPPED = 106
KEYS = rpm.KeyPlaces(folder="/usr/lib/rpm/gnupg/keys", repositories="/etc/zypp/repos.d")
CHANGED = re.compile(r"Digest verification failed")
UNVERIFIED = re.compile(r"Signature verification failed")


def suffix() -> str:
    return ".rpm"


def _get(access: PackageAccess, into: str, *arguments: str) -> Result:
    return access.fetch(["zypper", *_options(into), *arguments], env=_environment(access))


def _options(into: str) -> tuple[str, ...]:
    return ("--non-interactive", "--pkg-cache-dir", into)


def _environment(access: PackageAccess) -> dict[str, str]:
    # It trusts the system's store of certificates alone: no variable and no option names another.
    return access.proxy_environment()


def newest(search: str, version: str) -> str | None:
    """The newest edition of `version` that a search found; None where there is none.

    `search` is the answer of `zypper --xmlout search --details`.

    SUSE's build service counts rebuilds of a version: 'VERSION.1', 'VERSION.2'. `uname -r` does not show the
    count.
    """
    try:
        # zypper's own output, no foreign data
        tree = ET.fromstring(search)  # noqa: S314
    except ET.ParseError:
        return None
    editions = [node.get("edition", "") for node in tree.iter("solvable")]
    fitting = [edition for edition in editions if edition == version or edition.startswith(version + ".")]
    return max(fitting, key=rpmversion.key, default=None)


def readable(result: Result) -> Result:
    """The same result with the text of zypper's XML alone, for an error's details."""
    lines = [
        line
        for line in result.stdout.splitlines()
        if line.strip() and not line.startswith(("<?xml", "<progress"))
    ]
    text = unescape(re.sub(r"<[^>]*>", "", "\n".join(lines)))
    return replace(result, stdout=text)


def download(access: PackageAccess, request: PackageRequest, into: str) -> tuple[str, ...]:
    """The newest rebuild of each NAME=VERSION (`PackageManager.download`)."""
    refresh = _get(access, into, "refresh")
    exact = []
    for wanted in request.names:
        name, _, version = wanted.partition("=")
        question = ("--xmlout", "search", "--details", "--match-exact", "--type", "package", name)
        search = access.ask(["zypper", *_options(into), *question], env=_environment(access))
        edition = newest(search.stdout, version)
        if edition is None:
            reached = refresh.ok and search.status in (0, NO_SUCH_PACKAGE)
            answers = [refresh, readable(search)]
            raise (
                headers_missing([f"{name} {version}"], answers[1:])
                if reached
                else _verification_error(refresh) or mirror_unreachable(answers)
            )
        exact.append(f"{name}={edition}")
    fetched = _get(access, into, "download", *exact)
    found = access.commands.run(["find", into, "-name", f"*{suffix()}", "-type", "f"]).stdout.splitlines()
    if fetched.status not in (0, REPOSITORIES_SKIPPED) or len(found) < len(exact):
        # zypper ends with 0 also after "Argument resolves to no package".
        problem = _verification_error(fetched) or (
            headers_missing(exact, [fetched]) if fetched.ok else mirror_unreachable([refresh, fetched])
        )
        raise storage_error_or(fetched, problem)
    rpm.verify(access, found, places=KEYS, scratch=f"{into}/keys")
    return tuple(sorted(found))


def _verification_error(result: Result) -> DriverforgeError | None:
    """The error where zypper itself refused what it got; None where it says nothing of the kind."""
    said = result.stdout + result.stderr
    if CHANGED.search(said):
        return changed_on_mirror([result])
    return not_verified([result], keys=KEYS.advice) if UNVERIFIED.search(said) else None


def extract(access: PackageAccess, path: str, into: str) -> PackageFile:
    return rpm.extract(access, path, into)
