"""What needs two rows to judge: references between rows, and values that must agree with each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from driverforge_build.matrix.derive import Derived
from driverforge_build.matrix.fields import Arch, Row, is_branch, on_arch
from driverforge_build.matrix.globs import Predicate, matching
from driverforge_build.matrix.merge import near, row_id
from driverforge_build.matrix.model import (
    DriverRow,
    KernelSeries,
    OsRow,
    Repository,
    Section,
    Toolkit,
)
from driverforge_build.matrix.nvidia import Branch, Exclusion, OsRange, Probe
from driverforge_build.matrix.tree import Listing, Mark, Node, Problem, Scalar, Table
from driverforge_core.osid import OsId

__all__ = ["Names", "Parsed", "Predicate", "RowT", "duplicate_ids", "references", "unknown_branches"]

RowT = TypeVar("RowT", bound=Row)
Parsed = dict[Section, list[Row | None]]
"""The rows of each section, None where one is not valid by itself."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_IN_ADDRESS = ("machine", "releasever")
_Say = Callable[[str, str], None]
"""Takes the key that a problem is about, and the problem's text."""


@dataclass(frozen=True, slots=True)
class Names:
    """Ids that rows may refer to, before a site's `keep` leaves some out."""

    systems: tuple[str, ...]
    branches: tuple[str, ...]
    gpus: tuple[str, ...]
    derived: Mapping[str, Derived]
    """By OS, the OS that it is `like`."""

    @classmethod
    def of(cls, sections: Mapping[Section, Listing], derived: Mapping[str, Derived]) -> Names:
        def ids(section: Section) -> tuple[str, ...]:
            return tuple(name for item in sections[section].items if (name := row_id(item)) is not None)

        return cls(ids(Section.SYSTEMS), ids(Section.BRANCHES), ids(Section.GPUS), derived)


def duplicate_ids(node: Node, problems: list[Problem]) -> None:
    """Problems for rows of one list with the same id, at every depth."""
    children: Iterable[Node] = ()
    if isinstance(node, Listing):
        children = node.items
        first: dict[str, Mark] = {}
        for item in node.items:
            name = row_id(item)
            if name is not None and name in first:
                text = (
                    f"a second row with id {name!r} (first in line {first[name].line}); give it its own "
                    f"id, or merge the two"
                )
                problems.append(Problem(mark=item.mark, text=text))
            elif name is not None:
                first[name] = item.mark
    elif isinstance(node, Table):
        children = node.items.values()
    for child in children:
        duplicate_ids(child, problems)


def references(rows: Parsed, nodes: dict[Section, Listing], names: Names) -> list[Problem]:
    """Problems between rows, for those that are valid by themselves.

    Every row has its node at the same index of its section.
    """
    branches = {row.id: row for row in rows[Section.BRANCHES] if isinstance(row, Branch)}
    problems: list[Problem] = []
    findings: dict[str, list[Problem]] = {}
    for section in Section:
        for row, node in zip(rows[section], nodes[section].items, strict=True):
            if row is None or not isinstance(node, Table):
                continue
            if isinstance(row, OsRow):
                findings[row.id] = _system(row, node, _Branches(names, branches))
                continue
            say = _speaker(node, f"{section.value} {row_id(node)}", problems)
            if isinstance(row, Branch):
                _branch(row, names, say)
            elif isinstance(row, Exclusion):
                _exclusion(row, names, say)
            elif isinstance(row, Probe):
                _probe(row, say)
            elif isinstance(row, Toolkit) and row.system not in names.systems:
                say("system", f"no row {row.system!r} in `systems`{near(row.system, names.systems)}")
    for name, found in findings.items():
        derived = names.derived.get(name)
        problems += found if derived is None else _told_once(name, derived, findings)
    return problems


def _told_once(os_key: str, derived: Derived, findings: Mapping[str, list[Problem]]) -> Iterator[Problem]:
    """The problems of a row that is `like` another: at its `like` where they lie in what it takes over.

    One that the other row has too is told there alone.
    """
    known = {(one.mark, _unnamed(one, derived.base)) for one in findings.get(derived.base, ())}
    for one in findings[os_key]:
        if one.mark not in derived.inherited:
            yield one
        elif (one.mark, _unnamed(one, os_key)) not in known:
            yield Problem(mark=derived.mark, text=f"{one.text} (taken over from {one.mark})")


