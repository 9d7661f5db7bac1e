"""Reading a matrix file: bytes to a checked `Matrix`, or one InputError with everything that is wrong.

text -> trees with line marks (`tree`) -> a site's rows over the built-in ones, `like` resolved (`merge`,
`derive`) -> rows (`validate`, pydantic) -> references between rows (`check`). A line that is no YAML is
dropped and the rest read on, so one run tells all; what the missing line would make wrong is then not told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_build import resources
from driverforge_build.matrix import check
from driverforge_build.matrix.branches import Branch, Exclusion, GpuArchitecture, NvSwitch, Probe
from driverforge_build.matrix.derive import Derived, resolve_like
from driverforge_build.matrix.globs import Predicate, glob_set, matching
from driverforge_build.matrix.merge import merge_rows, near, row_id
from driverforge_build.matrix.model import (
    MODELS,
    Keep,
    OsRow,
    Section,
    Toolkit,
)
from driverforge_build.matrix.validate import kind_of, validated
from driverforge_build.matrix.yamltree import Listing, Mark, Node, Problem, Scalar, Table, parse_tree
from driverforge_core.errors import InputError

BUILTIN = "builtin"
_TOP_KEYS = ("extends", "keep", *(section.value for section in Section))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A whole catalogue.

    `origins` maps 'systems/debian12' to the place that the row came from, 'matrix.yaml:42'.
    """

    path: Path
    rows: tuple[OsRow, ...]
    branches: tuple[Branch, ...]
    gpus: tuple[GpuArchitecture, ...]
    nvswitches: tuple[NvSwitch, ...]
    exclusions: tuple[Exclusion, ...]
    probes: tuple[Probe, ...]
    toolkits: tuple[Toolkit, ...]
    origins: Mapping[str, str]

    def row(self, os_key: str) -> OsRow | None:
        return next((row for row in self.rows if row.id == os_key), None)

    def branch(self, number: str | int) -> Branch:
        """The branch of a driver row; the loader has checked that it is there."""
        return next(branch for branch in self.branches if branch.id == str(number))

    def origin(self, section: str, name: str) -> str:
        """FILE:LINE of a row, '' where it is unknown; for a driver of an OS, `name` is 'debian12/535'."""
        return self.origins.get(f"{section}/{name}", "")


def load_matrix(path: Path | None = None) -> Matrix:
    """The matrix of a file, or the built-in one.

    Raises InputError: the file cannot be read, or `details` holds each problem as FILE:LINE: what, and what
    to write instead.
    """
    source = resources.builtin_matrix() if path is None else path
    try:
        data = source.read_bytes()
    except OSError as error:
        raise InputError(
            f"{source} cannot be read: {error.strerror}",
            resolution="name a matrix file that exists, or none for the shipped catalogue",
        ) from error
    return parse_matrix(data, name=str(source) if path else source.name, path=source)


def parse_matrix(data: bytes, *, name: str, path: Path | None = None) -> Matrix:
    """The matrix of a file's bytes; `name` stands in messages. Raises InputError."""
    problems: list[Problem] = []
    document, whole = _document(data, name, problems)
    sections = _sections(document, problems)
    derived: dict[str, Derived] = {}
    if document is not None and ("extends" in document.items or _lacks_extends(sections, problems)):
        sections = _extended(document, sections, problems, derived)
    resolved = _resolved(sections, problems, derived)
    kept = _kept(document, resolved, problems)
    parsed = {
        section: [
            validated(MODELS[section], item, item.mark, problems, complete=whole) for item in rows.items
        ]
        for section, rows in kept.items()
    }
    # `keep` may leave out drivers of a row that the file has: what is wrong in them is told all the same
    written = [item for item in resolved[Section.SYSTEMS].items if item.mark.file == name]
    for item in written:
        validated(OsRow, item, item.mark, problems, complete=whole)
    if whole:
        names = check.Names.of(resolved, derived)
        problems += check.unknown_branches(
            (*kept[Section.SYSTEMS].items, *map(_written_drivers, written)), names.branches
        )
        problems += check.references(parsed, kept, names)
    if problems:
        raise _input_error(name, problems)
    return _matrix(path or Path(name), parsed, kept)


