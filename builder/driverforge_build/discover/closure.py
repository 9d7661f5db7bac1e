"""What must be downloaded to install some packages on nothing: their dependencies, theirs, and so on.

Greedy and without a way back: Pre-Depends and Depends, no Recommends, the first alternative that can be had.
Clauses that leave a choice wait until all others are settled, so that a choice falls on what is there anyway,
as in apt's resolver. The result depends only on the set of roots and on the indexes. A conflict that apt
would solve by going back is not solved here. apt installs the packages in the end, and refuses them then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from driverforge_build.discover.offered import Clause, Condition, Package, PackageIndex, Requirement
from driverforge_core.errors import Unavailable


class Unsatisfiable(Unavailable):
    """A package, or one that it needs, is not in the suites that were read."""


def closure(
    index: PackageIndex, roots: Iterable[Clause], *, given: Iterable[Package] = (), upstream: str = ""
) -> tuple[Package, ...]:
    """The packages that `roots` and their dependencies name, without those that are `given`, by name.

    Packages of the version `upstream` win over newer ones: the parts of a driver must not be mixed, also
    where another suite has a newer one. Raises Unsatisfiable with the chain that leads to what is missing.
    """
    there = {package.name: package for package in given}
    chosen = dict(there)
    needed_by: dict[str, str] = {}
    firm: list[tuple[Clause, str]] = [
        (clause, "") for clause in sorted(set(roots), key=text_of, reverse=True)
    ]
    choices: deque[tuple[Clause, str]] = deque()
    open_conditions = {(one, package.name) for package in there.values() for one in package.conditions}
    while firm or choices or (firm := _due(index, chosen, open_conditions)):
        settled = not firm
        clause, parent = choices.popleft() if settled else firm.pop()
        if _met(index, chosen, clause):
            continue
        if not settled and _is_choice(index, clause):
            choices.append((clause, parent))
            continue
        package = _first(index, clause, upstream)
        if package is None or package.name in chosen:
            raise _missing(index, clause, parent, needed_by, chosen)
        chosen[package.name] = package
        needed_by[package.name] = parent
        firm += [(dependency, package.name) for dependency in reversed(package.depends)]
        open_conditions |= {(one, package.name) for one in package.conditions}
    return tuple(chosen[name] for name in sorted(chosen) if name not in there)


def _due(
    index: PackageIndex, chosen: dict[str, Package], open_conditions: set[tuple[Condition, str]]
) -> list[tuple[Clause, str]]:
    """What conditions ask for now that all else is settled. Those that ask for something are taken out.

    What holds where something is absent is asked for last, once nothing can come any more.
    """
    met = {one for one in open_conditions if _met(index, chosen, one[0].when)}
    open_conditions -= met
    due = [(clause, parent) for condition, parent in met for clause in condition.then]
    if not due:
        due = [(clause, parent) for condition, parent in open_conditions for clause in condition.otherwise]
        open_conditions.clear()
    return sorted(due, key=lambda one: (text_of(one[0]), one[1]), reverse=True)


def text_of(clause: Clause) -> str:
    return " | ".join(str(requirement) for requirement in clause)


def _is_choice(index: PackageIndex, clause: Clause) -> bool:
    return len(clause) > 1 or index.candidate(clause[0]) is None


def _met(index: PackageIndex, chosen: dict[str, Package], clause: Clause) -> bool:
    for requirement in clause:
        package = chosen.get(requirement.name)
        if package is not None and index.admits(requirement, package.version):
            return True
        if any(index.provided(other, requirement) for other in chosen.values() if other.provides):
            return True
    return False


def _first(index: PackageIndex, clause: Clause, upstream: str) -> Package | None:
    for requirement in clause:
        if (package := index.candidate(requirement, upstream=upstream)) is not None:
            return package
        if providers := index.providers(requirement, upstream=upstream):
            return providers[0]
    return None


def _missing(
    index: PackageIndex,
    clause: Clause,
    parent: str,
    needed_by: dict[str, str],
    chosen: dict[str, Package],
) -> Unsatisfiable:
    chain = [parent] if parent else []
    while chain and needed_by.get(chain[-1]):
        chain.append(needed_by[chain[-1]])
    details = [f"needed by {' <- '.join(chain)}"] if chain else []
    details += [_offer(index, requirement, chosen) for requirement in clause]
    return Unsatisfiable(
        f"the repositories that were read have no {text_of(clause)}",
        details=details,
        resolution="check suites and components of this OS in the matrix, and whether the mirror holds them "
        "whole",
    )


def _offer(index: PackageIndex, requirement: Requirement, chosen: dict[str, Package]) -> str:
    if (taken := chosen.get(requirement.name)) is not None:
        return f"{taken.name} is taken in version {taken.version} already"
    versions = [f"{package.version} ({package.suite})" for package in index.versions(requirement.name)]
    return f"{requirement.name}: {', '.join(versions) or 'in no suite'}"
