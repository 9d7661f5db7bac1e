"""Package managers as a source of packages: `apt`, `dnf` and `zypper` satisfy `PackageManager`.

What belongs here: how each program is called, how its answers are read, and what a failure means. Which
packages are asked for is the family's knowledge.

Packages are downloaded and unpacked under a work folder, never installed: the package database of the
container (and of the image layer) stays as it is, and the headers of several kernels do not meet. `rpm` is no
package manager: it verifies and reads the package files that dnf and zypper fetch.

What comes from a mirror is verified before any program reads it: apt does that itself, by the signed index,
and `rpm` does it for the files of dnf and zypper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import DriverforgeError, InputError, Unavailable, Unsupported
from driverforge_host.ports import Commands, Files, Result

PROXIES = ("http_proxy", "https_proxy", "no_proxy")
# Seconds. Where a mirror lets every connection hang, apt waits minutes for each of its addresses.
FETCH_TIMEOUT = 900.0
ASK_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAttempt:
    """One way to ask the repositories."""

    name: str
    # repositories that are switched on for it
    enable: tuple[str, ...] = ()
    # the release to ask as, '' for the image's own
    releasever: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRequest:
    """Packages to fetch."""

    names: tuple[str, ...]
    # dependencies whose names match are fetched as well; None: no dependency is
    dependencies: re.Pattern[str] | None = None
    # in order; the first one that has the packages wins
    attempts: tuple[RepositoryAttempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFile:
    """A package file."""

    name: str
    version: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageAccess:
    """How a package manager reaches the system and its mirrors."""

    commands: Commands
    files: Files
    environ: Mapping[str, str]
    # PEM file with the site's own CA certificates as well, '' for the programs' default
    ca_bundle: str = ""

    def proxy_environment(self) -> dict[str, str]:
        """The proxy variables in lower case, as apt and curl read them. Pods are usually given upper case."""
        return {
            name: value
            for name in PROXIES
            if (value := self.environ.get(name) or self.environ.get(name.upper()))
        }

    def fetch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None) -> Result:
        """Run a program that waits for mirrors. Its output is logged as it comes, and a stop signal ends it.

        Raises TemporaryFailure after FETCH_TIMEOUT.
        """
        return self.commands.run(argv, check=False, env=env, cwd=cwd, timeout=FETCH_TIMEOUT, stream=True)

    def ask(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Result:
        """Run a program that answers from lists on the disk. Raises TemporaryFailure after ASK_TIMEOUT."""
        return self.commands.run(argv, check=False, env=env, timeout=ASK_TIMEOUT)


class PackageManager(Protocol):
    """A program that fetches and unpacks packages."""

    def suffix(self) -> str:
        """The end of its package files' names: '.deb' or '.rpm'."""

    def download(self, access: PackageAccess, request: PackageRequest, into: str) -> tuple[str, ...]:
        """Fetch packages into the folder `into` and verify who signed them; returns the paths of the files.

        Raises Unsupported where the mirror does not have them, Unavailable where the mirror cannot be
        reached, InputError where they are not signed with a key that this image knows.
        """

    def extract(self, access: PackageAccess, path: str, into: str) -> PackageFile:
        """Unpack the package file `path` below the folder `into`.

        Raises InputError where it is no package.
        """


def command_evidence(result: Result) -> list[str]:
    """The command, ready to be pasted, and all that it printed."""
    said = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    return [f"$ {' '.join(result.argv)}", *said]


def headers_missing(names: Sequence[str], results: Sequence[Result]) -> Unsupported:
    """The error where the mirror answers without the packages.

    Mirrors keep only the newest few kernels of a release.
    """
    return Unsupported(
        f"headers missing: the mirror has no {' and no '.join(names)}",
        details=[line for result in results for line in command_evidence(result)],
        resolution="boot a kernel that the mirror still has headers for, "
        "use an image with precompiled modules for this kernel, "
        "or give the header packages with --headers DIR",
    )


def mirror_unreachable(results: Sequence[Result]) -> Unavailable:
    """The error where the mirror gives no answer."""
    return Unavailable(
        "mirror unreachable: header packages cannot be fetched",
        details=[line for result in results for line in command_evidence(result)],
        resolution="check name resolution, HTTP_PROXY/HTTPS_PROXY/NO_PROXY and the site's CA certificates; "
        "without a mirror use an image with precompiled modules, "
        "or give the header packages with --headers DIR",
    )


def changed_on_mirror(results: Sequence[Result]) -> InputError:
    """The error where the mirror gives another file than its own index names."""
    return InputError(
        "the mirror gives a file that differs from its index",
        details=[line for result in results for line in command_evidence(result)],
        resolution="nothing of it was used; the file is damaged, changed, or of a mirror that was half "
        "through an update: copy the repository again and empty the caches of proxies, then start again",
    )


def not_verified(results: Sequence[Result], *, keys: str) -> InputError:
    """The error where the program accepts no signature. `keys` says how it learns a key of the site's own."""
    return InputError(
        f"header packages cannot be verified: {results[-1].argv[0]} accepts no signature of them or of their "
        "index",
        details=[line for result in results for line in command_evidence(result)],
        resolution=f"where a key of the site's own is missing, {keys}; sign what has no signature; "
        "or give packages that you have checked yourself with --headers DIR",
    )


def storage_error_or(result: Result, otherwise: DriverforgeError) -> DriverforgeError:
    """StorageFailed where the program says that its disk is full, else `otherwise`."""
    from driverforge_core.errors import StorageFailed

    if "No space left on device" not in result.stdout + result.stderr:
        return otherwise
    return StorageFailed(
        "no space left for header packages",
        details=command_evidence(result),
        resolution="free space there, or name another folder with --work-dir",
    )