def _written_drivers(row: Node) -> Node:
    """A row with those drivers only that the same file has."""
    return _with_drivers(row, lambda driver: driver.mark.file == row.mark.file)


def _resolved(
    sections: dict[Section, Listing], problems: list[Problem], derived: dict[str, Derived]
) -> dict[Section, Listing]:
    """The sections with every `like` resolved; `derived` gets those of the operating systems."""
    return {
        section: resolve_like(rows, problems, derived if section is Section.SYSTEMS else {})
        for section, rows in sections.items()
    }


def _document(data: bytes, name: str, problems: list[Problem]) -> tuple[Table | None, bool]:
    """The mapping at the top of a file, and whether all of its lines could be read."""
    document = parse_tree(data, name)
    problems += document.problems
    root, start = document.root, Mark(file=name, line=1)
    if root is None or (isinstance(root, Scalar) and not root.text):
        if not document.problems:
            problems.append(
                Problem(
                    mark=start,
                    text="the file is empty; write `extends: builtin` to start from the shipped catalogue",
                )
            )
        return None, False
    if not isinstance(root, Table):
        problems.append(
            Problem(
                mark=root.mark, text=f"{kind_of(root)} at the top; write KEY: lines ({', '.join(_TOP_KEYS)})"
            )
        )
        return None, False
    for key, mark in root.keys.items():
        if key not in _TOP_KEYS:
            problems.append(Problem(mark=mark, text=f"unknown key {key!r}{near(key, _TOP_KEYS)}"))
    return root, document.whole


def _sections(document: Table | None, problems: list[Problem]) -> dict[Section, Listing]:
    nowhere = Listing(items=(), mark=document.mark if document else Mark(file="", line=1))
    found: dict[Section, Listing] = dict.fromkeys(Section, nowhere)
    for section in Section:
        node = document.items.get(section.value) if document else None
        if isinstance(node, Listing):
            check.duplicate_ids(node, problems)
            found[section] = node
        elif node is not None and document is not None:
            mark = document.keys[section.value]
            problems.append(
                Problem(mark=mark, text=f"`{section.value}` is {kind_of(node)}; write a list of `- id:` rows")
            )
    return found


def _lacks_extends(own: dict[Section, Listing], problems: list[Problem]) -> bool:
    """Whether rows are `like` shipped ones that the file does not extend: it is read on as if it did."""
    likes = [
        (section, like.text, item.keys["like"])
        for section, rows in own.items()
        for item in rows.items
        if isinstance(item, Table) and isinstance(like := item.items.get("like"), Scalar)
        if like.text not in map(row_id, rows.items)
    ]
    if not likes:
        return False
    shipped = resources.builtin_matrix()
    base = _sections(_document(shipped.read_bytes(), shipped.name, [])[0], [])
    found = [(text, mark) for section, text, mark in likes if text in map(row_id, base[section].items)]
    problems += [
        Problem(
            mark=mark,
            text=f"`like: {text}` is a row of the shipped catalogue; write `extends: {BUILTIN}` at the top",
        )
        for text, mark in found
    ]
    return bool(found)


def _extended(
    document: Table, own: dict[Section, Listing], problems: list[Problem], derived: dict[str, Derived]
) -> dict[Section, Listing]:
    """The built-in rows, their `like` resolved, with the site's rows laid over them.

    A site's change to a row changes that row only.
    """
    extends = document.items.get("extends")
    if extends is not None and (not isinstance(extends, Scalar) or extends.text != BUILTIN):
        said = extends.text if isinstance(extends, Scalar) else kind_of(extends)
        problems.append(
            Problem(
                mark=document.keys["extends"], text=f"`extends: {said}`; only `{BUILTIN}` can be extended"
            )
        )
    shipped = resources.builtin_matrix()
    below: list[Problem] = []
    base, _ = _document(shipped.read_bytes(), shipped.name, below)
    rows = _resolved(_sections(base, below), below, derived)
    merged = {section: merge_rows(listing, own[section], problems) for section, listing in rows.items()}
    problems += below
    return merged


