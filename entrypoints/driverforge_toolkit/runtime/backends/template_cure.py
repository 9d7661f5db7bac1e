"""A template of k3s or rke2 that leaves out the distribution's own configuration, and the way back.

NVIDIA's toolkit leaves such a one: it takes the template for containerd's own file, and writes its handlers
into it (gpu-operator#1371). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.backends.containerd_config import programs_of, runtimes_of
from driverforge_toolkit.runtime.backends.template_render import (
    TableText,
    calls_base,
    is_foreseen,
    is_own,
    lacking,
    rendered,
    tables_in,
)
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, dotted, leaves, lookup
from driverforge_toolkit.runtime.model import RuntimeDaemon
from driverforge_toolkit.runtime.nvidia_handlers import is_nvidia

BASE = '{{ template "base" . }}'
SHOWN = 6  # keys of a list
# what no pod needs to start
_OPTIONAL = ("debug", "metrics", "timeouts", "oom_score", "version", "imports")


def is_bare(text: str) -> bool:
    """Whether nothing of the distribution's own is in what comes of this template.

    A copy of its template has an expression of it, and a copy of its configuration has what every one has.
    """
    if calls_base(text) or not is_foreseen(text):
        return False
    try:
        return bool(lacking(parse((rendered(text, "", base="") or "").encode(), "")))
    except InputError:
        return True


def lost_keys(running: Mapping[str, object], then: Mapping[str, object]) -> tuple[KeyPath, ...]:
    """The keys of a root file that the next one has not, without NVIDIA's handlers."""
    ours = set(_nvidia_names(running))
    return tuple(
        path
        for path, _ in leaves(running)
        if path[0] not in _OPTIONAL and lookup(then, path) is REMOVED and ours.isdisjoint(path)
    )


def check_next_start(daemon: RuntimeDaemon, template: str, text: str, *, root: str, base: str) -> str | None:
    """The root file that the distribution makes of a template; None where that is not foreseen.

    `root` is today's. Raises InputError where the next one is not TOML, Unsupported where it lacks what every
    configuration of the distribution has, and today's has.
    """
    running = parse(root.encode(), daemon.config)
    # the next plan looks at today's root file: where that is not whole, it has to be made anew before
    unit = (daemon.supervisor.unit or daemon.supervisor.kind) if lacking(running) else ""
    advice = f"{command(template, text, unit)}; driverctl changed nothing"
    try:
        then = rendered(text, template, base=base)
    except InputError as error:
        raise InputError(error.brief, details=error.details, resolution=advice) from error
    if then is None or calls_base(text):
        return then
    next_one = parse(then.encode(), template)
    lost = lost_keys(running, next_one)
    if lost and (set(lacking(next_one)) - set(lacking(running))):
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        raise Unsupported(
            f"refused: {template} leaves out {daemon.supervisor.kind}'s own configuration, which would be "
            "lost at its next restart",
            details=[
                f"{template} has no {BASE}",
                f"lost: {', '.join(dotted(path) for path in lost[:SHOWN])}{more}",
            ],
            resolution=advice,
        )
    return then


def command(template: str, text: str, unit: str) -> str:
    """What brings the distribution's own configuration back, and keeps the rest of the template.

    NVIDIA's handlers go: `driverctl runtime apply` writes them beside the base. `unit` is restarted before,
    '' where that is not needed.
    """
    restart = f"systemctl restart {unit.removesuffix('.service')} && " if unit else ""
    back = f"{restart}driverctl runtime apply"
    if not any(_says_something(table) for table in _kept(text)):
        return f"mv {quote(template)} /root/ && {back}"
    edits = [] if calls_base(text) else [f"1i {BASE}"]
    edits += [f"{first},{last}d" if last > first else f"{first}d" for first, last in _gone(text)]
    words = " ".join(f"-e '{edit}'" for edit in edits)
    return f"sed -i.before {words} {quote(template)} && {back}"


def left_out(text: str) -> tuple[KeyPath, ...]:
    """The keys that go with `command` for the distribution's own; without NVIDIA's handlers."""
    kept = [table.path for table in _kept(text)]
    document = _document(text)
    ours = set(_nvidia_names(document))
    return tuple(
        path
        for path, value in leaves(document)
        if value != {}
        and path not in (("version",), ("imports",))
        and not any(path[: len(table)] == table for table in kept if table)
        and ours.isdisjoint(path)
    )


def _kept(text: str) -> list[TableText]:
    """The tables that can stand beside the base, which has its own."""
    ours = set(_nvidia_names(_document(text)))
    return [
        table
        for table in tables_in(text)
        if table.path and not is_own(table.path) and ours.isdisjoint(table.path)
    ]


def _gone(text: str) -> Iterator[tuple[int, int]]:
    """The lines that cannot stand beside the base, as (first, last)."""
    kept = _kept(text)
    for table in tables_in(text):
        if not table.path:
            lines = enumerate(table.text.splitlines(), table.start)
            yield from ((number, number) for number, line in lines if _states(line))
        elif table not in kept:
            yield table.start, table.end - 1


def _nvidia_names(document: Mapping[str, object]) -> Iterator[str]:
    try:
        programs = programs_of(runtimes_of(document), any_case=True)
    except InputError:
        return
    yield from (name for name, program in programs.items() if is_nvidia(name, program))


def _document(text: str) -> Mapping[str, object]:
    """What the template's own text says; {} where it cannot be read."""
    try:
        return parse((rendered(text, "", base="") or "").encode(), "")
    except InputError:
        return {}


def _says_something(table: TableText) -> bool:
    return any(_states(line) for line in table.text.splitlines()[1:])


def _states(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "{{"))
