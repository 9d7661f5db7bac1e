"""apt.

`apt-get download` takes no dependencies along, and `apt-get install --download-only` takes too many: the
headers of Debian's backports depend on the kernel image. So we follow the dependencies ourselves, those that
the request names.

apt verifies what it fetches: a signature on the index, and in the index the digest of each package. What lets
it go without is switched off here, whatever apt.conf says. A source with `trusted=yes` cannot be: it is named
in a warning.
"""

from __future__ import annotations

import re

from driverforge_core import deb822, log
from driverforge_core.errors import CommandFailed, DriverforgeError, InputError
from driverforge_driver.packages import (
    PackageAccess,
    PackageFile,
    PackageRequest,
    changed_on_mirror,
    command_evidence,
    headers_missing,
    mirror_unreachable,
    not_verified,
    storage_error_or,
)
from driverforge_host.ports import Files, Result, text_of

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
    r"|Could not handshake"
)
CHANGED = re.compile(r"Hash Sum mismatch|File has unexpected size|Size mismatch")
UNVERIFIED = re.compile(
    r"GPG error"  # apt 2; 'OpenPGP signature verification failed' 3.0, 'Signature verification failed' 3.3
    r"|[Ss]ignature verification"
    r"|is not signed|is no longer signed|could not be authenticated|Clearsigned file isn't valid"
)
KEYS = "put its public half into /etc/apt/trusted.gpg.d, or name it in the source with signed-by=FILE"
# sources.list(5): an option of a line, or a field of a .sources file, whose value may be on the next line
TRUSTED = re.compile(
    r"^[ \t]*(?:deb(?:-src)?[ \t]+\[[^\]\n]*\btrusted=|trusted:[ \t]*(?:\r?\n[ \t]+)?)"
    r"(?:yes|true|with|on|enable|1)\b",
    re.IGNORECASE | re.MULTILINE,
)
SETTINGS = (
    "APT::Get::AllowUnauthenticated=false",
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
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
            raise _verification_error(update) or (
                mirror_unreachable([update]) if stale else headers_missing([name], [shown])
            )
        wanted[name] = version or stanza["Version"]
        if request.dependencies:
            todo.extend(relations(stanza.get("Depends", ""), request.dependencies))
    for place in trusted_sources(access):
        log.warning("packages of this source are not verified: it says trusted=yes", source=place)
    fetched = _get(access, "download", *(f"{name}={version}" for name, version in wanted.items()), cwd=into)
    if not fetched.ok:
        said = fetched.stdout + fetched.stderr
        problem = _verification_error(fetched) or (
            mirror_unreachable([fetched])
            if NOT_REACHED.search(said) or stale
            else headers_missing(list(wanted), [fetched])
        )
        raise storage_error_or(fetched, problem)
    return tuple(f"{into}/{name}" for name in access.files.list_dir(into) if name.endswith(suffix()))


def _verification_error(result: Result) -> DriverforgeError | None:
    """The error where apt could not verify an index or a package; None where it says nothing of the kind."""
    said = result.stdout + result.stderr
    if CHANGED.search(said):
        return changed_on_mirror([result])
    return not_verified([result], keys=KEYS) if UNVERIFIED.search(said) else None


def trusted_sources(access: PackageAccess) -> tuple[str, ...]:
    """FILE:LINE of each place that tells apt to trust a source without a signature."""
    asked = access.ask(
        ["apt-get", *_options(access), "indextargets", "--no-release-info", "--format", "$(SOURCESENTRY)"],
        env=_environment(access),
    )
    # 'FILE:LINE', in .sources files 'FILE:STANZA'
    files = dict.fromkeys(line.rpartition(":")[0] for line in asked.stdout.splitlines())
    return tuple(place for path in files for place in _trusted_lines(access.files, path))


def _trusted_lines(files: Files, path: str) -> list[str]:
    text = text_of(files, path)
    return [f"{path}:{text.count(chr(10), 0, found.start()) + 1}" for found in TRUSTED.finditer(text)]


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