def _kept(
    document: Table | None, sections: dict[Section, Listing], problems: list[Problem]
) -> dict[Section, Listing]:
    """The sections without the rows that `keep` leaves out; a row that the file itself has always stays."""
    node = document.items.get("keep") if document else None
    if node is None or document is None:
        return sections
    keep = validated(Keep, node, document.keys["keep"], problems, complete=True)
    if not isinstance(keep, Keep):
        return sections
    own = document.items.get("systems")
    named = {row_id(item) for item in own.items} if isinstance(own, Listing) else set()
    found = check.Names.of(sections, {})
    assert isinstance(node, Table)
    for key, globs, known in (
        ("systems", keep.systems, found.systems),
        ("branches", keep.branches, found.branches),
    ):
        problems += [
            Problem(mark=node.keys[key], text=f"{glob!r} matches none of the {key}{near(glob, known)}")
            for glob in globs
            if key in node.keys and not matching((glob,), known)
        ]
    wanted, branches = glob_set(keep.systems), glob_set(keep.branches)
    systems = sections[Section.SYSTEMS]
    left = []
    for item in systems.items:
        name = row_id(item)
        row = _with_drivers(item, lambda driver: _is_kept(driver, branches))
        if name is not None and name not in named and not (wanted(name) and _has_drivers(row)):
            continue
        if _has_drivers(item) and not _has_drivers(row):
            away = f"take the OS away too: `- {{id: {name}, remove: true}}` in `systems`"
            text = f"`keep` leaves systems {name} no driver; add a branch of it to `branches`, or {away}"
            problems.append(Problem(mark=node.keys.get("branches", node.mark), text=text))
            row = item
        left.append(row)
    return {**sections, Section.SYSTEMS: Listing(items=tuple(left), mark=systems.mark)}


def _with_drivers(row: Node, wanted: Callable[[Node], bool]) -> Node:
    drivers = row.items.get("drivers") if isinstance(row, Table) else None
    if not isinstance(row, Table) or not isinstance(drivers, Listing):
        return row
    kept = tuple(item for item in drivers.items if wanted(item))
    return Table(
        items={**row.items, "drivers": Listing(items=kept, mark=drivers.mark)}, keys=row.keys, mark=row.mark
    )


def _is_kept(driver: Node, wanted: Predicate) -> bool:
    """Whether `keep` keeps a driver; one without a branch stays, to be told."""
    branch = _text(driver.items.get("branch")) if isinstance(driver, Table) else ""
    return not branch or wanted(branch)


def _has_drivers(row: Node) -> bool:
    drivers = row.items.get("drivers") if isinstance(row, Table) else None
    return not isinstance(drivers, Listing) or bool(drivers.items)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""


def _input_error(name: str, problems: Sequence[Problem]) -> InputError:
    lines = [
        str(problem)
        for problem in sorted(
            set(problems), key=lambda problem: (problem.mark.file, problem.mark.line, problem.text)
        )
    ]
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return InputError(
        f"{name} has {count}",
        details=lines,
        resolution="correct the lines above; `driverforge matrix validate FILE` checks again",
    )


def _matrix(path: Path, parsed: check.Parsed, nodes: dict[Section, Listing]) -> Matrix:
    def of(section: Section, kind: type[check.RowT]) -> tuple[check.RowT, ...]:
        return tuple(row for row in parsed[section] if isinstance(row, kind))

    origins = {
        f"{section.value}/{row_id(item)}": str(item.mark)
        for section, rows in nodes.items()
        for item in rows.items
    }
    for system in nodes[Section.SYSTEMS].items:
        drivers = system.items.get("drivers") if isinstance(system, Table) else None
        if isinstance(drivers, Listing):
            origins |= {f"systems/{row_id(system)}/{row_id(item)}": str(item.mark) for item in drivers.items}
    return Matrix(
        path=path,
        rows=of(Section.SYSTEMS, OsRow),
        branches=of(Section.BRANCHES, Branch),
        gpus=of(Section.GPUS, GpuArchitecture),
        nvswitches=of(Section.NVSWITCHES, NvSwitch),
        exclusions=of(Section.EXCLUSIONS, Exclusion),
        probes=of(Section.PROBES, Probe),
        toolkits=of(Section.TOOLKITS, Toolkit),
        origins=origins,
    )
