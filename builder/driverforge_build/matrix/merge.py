"""Merging of row trees: a site's rows onto the built-in ones, and a row onto the one that it is `like`.

One rule for both: mappings merge key by key; a list of rows (each with an `id`) merges row by row; everything
else, plain lists too, replaces what was there. A row with `remove: true` takes the row of that id away. Every
node keeps the place in the file that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from driverforge_build.matrix.yamltree import Listing, Node, Problem, Scalar, Table


def row_id(node: Node) -> str | None:
    """The `id` of a row, None where the node is no row."""
    if isinstance(node, Table):
        found = node.items.get("id")
        if isinstance(found, Scalar):
            return found.text
    return None


def is_rows(node: Node) -> bool:
    return (
        isinstance(node, Listing)
        and bool(node.items)
        and all(row_id(item) is not None for item in node.items)
    )


def merge(below: Node, above: Node, problems: list[Problem]) -> Node:
    """`above` laid over `below`."""
    if isinstance(below, Table) and isinstance(above, Table):
        items, keys = dict(below.items), dict(below.keys)
        for key, value in above.items.items():
            items[key] = (
                merge(items[key], value, problems) if key in items else without_removals(value, problems)
            )
            keys[key] = above.keys[key]
        return Table(items=items, keys=keys, mark=above.mark)
    # a row that lacks its id is told by validation; it does not turn the rows beside it into new ones
    if is_rows(below) and isinstance(above, Listing) and any(isinstance(item, Table) for item in above.items):
        assert isinstance(below, Listing)
        return merge_rows(below, above, problems)
    return without_removals(above, problems)


def merge_rows(below: Listing, above: Listing, problems: list[Problem]) -> Listing:
    """`above` laid over `below`, row by row; rows without an id, of either, stay each for itself."""
    rows: dict[str | int, Node] = {_row_key(item): item for item in below.items}
    for item in above.items:
        name = _row_key(item)
        if _removes(item, problems):
            if name not in rows:
                problems.append(_nothing_to_remove(item, map(row_id, below.items)))
            rows.pop(name, None)
        else:
            rows[name] = merge(rows[name], item, problems) if name in rows else _new_row(item, problems)
    return Listing(items=tuple(rows.values()), mark=above.mark)


def _row_key(item: Node) -> str | int:
    name = row_id(item)
    return id(item) if name is None else name


def _new_row(item: Node, problems: list[Problem]) -> Node:
    # a row that is `like` another may remove what it takes over; resolve_like merges it later
    return item if isinstance(item, Table) and "like" in item.items else without_removals(item, problems)


def without_removals(node: Node, problems: list[Problem]) -> Node:
    """A tree with no row below it to merge into: a `remove: true` in it has nothing to take away."""
    if isinstance(node, Listing):
        kept = []
        for item in node.items:
            if row_id(item) is not None and _removes(item, problems):
                problems.append(_nothing_to_remove(item, ()))
            else:
                kept.append(without_removals(item, problems))
        return Listing(items=tuple(kept), mark=node.mark)
    if isinstance(node, Table):
        items = {key: without_removals(value, problems) for key, value in node.items.items()}
        return Table(items=items, keys=node.keys, mark=node.mark)
    return node


def _nothing_to_remove(item: Node, known: Iterable[str | None]) -> Problem:
    name = row_id(item) or ""
    return Problem(
        mark=item.mark, text=f"`remove: true`, but there is no row {name!r} to remove{near(name, known)}"
    )


def _removes(node: Node, problems: list[Problem]) -> bool:
    if not isinstance(node, Table) or "remove" not in node.items:
        return False
    value = node.items["remove"]
    if isinstance(value, Scalar) and value.text == "true":
        problems += [
            Problem(
                mark=node.keys[key], text=f"{key!r} in a row that is removed; leave only `id` and `remove`"
            )
            for key in sorted(set(node.items) - {"id", "remove"})
        ]
        return True
    problems.append(
        Problem(mark=node.keys["remove"], text="`remove` knows only `true`; remove the key to keep the row")
    )
    return False


def near(text: str, names: Iterable[str | None]) -> str:
    """'; did you mean X?' where a name resembles the text, else the names if they are few."""
    known = [name for name in names if name is not None]
    close = get_close_matches(text, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= 24 else ""
