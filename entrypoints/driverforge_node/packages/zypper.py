"""zypper: header packages of SUSE's family."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree as ET  # zypper's own output, not foreign data

from driverforge_core import rpmversion
from driverforge_node.host.ports import Result
from driverforge_node.packages import (
    Access,
    Attempt,
    Package,
    headers_missing,
    mirror_unreachable,
    rpm,
    storage_or,
)

NO_SUCH_PACKAGE = 104  # ZYPPER_EXIT_INF_CAP_NOT_FOUND, zypper(8); other codes from 100 on mean that repositories were left out


def suffix() -> str:
    return ".rpm"


def _get(access: Access, into: str, *arguments: str) -> Result:
    return access.fetch(["zypper", *_options(into), *arguments], env=_environment(access))


def _options(into: str) -> tuple[str, ...]:
    return ("--non-interactive", "--pkg-cache-dir", into)


def _environment(access: Access) -> dict[str, str]:
    return {
        **access.proxy_environment(),
        **({"CURL_CA_BUNDLE": access.ca_bundle} if access.ca_bundle else {}),
    }


def newest(search: str, version: str) -> str | None:
    """The newest edition in the answer of `zypper --xmlout search --details` that is `version` or a rebuild of it ('V.1').

    A rebuild does not show in uname -r.
    """
    try:
        tree = ET.fromstring(search)  # noqa: S314
    except ET.ParseError:
        return None
    editions = [node.get("edition", "") for node in tree.iter("solvable")]
    fitting = [edition for edition in editions if edition == version or edition.startswith(version + ".")]
    return max(fitting, key=rpmversion.key, default=None)


def readable(result: Result) -> Result:
    """What zypper says to people, out of its XML, for error messages."""
    lines = [
        line
        for line in result.stdout.splitlines()
        if line.strip() and not line.startswith(("<?xml", "<progress"))
    ]
    text = unescape(re.sub(r"<[^>]*>", "", "\n".join(lines)))
    return replace(result, stdout=text)


def download(access: Access, names: Sequence[str], into: str, attempts: Sequence[Attempt]) -> tuple[str, ...]:  # noqa: ARG001
    refresh = _get(access, into, "refresh")
    exact = []
    for wanted in names:
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
                else mirror_unreachable(answers)
            )
        exact.append(f"{name}={edition}")
    fetched = _get(access, into, "download", *exact)
    found = access.commands.run(["find", into, "-name", f"*{suffix()}", "-type", "f"]).stdout.splitlines()
    if not fetched.ok or len(found) < len(exact):
        # status 0 with "Argument resolves to no package" too
        raise storage_or(
            fetched,
            headers_missing(exact, [fetched]) if fetched.ok else mirror_unreachable([refresh, fetched]),
        )
    return tuple(sorted(found))


def extract(access: Access, path: str, into: str) -> Package:
    return rpm.extract(access, path, into)
