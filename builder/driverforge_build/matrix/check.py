"""What needs two rows to judge: references between rows, and values that must agree with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from driverforge_build.matrix.branches import Branch, Exclusion, Probe
from driverforge_build.matrix.check_system import Say, speaker, system_problems
from driverforge_build.matrix.derive import Derived
from driverforge_build.matrix.fields import Row, is_branch
from driverforge_build.matrix.globs import matching
from driverforge_build.matrix.merge import near, row_id
from driverforge_build.matrix.model import (
    OsRow,
    Section,
    Toolkit,
)
from driverforge_build.matrix.yamltree import Listing, Mark, Node, Problem, Scalar, Table

RowT = TypeVar("RowT", bound=Row)
Parsed = dict[Section, list[Row | None]]
"""The rows of each section, None where one is not valid by itself."""


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
                findings[row.id] = system_problems(row, node, branches, names.derived)
                continue
            say = speaker(node, f"{section.value} {row_id(node)}", problems)
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
                say = speaker(item, f"systems {row_id(system)} drivers {row_id(item)}", problems)
                say("branch", f"no row {branch.text!r} in `branches`{near(branch.text, known)}")
    return problems


def _branch(row: Branch, names: Names, say: Say) -> None:
    for gpu in row.gpus:
        if gpu not in names.gpus:
            say("gpus", f"no row {gpu!r} in `gpus`{near(gpu, names.gpus)}")
    if row.newest is not None and row.newest.partition(".")[0] != row.id:
        say("newest", f"{row.newest} is not of branch {row.id}")


def _exclusion(row: Exclusion, names: Names, say: Say) -> None:
    for key, globs, known in (
        ("systems", row.systems, names.systems),
        ("branches", row.branches, names.branches),
    ):
        for glob in globs:
            if not matching((glob,), known):
                say(key, f"{glob!r} matches none of the {key}{near(glob, known)}")


def _probe(row: Probe, say: Say) -> None:
    if (row.kind == "arguments") != (row.arguments is not None):
        say("arguments", "`arguments: NUMBER` belongs to `kind: arguments`, and only to it")
    if (row.kind == "missing-member") != bool(row.struct):
        say("struct", "`struct: NAME` belongs to `kind: missing-member`, and only to it")
    for target in row.drivers:
        if target.before is not None and target.before.partition(".")[0] != target.branch:
            say("drivers", f"{target.before} is not of branch {target.branch}")
