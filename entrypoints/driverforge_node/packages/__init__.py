"""Package managers as a source of header packages: `apt`, `dnf` and `zypper` satisfy `PackageManager`.

Header packages are downloaded and unpacked under a work folder, never installed: the package database of the container
(and of the image layer) stays as it is, and headers of several kernels do not meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import DriverforgeError, Unavailable, Unsupported
from driverforge_node.host.ports import Commands, Files, Result

PROXIES = ("http_proxy", "https_proxy", "no_proxy")
FETCH_TIMEOUT = 900.0  # seconds; a mirror that lets every connection hang holds apt for minutes an address
ASK_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to ask the repositories: with `enable` switched on, as the release `releasever`."""

    name: str
    enable: tuple[str, ...] = ()
    releasever: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package file."""

    name: str
    version: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a package manager reaches the system and its mirrors."""

    commands: Commands
    files: Files
    environ: Mapping[str, str]
    ca_bundle: str = ""  # PEM file with the site's own CA as well, '' for the programs' default

    def proxy_environment(self) -> dict[str, str]:
        """Proxy variables in the lower case that apt and curl read; upper case is what pods are usually given."""
        return {
            name: value
            for name in PROXIES
            if (value := self.environ.get(name) or self.environ.get(name.upper()))
        }

    def fetch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None) -> Result:
        """Run what waits for mirrors: all that it prints is logged as it comes, and a stop signal ends it. Raises TemporaryFailure."""
        return self.commands.run(argv, check=False, env=env, cwd=cwd, timeout=FETCH_TIMEOUT, stream=True)

    def ask(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Result:
        """Run what answers from the lists that are there. Raises TemporaryFailure."""
        return self.commands.run(argv, check=False, env=env, timeout=ASK_TIMEOUT)


class PackageManager(Protocol):
    def suffix(self) -> str:
        """How its package files end: '.deb' or '.rpm'."""

    def download(
        self, access: Access, names: Sequence[str], into: str, attempts: Sequence[Attempt]
    ) -> tuple[str, ...]:
        """Fetch packages, and the header packages that they depend on, into the folder `into`; the paths of the files.

        Raises Unsupported where the mirror does not have them, Unavailable where the mirror cannot be reached.
        """

    def extract(self, access: Access, path: str, into: str) -> Package:
        """Unpack one package file below the folder `into`. Raises InputError when it is not a package."""


def evidence(result: Result) -> list[str]:
    """All that a package manager said, under the command that can be pasted."""
    said = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    return [f"$ {' '.join(result.argv)}", *said]


def headers_missing(names: Sequence[str], results: Sequence[Result]) -> Unsupported:
    """The mirror answers and does not have the packages: mirrors keep only the newest few kernels of a release."""
    return Unsupported(
        f"headers missing: the mirror has no {' and no '.join(names)}",
        details=[line for result in results for line in evidence(result)],
        resolution="boot a kernel that the mirror still has headers for, use an image with precompiled modules for this kernel,"
        " or give the header packages with --headers DIR",
    )


def mirror_unreachable(results: Sequence[Result]) -> Unavailable:
    return Unavailable(
        "mirror unreachable: header packages cannot be fetched",
        details=[line for result in results for line in evidence(result)],
        resolution="check name resolution, HTTP_PROXY/HTTPS_PROXY/NO_PROXY and the site's CA certificates; without a mirror use an image"
        " with precompiled modules, or give the header packages with --headers DIR",
    )


def storage_or(result: Result, otherwise: DriverforgeError) -> DriverforgeError:
    """`otherwise`, unless the program says that its disk is full."""
    from driverforge_core.errors import StorageFailed

    if "No space left on device" not in result.stdout + result.stderr:
        return otherwise
    return StorageFailed(
        "no space left for header packages",
        details=evidence(result),
        resolution="free space there, or give another place with --work-dir",
    )
