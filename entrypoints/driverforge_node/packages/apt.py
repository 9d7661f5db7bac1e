"""apt: header packages of Debian and Ubuntu.

`apt-get download` takes no dependencies along, and `apt-get install --download-only` takes too many (backports headers depend on the
kernel image): we follow the dependencies that are header packages ourselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from driverforge_core import deb822
from driverforge_core.errors import CommandFailed, InputError
from driverforge_node.host.ports import Result
from driverforge_node.packages import (
    Access,
    Attempt,
    Package,
    evidence,
    headers_missing,
    mirror_unreachable,
    storage_or,
)

HEADER_PACKAGE = re.compile(r"^linux-(?:[\w.+-]+-)?headers-|^linux-kbuild-")
RELATION = re.compile(
    r"^\s*(?P<name>[a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*(?:\(\s*(?P<operator>[<>=]+)\s*(?P<version>[^)\s]+)\s*\))?"
)
FETCH_FAILED = re.compile(
    r"^[EW]: (?:Failed to fetch|Some index files failed|The repository '.*' (?:does not have|is not))",
    re.MULTILINE,
)
NOT_REACHED = re.compile(
    r"Could not resolve|Temporary failure resolving|Could not connect|Cannot initiate|Unable to connect|Connection failed"
    r"|Connection timed out|Connection refused|certificate|Failed to fetch|Could not handshake|Hash Sum mismatch"
)
SETTINGS = (
    "APT::Sandbox::User=root",
    "Acquire::Retries=2",
    "Acquire::http::Timeout=30",
    "Acquire::https::Timeout=30",
)
OPTIONS = tuple(word for setting in SETTINGS for word in ("-o", setting))


def suffix() -> str:
    return ".deb"


def _get(access: Access, *arguments: str, cwd: str | None = None) -> Result:
    return access.fetch(["apt-get", *_options(access), "-q", *arguments], env=_environment(access), cwd=cwd)


def _options(access: Access) -> tuple[str, ...]:
    return (*OPTIONS, *(("-o", f"Acquire::https::CAInfo={access.ca_bundle}") if access.ca_bundle else ()))


def _environment(access: Access) -> dict[str, str]:
    configuration = {"APT_CONFIG": access.environ["APT_CONFIG"]} if access.environ.get("APT_CONFIG") else {}
    return {**access.proxy_environment(), **configuration}


def relations(depends: str) -> tuple[tuple[str, str], ...]:
    """(name, exact version or '') of each dependency on a header package; of alternatives the first is meant."""
    found = []
    for clause in depends.split(","):
        relation = RELATION.match(clause.partition("|")[0])
        if relation and HEADER_PACKAGE.match(relation["name"]):
            found.append((relation["name"], relation["version"] if relation["operator"] == "=" else ""))
    return tuple(found)


def download(access: Access, names: Sequence[str], into: str, attempts: Sequence[Attempt]) -> tuple[str, ...]:  # noqa: ARG001
    update = _get(access, "update")
    stale = not update.ok or FETCH_FAILED.search(update.stdout + update.stderr) is not None
    wanted: dict[str, str] = {}
    todo = [(name, "") for name in names]
    while todo:
        name, version = todo.pop(0)
        if name in wanted:
            continue
        exact = f"{name}={version}" if version else name
        shown = access.ask(
            ["apt-cache", *_options(access), "--no-all-versions", "show", exact], env=_environment(access)
        )
        # status 0 without a stanza: apt knows the name only from another package's relation
        stanza = next(deb822.parse(shown.stdout), None) if shown.ok else None
        if stanza is None:
            # old lists may still know a package, so a failed update alone is no reason to stop
            raise mirror_unreachable([update]) if stale else headers_missing([name], [shown])
        wanted[name] = version or stanza["Version"]
        todo.extend(relations(stanza.get("Depends", "")))
    fetched = _get(access, "download", *(f"{name}={version}" for name, version in wanted.items()), cwd=into)
    if not fetched.ok:
        said = fetched.stdout + fetched.stderr
        problem = (
            mirror_unreachable([fetched])
            if NOT_REACHED.search(said) or stale
            else headers_missing(list(wanted), [fetched])
        )
        raise storage_or(fetched, problem)
    return tuple(f"{into}/{name}" for name in access.files.list_dir(into) if name.endswith(suffix()))


def extract(access: Access, path: str, into: str) -> Package:
    shown = access.commands.run(["dpkg-deb", "--field", path, "Package", "Version"], check=False)
    if not shown.ok:
        raise InputError(f"not a Debian package: {path}", details=evidence(shown))
    stanza = next(deb822.parse(shown.stdout))
    unpacked = access.commands.run(["dpkg-deb", "--extract", path, into], check=False)
    if not unpacked.ok:
        raise storage_or(unpacked, CommandFailed(f"cannot unpack {path}", details=evidence(unpacked)))
    return Package(name=stanza["Package"], version=stanza["Version"], path=path)