def _unnamed(problem: Problem, os_key: str) -> str:
    return problem.text.removeprefix(f"systems {os_key}")


def unknown_branches(systems: Iterable[Node], known: tuple[str, ...]) -> list[Problem]:
    """Problems of drivers whose branch has no row, also where something else in the OS's row is wrong."""
    problems: list[Problem] = []
    for system in systems:
        drivers = system.items.get("drivers") if isinstance(system, Table) else None
        for item in drivers.items if isinstance(drivers, Listing) else ():
            branch = item.items.get("branch") if isinstance(item, Table) else None
            if (
                isinstance(item, Table)
                and isinstance(branch, Scalar)
                and is_branch(branch.text)
                and branch.text not in known
            ):
                say = _speaker(item, f"systems {row_id(system)} drivers {row_id(item)}", problems)
                say("branch", f"no row {branch.text!r} in `branches`{near(branch.text, known)}")
    return problems


def _speaker(
    node: Table, who: str, problems: list[Problem], inherited: frozenset[Mark] = frozenset()
) -> _Say:
    def say(key: str, text: str) -> None:
        mark = node.keys.get(key, node.mark)
        # a row that changes another, in a site's file or by `like`: the key may be the other's, what does not
        # fit it is the row's
        if mark.file != node.mark.file or (mark in inherited and node.mark not in inherited):
            mark = node.mark
        problems.append(Problem(mark=mark, text=f"{who}: {text}"))

    return say


def _own_values(row: OsRow, node: Table, derived: Derived, problems: list[Problem]) -> None:
    """Problems for values that releases of one distribution do not share.

    A row that took them over would be built as the other release.
    """
    if OsId.parse(row.id).id != OsId.parse(derived.base).id:
        return
    for key, what in (("name", "name"), ("codename", "code name"), ("base", "image")):
        if node.keys.get(key) in derived.inherited and (value := getattr(row, key)):
            text = f"systems {row.id}: {key}: {value} is {derived.base}'s; write the {what} of {row.id}"
            problems.append(Problem(mark=derived.mark, text=text))


def _branch(row: Branch, names: Names, say: _Say) -> None:
    for gpu in row.gpus:
        if gpu not in names.gpus:
            say("gpus", f"no row {gpu!r} in `gpus`{near(gpu, names.gpus)}")
    if row.newest is not None and row.newest.partition(".")[0] != row.id:
        say("newest", f"{row.newest} is not of branch {row.id}")


def _exclusion(row: Exclusion, names: Names, say: _Say) -> None:
    for key, globs, known in (
        ("systems", row.systems, names.systems),
        ("branches", row.branches, names.branches),
    ):
        for glob in globs:
            if not matching((glob,), known):
                say(key, f"{glob!r} matches none of the {key}{near(glob, known)}")


def _probe(row: Probe, say: _Say) -> None:
    if (row.kind == "arguments") != (row.arguments is not None):
        say("arguments", "`arguments: NUMBER` belongs to `kind: arguments`, and only to it")
    if (row.kind == "missing-member") != bool(row.struct):
        say("struct", "`struct: NAME` belongs to `kind: missing-member`, and only to it")
    for target in row.drivers:
        if target.before is not None and target.before.partition(".")[0] != target.branch:
            say("drivers", f"{target.before} is not of branch {target.branch}")


@dataclass(frozen=True, slots=True)
class _Branches:
    """The branches that are valid, and the ids of all rows."""

    names: Names
    rows: dict[str, Branch]


