"""apt.

`apt-get download` takes no dependencies along, and `apt-get install --download-only` takes too many: the
headers of Debian's backports depend on the kernel image. So we follow the dependencies ourselves, those that
the request names.
"""

from __future__ import annotations

import re

from driverforge_core import deb822
from driverforge_core.errors import CommandFailed, InputError
from driverforge_node.packages import (
    PackageAccess,
    PackageFile,
    PackageRequest,
    command_evidence,
    headers_missing,
    mirror_unreachable,
    storage_error_or,
)
from driverforge_node.ports import Result

# one alternative of a Depends field: 'linux-headers-6.1.0-50-common:amd64 (= 6.1.176-1)'
RELATION = re.compile(
    r"^\s*(?P<name>[a-z0-9][a-z0-9+.-]*)(?::\w+)?"
    r"\s*(?:\(\s*(?P<operator>[<>=]+)\s*(?P<version>[^)\s]+)\s*\))?"
)
# `apt-get update` ends with 0 although an index could not be fetched: its old one stays in use
FETCH_FAILED = re.compile(
    r"^[EW]: (?:Failed to fetch|Some index files failed|The repository '.*' (?:does not have|is not))",
    re.MULTILINE,
)
NOT_REACHED = re.compile(
    r"Could not resolve|Temporary failure resolving|Could not connect|Cannot initiate|Unable to connect"
    r"|Connection failed|Connection timed out|Connection refused|certificate|Failed to fetch"
    r"|Could not handshake|Hash Sum mismatch"
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


def _get(access: PackageAccess, *arguments: str, cwd: str | None = None) -> Result:
    return access.fetch(["apt-get", *_options(access), "-q", *arguments], env=_environment(access), cwd=cwd)


def _options(access: PackageAccess) -> tuple[str, ...]:
    return (*OPTIONS, *(("-o", f"Acquire::https::CAInfo={access.ca_bundle}") if access.ca_bundle else ()))


def _environment(access: PackageAccess) -> dict[str, str]:
    configuration = {"APT_CONFIG": access.environ["APT_CONFIG"]} if access.environ.get("APT_CONFIG") else {}
    return {**access.proxy_environment(), **configuration}


def relations(depends: str, followed: re.Pattern[str]) -> tuple[tuple[str, str], ...]:
    """(name, exact version or '') of each dependency in a Depends field whose name matches `followed`.

    Of alternatives (`a | b`) the first one counts.
    """
    found = []
    for clause in depends.split(","):
        relation = RELATION.match(clause.partition("|")[0])
        if relation and followed.match(relation["name"]):
            found.append((relation["name"], relation["version"] if relation["operator"] == "=" else ""))
    return tuple(found)


def download(access: PackageAccess, request: PackageRequest, into: str) -> tuple[str, ...]:
    """The packages and the dependencies to follow, all in exact versions (`PackageManager.download`)."""
    update = _get(access, "update")
    stale = not update.ok or FETCH_FAILED.search(update.stdout + update.stderr) is not None
    wanted: dict[str, str] = {}
    todo = [(name, "") for name in request.names]
    while todo:
        name, version = todo.pop(0)
        if name in wanted:
            continue
        exact = f"{name}={version}" if version else name
        shown = access.ask(
            ["apt-cache", *_options(access), "--no-all-versions", "show", exact], env=_environment(access)
        )
        # Status 0 without a stanza: apt knows the name from another package's Depends only.
        stanza = next(deb822.parse(shown.stdout), None) if shown.ok else None
        if stanza is None:
            # Only now a failed update matters: old lists may know all packages.
            raise mirror_unreachable([update]) if stale else headers_missing([name], [shown])
        wanted[name] = version or stanza["Version"]
        if request.dependencies:
            todo.extend(relations(stanza.get("Depends", ""), request.dependencies))
    fetched = _get(access, "download", *(f"{name}={version}" for name, version in wanted.items()), cwd=into)
    if not fetched.ok:
        said = fetched.stdout + fetched.stderr
        problem = (
            mirror_unreachable([fetched])
            if NOT_REACHED.search(said) or stale
            else headers_missing(list(wanted), [fetched])
        )
        raise storage_error_or(fetched, problem)
    return tuple(f"{into}/{name}" for name in access.files.list_dir(into) if name.endswith(suffix()))


def extract(access: PackageAccess, path: str, into: str) -> PackageFile:
    shown = access.commands.run(["dpkg-deb", "--field", path, "Package", "Version"], check=False)
    if not shown.ok:
        raise InputError(f"not a Debian package: {path}", details=command_evidence(shown))
    stanza = next(deb822.parse(shown.stdout))
    unpacked = access.commands.run(["dpkg-deb", "--extract", path, into], check=False)
    if not unpacked.ok:
        raise storage_error_or(
            unpacked, CommandFailed(f"cannot unpack {path}", details=command_evidence(unpacked))
        )
    return PackageFile(name=stanza["Package"], version=stanza["Version"], path=path)
