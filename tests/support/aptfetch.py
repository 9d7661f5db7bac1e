"""Packages of any Debian suite, without touching the machine's apt.

The lists and the sources are our own. The mirror is the one that the machine's apt configuration names for
its own release. Proxies and TLS settings (`Acquire::*`) are taken along, hooks are not. Packages are unpacked
with dpkg-deb, never installed.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import CommandFailed, Unavailable
from support import cache
from support.process import require, run

SUITES = ("bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid")
COMPONENTS = "main contrib non-free non-free-firmware"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SECURITY = "-security"  # lies elsewhere
# seconds; a mirror drops a package hours after its successor came, and a failed download refreshes at once
_FRESH = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A version of a binary package in a suite."""

    name: str
    version: str
    suite: str

    def __str__(self) -> str:
        return f"{self.name}={self.version}"


def mirror(etc: Path = Path("/etc"), *, pocket: str = "") -> str:
    """The URI from which this Debian machine gets `main` of its own release, or of its '-security'.

    Reads one-line and deb822 sources (sources.list(5)).
    """
    codename = _os_release(etc / "os-release").get("VERSION_CODENAME", "")
    apt = etc / "apt"
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in files:
        if file.is_file():
            for uri, suites, components in _sources(file):
                if f"{codename}{pocket}" in suites and "main" in components:
                    return uri.rstrip("/")
    raise Unavailable(
        f"apt's configuration names no mirror for Debian {codename or '(unknown release)'}",
        details=[str(file) for file in files],
        resolution="the bench runs on Debian; see docs/testing.md",
    )


def _os_release(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    values = {key: value.strip('"') for key, _, value in pairs}
    return values if values.get("ID") == "debian" else {}


def _sources(file: Path) -> Iterable[tuple[str, list[str], list[str]]]:
    """(URI, suites, components) of each binary source in a file."""
    text = re.sub(r"(?m)^\s*#.*\n?", "", file.read_text())
    if file.suffix == ".sources":
        for stanza in re.split(r"\n\s*\n", text):
            fields = {
                key.lower(): value.split() for key, value in re.findall(r"(?m)^([\w-]+):\s*(.*)$", stanza)
            }
            if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]:
                for uri in fields.get("uris", []):
                    yield uri, fields.get("suites", []), fields.get("components", [])
    elif file.suffix == ".list":
        for uri, suite, components in re.findall(
            r"(?m)^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", text
        ):
            yield uri, [suite], components.split()


