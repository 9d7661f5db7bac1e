"""dnf."""

from __future__ import annotations

import re
from collections.abc import Sequence

from driverforge_driver.packages import (
    PackageAccess,
    PackageFile,
    PackageRequest,
    RepositoryAttempt,
    changed_on_mirror,
    headers_missing,
    mirror_unreachable,
    not_verified,
    rpm,
    storage_error_or,
)
from driverforge_host.ports import Result

KEYS = rpm.KeyPlaces(folder="/etc/pki/rpm-gpg", repositories="/etc/yum.repos.d")
CHANGED = re.compile(r"checksum doesn't match|have incorrect checksum")
UNVERIFIED = re.compile(r"signature verification error|GPG verification is enabled, but")
NOT_REACHED = re.compile(
    r"Failed to download metadata for repo|Cannot download repomd|Curl error"
    r"|All mirrors were (?:already )?tried|Errors during downloading metadata"
)


def suffix() -> str:
    return ".rpm"


def _try(access: PackageAccess, names: Sequence[str], into: str, attempt: RepositoryAttempt) -> Result:
    # A repository that has nothing to do with the packages may be away. Not --quiet: only the progress says
    # then that one was not reached.
    options = ["--setopt=*.skip_if_unavailable=1", *(f"--enablerepo={name}" for name in attempt.enable)]
    if attempt.releasever:
        options.append(f"--releasever={attempt.releasever}")
    if access.ca_bundle:
        options.append(f"--setopt=sslcacert={access.ca_bundle}")
    argv = ["dnf", "--assumeyes", *options, "download", "--destdir", into, *names]
    return access.fetch(argv, env=access.proxy_environment())


def download(access: PackageAccess, request: PackageRequest, into: str) -> tuple[str, ...]:
    """Try one attempt after the other (`PackageManager.download`).

    dnf fails as a whole where a repository that is enabled does not exist (no subscription for it). The next
    attempt goes without that one.
    """
    results = []
    for attempt in request.attempts:
        result = _try(access, request.names, into, attempt)
        found = tuple(f"{into}/{name}" for name in access.files.list_dir(into) if name.endswith(suffix()))
        if result.ok and found:
            rpm.verify(access, found, places=KEYS, scratch=f"{into}/keys")
            return found
        results.append(result)
    if changed := _that_say(CHANGED, results):
        raise changed_on_mirror(changed)
    if unverified := _that_say(UNVERIFIED, results):
        raise not_verified(unverified, keys=KEYS.advice)
    last = results[-1]
    # The last attempt asks the plainest repositories: its answer is the mirror's.
    unreachable = NOT_REACHED.search(last.stdout + last.stderr)
    raise storage_error_or(
        last, mirror_unreachable(results) if unreachable else headers_missing(request.names, results)
    )


def _that_say(words: re.Pattern[str], results: Sequence[Result]) -> list[Result]:
    return [result for result in results if words.search(result.stdout + result.stderr)]


def extract(access: PackageAccess, path: str, into: str) -> PackageFile:
    return rpm.extract(access, path, into)
