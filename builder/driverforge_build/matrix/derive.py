"""A row that is `like` another takes over what it does not say itself.

It keeps what no two rows can share.

A newer release of a distribution (debian14 like debian13) has its suites under its own code name: what the
other calls trixie-updates is forky-updates here, in its list of repositories and wherever a kernel or a
driver names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driverforge_build.matrix.merge import merge, near, row_id, without_removals
from driverforge_build.matrix.yamltree import Listing, Mark, Node, Problem, Scalar, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """That a row takes over another's values: `base` is the other's id, `mark` the place of its `like`.

    `inherited` are the places in files that only the other has: what is wrong there with this row is told at
    `mark`.
    """

    base: str
    mark: Mark
    inherited: frozenset[Mark]


def resolve_like(rows: Listing, problems: list[Problem], derived: dict[str, Derived]) -> Listing:
    """Rows with `like: ID` take over what that row says; chains are followed, a circle is a problem.

    `derived` gets an entry for each row that takes over another's values, by its id.
    """
    known = {
        name: item for item in rows.items if isinstance(item, Table) and (name := row_id(item)) is not None
    }
    done: dict[str, Table] = {}

    def resolve(name: str, path: tuple[str, ...]) -> Table:
        if name in done:
            return done[name]
        row = known[name]
        parent = row.items.get("like")
        own = _without(row, "like")
        if parent is not None:
            base = _parent(row.keys["like"], parent, (*path, name))
            if base is None:
                merged = without_removals(own, problems)
            else:
                other = resolve(base, (*path, name))
                places = frozenset(_places(other)) - frozenset(_places(own))
                derived[name] = Derived(base=base, mark=row.keys["like"], inherited=places)
                merged = merge(_with_own_suites(other, own), own, problems)
            assert isinstance(merged, Table)
            own = merged
        done[name] = own
        return own

    def _parent(mark: Mark, parent: Node, path: tuple[str, ...]) -> str | None:
        if not isinstance(parent, Scalar) or parent.text not in known:
            said = parent.text if isinstance(parent, Scalar) else "..."
            problems.append(
                Problem(mark=mark, text=f"`like: {said}` names no row of this list{near(said, known)}")
            )
            return None
        if parent.text in path:
            circle = " -> ".join((*path[path.index(parent.text) :], parent.text))
            problems.append(
                Problem(
                    mark=mark, text=f"`like` runs in a circle ({circle}); let one of them say its own values"
                )
            )
            return None
        return parent.text

    items = []
    for item in rows.items:
        name = row_id(item)
        items.append(resolve(name, ()) if name in known and known[name] is item else item)
    return Listing(items=tuple(items), mark=rows.mark)


def _without(row: Table, key: str) -> Table:
    return Table(
        items={name: value for name, value in row.items.items() if name != key},
        keys={name: mark for name, mark in row.keys.items() if name != key},
        mark=row.mark,
    )


def _places(node: Node) -> Iterator[Mark]:
    yield node.mark
    if isinstance(node, Table):
        yield from node.keys.values()
    for child in (
        () if isinstance(node, Scalar) else node.items.values() if isinstance(node, Table) else node.items
    ):
        yield from _places(child)


def _with_own_suites(other: Table, own: Table) -> Table:
    """The other row with its suites under the code name that a row has of its own.

    A suite that the row itself names by the other's name keeps it: the row removes or changes that very one.
    """
    theirs, ours = _text(other, "codename"), _text(own, "codename")
    if not theirs or not ours or theirs == ours:
        return other
    touched = {row_id(item) for item in _items(own, "repositories")}
    names = {
        name: ours + name.removeprefix(theirs)
        for item in _items(other, "repositories")
        if (name := row_id(item) or "").partition("-")[0] == theirs and name not in touched
    }
    if not names:
        return other
    return Table(
        items={
            **other.items,
            "repositories": _renamed(other.items["repositories"], "id", names),
            **{
                key: _renamed(other.items[key], "repositories", names)
                for key in ("kernels", "drivers")
                if key in other.items
            },
        },
        keys=other.keys,
        mark=other.mark,
    )


def _renamed(rows: Node, key: str, names: Mapping[str, str]) -> Node:
    """Rows whose value of one key, a text or a list of texts, has other names."""
    if not isinstance(rows, Listing):
        return rows

    def named(node: Node) -> Node:
        if isinstance(node, Scalar):
            return Scalar(text=names.get(node.text, node.text), mark=node.mark, plain=node.plain)
        return (
            Listing(items=tuple(map(named, node.items)), mark=node.mark)
            if isinstance(node, Listing)
            else node
        )

    def changed(row: Node) -> Node:
        if not isinstance(row, Table) or key not in row.items:
            return row
        return Table(items={**row.items, key: named(row.items[key])}, keys=row.keys, mark=row.mark)

    return Listing(items=tuple(map(changed, rows.items)), mark=rows.mark)


def _text(row: Table, key: str) -> str:
    value = row.items.get(key)
    return value.text if isinstance(value, Scalar) else ""


def _items(row: Table, key: str) -> tuple[Node, ...]:
    value = row.items.get(key)
    return value.items if isinstance(value, Listing) else ()