def _system(row: OsRow, node: Table, branches: _Branches) -> list[Problem]:
    problems: list[Problem] = []
    who = f"systems {row.id}"
    derived = branches.names.derived.get(row.id)
    inherited = derived.inherited if derived else frozenset()
    say = _speaker(node, who, problems)
    if derived:
        _own_values(row, node, derived, problems)
    repositories = tuple(repository.id for repository in row.repositories)
    if row.package_manager == "apt" and not row.codename:
        say("codename", "apt needs `codename:`")
    for repository in row.repositories:
        _repository(repository, row, say)
    _placeholders(repositories, ("machine",), "repositories", say)
    _placeholders((*row.tools.runtime, *row.tools.jit), (), "tools", say)
    for line, item in zip(row.kernels, _rows_of(node, "kernels"), strict=True):
        _kernel_line(line, row, repositories, _speaker(item, f"{who} kernels {line.id}", problems, inherited))
    for driver, item in zip(row.drivers, _rows_of(node, "drivers"), strict=True):
        line_say = _speaker(item, f"{who} drivers {driver.id}", problems, inherited)
        _driver(driver, row, repositories, line_say)
        if driver.branch in branches.rows:
            branch = branches.rows[driver.branch]
            _driver_in_branch(driver, branch, line_say)
            archs = [arch for arch in driver.archs or row.archs if arch in branch.archs]
            _packages_on_each(driver, archs, line_say)
            if not _offered(row.id, branch, branches.names.derived):
                line_say(
                    "branch",
                    f"branch {branch.id} is not offered for {row.id}; see `systems` of its row in `branches`",
                )
    _same_version(row, node, problems)
    return problems


def _repository(repository: Repository, row: OsRow, say: _Say) -> None:
    if row.package_manager == "apt":
        if repository.flat and not all(on_arch(repository.urls, arch) for arch in row.archs):
            say("repositories", f"{repository.id}: apt needs `archive:` and `components:`, or `urls:` alone")
        elif not repository.flat and not (repository.components and repository.archive):
            say("repositories", f"{repository.id}: apt needs `archive:` and `components:`")
    given = repository.mirrorlist or ""
    _placeholders((*repository.urls, given, repository.older or ""), _IN_ADDRESS, "repositories", say)
    if any("{releasever}" in text for text in (*repository.urls, given)) and not row.releasever:
        say("repositories", f"{repository.id}: an address with {{releasever}} needs `releasever:` of the OS")
    if repository.older is not None and "{releasever}" not in repository.older:
        text = f"{repository.id}: `older:` needs {{releasever}}, which the minor release replaces"
        say("repositories", text)
    if bool(repository.key) != bool(repository.key_sha256) or (
        repository.key and row.package_manager == "apt"
    ):
        say("repositories", f"{repository.id}: `key:` needs `key_sha256:`, and is for dnf and zypper")
    for arch in row.archs:
        if len(on_arch(repository.urls, arch)) > 1:
            say("repositories", f"{repository.id}: two addresses for {arch}; keep one")


def _rows_of(node: Table, key: str) -> Iterator[Table]:
    listing = node.items[key]
    assert isinstance(listing, Listing)
    return (item for item in listing.items if isinstance(item, Table))


def _unknown(names: Iterable[str], known: tuple[str, ...], key: str, what: str, say: _Say) -> None:
    for name in names:
        if name not in known:
            say(key, f"no {what} {name!r} in this OS{near(name, known)}")


def _placeholders(packages: Iterable[str], allowed: tuple[str, ...], key: str, say: _Say) -> None:
    for package in packages:
        left = _PLACEHOLDER.sub("", package)
        for name in _PLACEHOLDER.findall(package):
            if name not in allowed:
                say(key, f"{{{name}}} in {package!r} is no placeholder here{near(name, allowed)}")
        if "{" in left or "}" in left:
            say(key, f"a brace without its partner in {package!r}")


def _kernel_line(line: KernelSeries, row: OsRow, repositories: tuple[str, ...], say: _Say) -> None:
    _unknown(line.repositories, repositories, "repositories", "repository", say)
    _placeholders((*line.headers, *line.image, *line.modules), ("release", "plain"), "headers", say)
    _placeholders(line.compilers, (), "compilers", say)
    for arch in line.flavours:
        if arch not in row.archs:
            say("flavours", f"{arch} is not among `archs` of {row.id}")


def _driver(driver: DriverRow, row: OsRow, repositories: tuple[str, ...], say: _Say) -> None:
    _unknown(driver.repositories, repositories, "repositories", "repository", say)
    for glob in driver.kernels:
        if not matching((glob,), (line.id for line in row.kernels)):
            say(
                "kernels",
                f"{glob!r} matches none of the OS's kernels{near(glob, [line.id for line in row.kernels])}",
            )
    for arch in driver.archs or ():
        if arch not in row.archs:
            say("archs", f"{arch} is not among `archs` of {row.id}")
    if driver.version.partition(".")[0] != driver.branch:
        say("version", f"{driver.version} is not of branch {driver.branch}")
    if "jit" in driver.variants and driver.vendor_modules:
        say("variants", "`vendor_modules: true` compiles nothing; write `variants: [precompiled]`")
    _payload(driver, say)


