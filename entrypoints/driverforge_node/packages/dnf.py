"""dnf: header packages of Red Hat's family."""

from __future__ import annotations

import re
from collections.abc import Sequence

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

NOT_REACHED = re.compile(
    r"Failed to download metadata for repo|Cannot download repomd|Curl error|All mirrors were (?:already )?tried"
    r"|Errors during downloading metadata"
)


def suffix() -> str:
    return ".rpm"


def _try(access: Access, names: Sequence[str], into: str, attempt: Attempt) -> Result:
    # not --quiet: where skip_if_unavailable is set, only the progress says that a repository was not reached
    options = [f"--enablerepo={name}" for name in attempt.enable]
    if attempt.releasever:
        options.append(f"--releasever={attempt.releasever}")
    if access.ca_bundle:
        options.append(f"--setopt=sslcacert={access.ca_bundle}")
    argv = ["dnf", "--assumeyes", *options, "download", "--destdir", into, *names]
    return access.fetch(argv, env=access.proxy_environment())


def download(access: Access, names: Sequence[str], into: str, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """dnf fails as a whole when an enabled repository does not exist (no subscription for it): the next attempt goes without."""
    results = []
    for attempt in attempts:
        result = _try(access, names, into, attempt)
        found = tuple(f"{into}/{name}" for name in access.files.list_dir(into) if name.endswith(suffix()))
        if result.ok and found:
            return found
        results.append(result)
    last = results[-1]
    # the last attempt asks the plainest repositories: what it says is the mirror's answer
    unreachable = NOT_REACHED.search(last.stdout + last.stderr)
    raise storage_or(last, mirror_unreachable(results) if unreachable else headers_missing(names, results))


def extract(access: Access, path: str, into: str) -> Package:
    return rpm.extract(access, path, into)
