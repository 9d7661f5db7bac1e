"""What the repositories of an OS offer, of whatever kind they are: packages, and what they need and provide.

A package is made from its entry when somebody asks for it: an index has tens of thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from driverforge_build.ports import Sum
from driverforge_core.errors import InputError

LIMIT = 2_000_000
"""Packages of one OS and architecture. Debian has 70,000, all minor releases of RHEL a few times that."""

AUTOMATIC, ON_REQUEST = 500, 100
"""What repositories are preferred by, as in apt_preferences(5): what all packages may come from, and what is
for those who ask for it by name.
"""


class VersionOrder(Protocol):
    """A package manager's order of versions."""

    def key(self, version: str) -> Any:
        """A sort key."""

    def compare(self, offered: str, wanted: str) -> int:
        """-1, 0 or 1 as the version of a package is older than, as old as, or newer than the wanted one."""


_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "<<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    "=": lambda order: order == 0,
    ">=": lambda order: order >= 0,
    ">>": lambda order: order > 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One alternative of a dependency: a name, and a relation (<<, <=, =, >=, >> or '') to a version."""

    name: str
    relation: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.relation} {self.version})" if self.relation else self.name


Clause = tuple[Requirement, ...]
"""Alternatives, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is needed where one of the alternatives `when` is installed too, and what where none is."""

    when: Clause
    then: tuple[Clause, ...]
    otherwise: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A version of a package in a repository.

    `preference` orders repositories: AUTOMATIC or ON_REQUEST. `size` and `installed` are bytes, of the file
    and unpacked; `installed` is None where the index does not say.
    """

    name: str
    version: str
    arch: str
    source: str
    priority: int
    essential: bool
    depends: tuple[Clause, ...]
    provides: tuple[Requirement, ...]
    path: str
    sum: Sum
    size: int
    suite: str
    preference: int
    conditions: tuple[Condition, ...] = ()
    installed: int | None = None

    @property
    def upstream(self) -> str:
        """The version without epoch and Debian revision: '535.261.03' of '535.261.03-1'."""
        return self.version.rpartition(":")[2].rpartition("-")[0] or self.version.rpartition(":")[2]


class PackageIndex:
    """The indexes of one OS and architecture, merged. `order` is that of the package manager's versions."""

    def __init__(self, order: VersionOrder, *, limit: int = LIMIT) -> None:
        self._order = order
        self._limit, self._size = limit, 0
        self._entries: dict[str, list[Callable[[], Package]]] = defaultdict(list)
        self._providers: dict[str, set[str]] = defaultdict(set)
        self._made: dict[str, tuple[Package, ...]] = {}

    def add(self, name: str, make: Callable[[], Package], provides: Iterable[str] = ()) -> None:
        """Take in a package. `make` gives it, `provides` are the names that it has beside its own.

        Raises InputError for more packages than any OS has: a few megabytes unpack to more than fits here.
        """
        self._size += 1
        if self._size > self._limit:
            raise InputError(
                f"the repositories have more than {self._limit} packages",
                resolution="use another mirror: this one's index is not what the package manager would read",
            )
        self._made.pop(name, None)
        self._entries[name].append(make)
        for offer in provides:
            self._providers[offer].add(name)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._entries if name.startswith(prefix))

    def versions(self, name: str) -> tuple[Package, ...]:
        """All versions of a package in all repositories, in the order in which they would be taken.

        That is by preference of the repository, then newest first.
        """
        if name not in self._made:
            packages = [make() for make in self._entries.get(name, ())]
            packages.sort(
                key=lambda package: (package.preference, self._order.key(package.version)), reverse=True
            )
            self._made[name] = tuple(packages)
        return self._made[name]

    def admits(self, requirement: Requirement, version: str) -> bool:
        """Whether a version stands in a requirement's relation."""
        if not requirement.relation:
            return True
        return _COMPARISONS[requirement.relation](self._order.compare(version, requirement.version))

    def provided(self, package: Package, requirement: Requirement) -> bool:
        """Whether a package fulfils a requirement through its Provides.

        A relation to a version is met by a versioned Provides only (Debian policy 7.5, libsolv).
        """
        return any(
            offer.name == requirement.name
            and (
                not requirement.relation
                or (offer.relation == "=" and self.admits(requirement, offer.version))
            )
            for offer in package.provides
        )

    def candidate(self, requirement: Requirement, *, upstream: str = "") -> Package | None:
        """The version of a real package that fits a requirement.

        One of that upstream version, else the one that the package manager would take, else the newest. None
        where no version fits.
        """
        fitting = [
            package
            for package in self.versions(requirement.name)
            if self.admits(requirement, package.version)
        ]
        same = [package for package in fitting if package.upstream == upstream]
        return next(iter((*same, *fitting)), None)

    def providers(self, requirement: Requirement, *, upstream: str = "") -> list[Package]:
        """Packages that provide a virtual one, best first: essential ones, then by Priority, then by name."""
        names = sorted(self._providers.get(requirement.name, ()))
        candidates = [self.candidate(Requirement(name=name), upstream=upstream) for name in names]
        fitting = [
            package for package in candidates if package is not None and self.provided(package, requirement)
        ]
        return sorted(fitting, key=lambda package: (not package.essential, package.priority, package.name))
