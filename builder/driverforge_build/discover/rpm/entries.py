"""Packages of primary.xml as the index has them, in rpm's order of versions.

Their rich dependencies are those of rpm's manual `boolean_dependencies`:

and, with         all of them
or                alternatives
A if B [else C]   A where B is installed too, else C
unless, without   leave something out, which nothing here is made to bring
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from driverforge_build.discover.offered import (
    AUTOMATIC,
    Clause,
    Condition,
    Package,
    PackageIndex,
    Requirement,
)
from driverforge_build.discover.rpm.primary import Record
from driverforge_core import rpmversion
from driverforge_core.errors import InputError

_TOKEN = re.compile(r"\s*([()]|(?:[^\s()]|\([^\s()]*\))+)")
_OPERATORS = ("and", "or", "if", "else", "unless", "with", "without")
_RELATIONS = {"=": "=", "<": "<<", "<=": "<=", ">=": ">=", ">": ">>"}


def parse_rich(text: str) -> tuple[tuple[Clause, ...], tuple[Condition, ...]]:
    """What a rich dependency asks for, and what it asks for under a condition."""
    tokens = _TOKEN.findall(text)
    try:
        node, rest = _expression(tokens)
    except (IndexError, RecursionError) as error:
        raise InputError(
            f"{text[:200]!r} is not a dependency", resolution="use another mirror of this repository"
        ) from error
    if rest:
        raise InputError(f"{text[:200]!r} is not a dependency", resolution="use another mirror")
    clauses, conditions = _meaning(node)
    return tuple(clauses), tuple(conditions)


# a requirement, or an operator with its two or three operands
_Node = Requirement | tuple[str, list["_Node"]]


def _expression(tokens: list[str]) -> tuple[_Node, list[str]]:
    if tokens[0] != "(":
        name, rest = tokens[0], tokens[1:]
        if rest and rest[0] in _RELATIONS:
            return Requirement(name=name, relation=_RELATIONS[rest[0]], version=rest[1]), rest[2:]
        return Requirement(name=name), rest
    node, rest = _expression(tokens[1:])
    operator, operands = "and", [node]
    while rest[0] in _OPERATORS:
        if rest[0] != "else":
            operator = rest[0]
        node, rest = _expression(rest[1:])
        operands.append(node)
    if rest[0] != ")":
        raise IndexError
    return (operator, operands), rest[1:]


def _meaning(node: _Node) -> tuple[list[Clause], list[Condition]]:
    if isinstance(node, Requirement):
        return [(node,)], []
    operator, operands = node
    if operator == "or":
        return [tuple(one for operand in operands for one in _alternatives(operand))], []
    if operator in ("if", "unless", "without"):
        wanted, condition, *otherwise = operands
        if operator != "if":
            return _meaning(wanted)
        then = tuple(_meaning(wanted)[0])
        other = tuple(clause for operand in otherwise for clause in _meaning(operand)[0])
        return [], [Condition(when=tuple(_alternatives(condition)), then=then, otherwise=other)]
    found = [_meaning(operand) for operand in operands]
    return [one for clauses, _ in found for one in clauses], [one for _, more in found for one in more]


def _alternatives(node: _Node) -> list[Requirement]:
    """Whatever of an operand may be had; of several that are wanted together the first one stands for all."""
    if isinstance(node, Requirement):
        return [node]
    operator, operands = node
    wanted = operands if operator == "or" else operands[:1]
    return [one for operand in wanted for one in _alternatives(operand)]


_version_key = lru_cache(maxsize=65536)(rpmversion.key)
# Base images have these small variants, beside which what they stand for cannot be installed.
_SMALL = ("coreutils-single", "curl-minimal", "libcurl-minimal", "glibc-minimal-langpack", "gnupg2-minimal")


class RpmOrder:
    """rpm-version(7). What says no release is not compared by its release."""

    def key(self, version: str) -> Any:
        return _version_key(version)

    def compare(self, offered: str, wanted: str) -> int:
        if "-" not in wanted or "-" not in offered:
            offered, wanted = offered.partition("-")[0], wanted.partition("-")[0]
        return rpmversion.compare(offered, wanted)


def new_index() -> PackageIndex:
    return PackageIndex(RpmOrder())


def add_records(
    index: PackageIndex,
    records: Iterable[Record],
    *,
    repository: str,
    hidden: frozenset[str] = frozenset(),
    preference: int = AUTOMATIC,
) -> None:
    """Take in a repository's packages but the `hidden` ones, 'name-[epoch:]version-release.arch'."""
    for record in records:
        if f"{record.name}-{record.version}.{record.arch}" in hidden:
            continue
        names = {offer.name for offer in record.provides} - {record.name}
        index.add(record.name, partial(_package, record, repository, preference), (*names, *record.files))


def _package(record: Record, repository: str, preference: int) -> Package:
    rich = [parse_rich(text) for text in record.rich]
    # a package may need what it provides itself, and its own configuration files
    own = {offer.name for offer in record.provides}
    needed = [one for one in dict.fromkeys(record.requires) if one.name not in own]
    return Package(
        name=record.name,
        version=record.version,
        arch=record.arch,
        source=record.source,
        priority=0 if record.name in _SMALL else 3,
        essential=False,
        depends=(*((one,) for one in needed), *(clause for clauses, _ in rich for clause in clauses)),
        provides=(*record.provides, *(Requirement(name=path) for path in record.files)),
        path=record.path,
        sum=record.sum,
        size=record.size,
        suite=repository,
        preference=preference,
        conditions=tuple(one for _, conditions in rich for one in conditions),
        installed=record.installed,
    )