def _payload(driver: DriverRow, say: _Say) -> None:
    names = ("branch", "version")
    _placeholders((*driver.userspace, *driver.companions), names, "userspace", say)
    if driver.payload == "packages":
        covered = {source.id for source in driver.modules}
        for kind in driver.module_types:
            if kind not in covered:
                say("modules", f"payload packages needs a row `- id: {kind}` in `modules`")
        for source in driver.modules:
            _placeholders(source.packages, (*names, "release"), "modules", say)
            if not (source.tree or driver.vendor_modules):
                say("modules", f"{source.id}: `tree:` names the folder with the source inside the package")
        if "open" in driver.module_types and driver.firmware is None:
            say("module_types", "open modules drive no GPU without firmware; write `firmware:`")
        if not driver.repositories or not driver.userspace:
            say("userspace", "payload packages needs `repositories:` and `userspace:`")
    elif driver.payload == "runfile" and driver.url is None:
        say("url", "payload runfile needs `url:`")
    elif driver.payload == "image" and driver.image is None:
        say("image", "payload image needs `image:`")
    if driver.url is not None:
        _placeholders((driver.url,), (*names, "machine"), "url", say)


def _packages_on_each(driver: DriverRow, archs: Iterable[Arch], say: _Say) -> None:
    """Lists of packages of which an architecture gets none, as all are for the other one."""
    lists = [("userspace", driver.userspace), *(("modules", source.packages) for source in driver.modules)]
    for arch in archs:
        for key, packages in lists:
            if packages and not on_arch(packages, arch):
                say(key, f"no package is left for {arch}; name one, or leave {arch} out of `archs`")


def _driver_in_branch(driver: DriverRow, branch: Branch, say: _Say) -> None:
    for key, values, known in (
        ("module_types", driver.module_types, branch.module_types),
        ("payload", (driver.payload,), branch.payloads),
        ("archs", driver.archs or (), branch.archs),
    ):
        for value in values:
            if value not in known:
                say(key, f"branch {branch.id} has no {value}; it has {', '.join(known)}")


def _offered(os_key: str, branch: Branch, derived: Mapping[str, Derived]) -> bool:
    """Whether a branch is offered for an OS.

    The ranges of its own distribution say so; where there are none, those of the OS that it is like.
    """
    seen: set[str] = set()
    key: str | None = os_key
    while key is not None and key not in seen:
        seen.add(key)
        found = OsId.parse(key)
        ranges = [system for system in branch.systems if system.id == found.id]
        if ranges:
            return any(_within(found.version, system) for system in ranges)
        key = derived[key].base if key in derived else None
    return False


def _within(version: str, system: OsRange) -> bool:
    """Whether a version lies in a range. One that ends with 9 has the minor releases of 9, too."""
    number = _numbers(version)
    newest = None if system.newest is None else _numbers(system.newest)
    return (system.oldest is None or number >= _numbers(system.oldest)) and (
        newest is None or number[: len(newest)] <= newest
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _same_version(row: OsRow, node: Table, problems: list[Problem]) -> None:
    """Problems for two rows of one version.

    A version has one set of pins in the lock, and its cells share stages: two rows would mix their images.
    """
    items = [(driver, item.mark) for driver, item in zip(row.drivers, _rows_of(node, "drivers"), strict=True)]
    for (one, first), (two, second) in combinations(items, 2):
        shared = sorted(set(one.archs or row.archs) & set(two.archs or row.archs))
        if one.version != two.version or not shared:
            continue
        # a site's own row, rather than a shipped one
        mark, other = (first, second) if second.file != node.mark.file else (second, first)
        where = f"line {other.line}" if other.file == mark.file else str(other)
        text = (
            f"systems {row.id}: drivers {one.id} and {two.id} are both {one.version} on "
            f"{', '.join(shared)} (the other in {where})"
        )
        problems.append(Problem(mark=mark, text=f"{text}; keep one, or give one another version or `archs:`"))