class MirrorArchive:
    """Suites of one mirror, with package lists of their own in the cache.

    `arch` is another architecture than this machine's, to look at its packages.
    """

    def __init__(self, suites: Iterable[str] = SUITES, *, arch: str = "", base: Path | None = None) -> None:
        require("apt-get", "apt-cache", "dpkg-deb")
        self.suites = tuple(suites)
        self.mirror = mirror()
        self._arch = arch
        self.debs = (base or cache.root()) / ("debs" + (f"-{arch}" if arch else ""))
        of = {"suites": self.suites, "mirror": self.mirror, **({"arch": arch} if arch else {})}
        self._state = (base or cache.root()) / "apt" / cache.key(of)
        self._config = self._state / "apt.conf"
        self._lock = self._state / "lock"
        self.debs.mkdir(parents=True, exist_ok=True)
        with cache.locked(self._lock):
            stamp = self._state / "updated"
            if not stamp.exists() or time.time() - stamp.stat().st_mtime > _FRESH:
                self._update()

    def _update(self) -> None:
        for folder in ("lists/partial", "cache/archives/partial", "none"):
            (self._state / folder).mkdir(parents=True, exist_ok=True)
        lines = [f"deb [signed-by={_KEYRING}] {uri} {suite} {COMPONENTS}\n" for suite, uri in self._places()]
        (self._state / "sources.list").write_text("".join(lines))
        # a stale snapshot of sid is past its Valid-Until on machines whose mirror is one
        ours = {
            "Dir::Etc::SourceList": self._state / "sources.list",
            "Dir::Etc::SourceParts": self._state / "none",
            "Dir::Etc::PreferencesParts": self._state / "none",
            "Dir::Etc::Preferences": self._state / "none/preferences",
            "Dir::State::Lists": self._state / "lists",
            "Dir::Cache": self._state / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Check-Valid-Until": "false",
            **({"APT::Architecture": self._arch, "APT::Architectures": self._arch} if self._arch else {}),
        }
        theirs = [
            line for line in run("apt-config", "dump").stdout.splitlines() if line.startswith("Acquire::")
        ]
        text = [
            *theirs,
            *(f'{name} "{value}";' for name, value in ours.items()),
            f'Dir::Etc::Parts "{self._state / "none"}";',
        ]
        self._config.write_text("\n".join(text) + "\n")
        self._apt("apt-get", "-qq", "update")
        (self._state / "updated").touch()

    def _places(self) -> Iterable[tuple[str, str]]:
        for suite in self.suites:
            yield suite, mirror(pocket=_SECURITY) if suite.endswith(_SECURITY) else self.mirror

    def _apt(self, *argv: str, cwd: Path | None = None) -> str:
        # APT_CONFIG is read before Dir::Etc::Parts is looked at, so the machine's hooks are not
        return run(*argv, env={"APT_CONFIG": str(self._config), "LC_ALL": "C.UTF-8"}, cwd=cwd).stdout

    def versions(self, name: str) -> tuple[Package, ...]:
        """Every version of a package, newest first."""
        rows = (line.split("|") for line in self._apt("apt-cache", "madison", name).splitlines())
        found = [
            Package(
                name=cells[0].strip(), version=cells[1].strip(), suite=cells[2].split()[1].partition("/")[0]
            )
            for cells in rows
            if len(cells) == 3 and cells[2].split()[-1] == "Packages"
        ]
        return tuple(sorted(found, key=lambda package: version_key(package.version), reverse=True))

    def names(self, pattern: str) -> tuple[str, ...]:
        """Package names that a regular expression matches as a whole."""
        literal = re.match(r"[a-z0-9.+-]*(?=$|[^*?+{|])", pattern)
        prefix = literal[0] if literal else ""
        everything = self._apt("apt-cache", "pkgnames", prefix).split()
        return tuple(sorted(name for name in everything if re.fullmatch(pattern, name)))

    def newest(
        self, name: str, *, suite: str = "", satisfies: Callable[[str], bool] = lambda _version: True
    ) -> Package:
        """The newest version of a package for which `satisfies` holds, in one suite or in all.

        Raises Unavailable if there is none.
        """
        every = self.versions(name)
        for package in every:
            if suite in ("", package.suite) and satisfies(package.version):
                return package
        raise Unavailable(
            f"no fitting version of {name}" + (f" in {suite}" if suite else ""),
            details=[f"{package} in {package.suite}" for package in every]
            or [f"{', '.join(self.suites)} have no {name}"],
        )

    def field(self, package: Package, name: str) -> str:
        """A control field of a package, '' where it has none."""
        text = self._apt("apt-cache", "show", str(package))
        found = re.search(rf"(?m)^{re.escape(name)}: (.*)$", text)
        return found[1] if found else ""

    def with_dependencies(self, names: Iterable[str], *, suite: str) -> tuple[Package, ...]:
        """Packages of a suite and all that they depend on, as apt would install them where nothing is."""
        options = ("--no-install-recommends", "--target-release", suite, "-o", "Dir::State::status=/dev/null")
        told = self._apt("apt-get", "--simulate", *options, "install", *names)
        found = re.findall(r"(?m)^Inst (\S+) \((\S+)", told)
        return tuple(Package(name=name, version=version, suite=suite) for name, version in sorted(found))

    def download(self, packages: Iterable[Package]) -> tuple[Path, ...]:
        """The .deb files, checked by apt against the signed lists, kept in the cache."""
        return tuple(self._deb(package) for package in packages)

    def _deb(self, package: Package) -> Path:
        have = self.debs / f"{package.name}_{package.version.replace(':', '%3a')}.deb"
        with cache.locked(self._lock):
            if not have.exists():
                draft = self.debs / f"{have.name}.draft"
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir()
                try:
                    self._apt("apt-get", "-qq", "download", str(package), cwd=draft)
                except CommandFailed:
                    # the mirror has dropped what our lists still name, or was between two states
                    self._update()
                    self._apt("apt-get", "-qq", "download", str(package), cwd=draft)
                next(draft.glob("*.deb")).rename(have)
                draft.rmdir()
        return have

    def unpacked(self, packages: Iterable[Package]) -> Path:
        """A cached folder with the files of packages."""
        chosen = sorted(set(packages), key=str)
        return cache.cached(
            "unpacked",
            {"packages": [str(package) for package in chosen]} | ({"arch": self._arch} if self._arch else {}),
            lambda folder: self.unpack(chosen, folder),
        )

    def unpack(self, packages: Iterable[Package], target: Path) -> None:
        """Put the files of packages under a folder (dpkg-deb -x): nothing is configured, no script runs."""
        target.mkdir(parents=True, exist_ok=True)
        for deb in self.download(packages):
            run("dpkg-deb", "-x", deb, target)


@functools.cache
def archive() -> MirrorArchive:
    """All suites that the bench uses."""
    return MirrorArchive()


@functools.total_ordering
class version_key:  # noqa: N801 - reads as the function that it is used as
    """Sort key in Debian's version order.

    dpkg is asked for the order: the bench must not depend on the code that it tests.
    """

    def __init__(self, version: str) -> None:
        self.version = version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, version_key) and not self < other and not other < self

    def __hash__(self) -> int:
        return hash(self.version)

    def __lt__(self, other: version_key) -> bool:
        return run("dpkg", "--compare-versions", self.version, "lt", other.version, check=False).status == 0
