"""plan → generate → build: what `driverforge build` does, as a function of a request and an engine."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build import knowledge
from driverforge_build.advice import Given
from driverforge_build.engine.ports import BuildJob, Engine
from driverforge_build.engine.runner import CellReport, Told, build_all
from driverforge_build.matrix import Cell, OsRow
from driverforge_build.plan import Plan
from driverforge_build.render.bake import local_reference, target_name
from driverforge_build.render.context import Context
from driverforge_build.render.generate import contexts_of, toolkit_contexts, write_all
from driverforge_build.render.toolkit import split, toolkit_cells
from driverforge_build.select import check_named
from driverforge_build.verdict import State
from driverforge_core.errors import TemporaryFailure, UsageError

Display = Callable[[list[str]], AbstractContextManager[Told]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What a user asks to be built, and how. `folder` keeps contexts and logs; `ca` and `mirrors` serve downloads only."""

    matrix: Path | None
    lock: Path
    folder: Path
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    bases: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(
        default_factory=dict
    )  # architecture -> folder with NVIDIA's files for a toolkit image
    mirrors: Mapping[str, str] = field(default_factory=dict)
    registry: str | None = None
    vcs_ref: str = ""
    workers: int = 2
    keep_going: bool = False
    ca: Path | None = None
    network: str = ""
    no_cache: bool = False

    @property
    def given(self) -> Given:
        return Given(matrix=self.matrix, lock=self.lock, bases=self.bases, artifacts=self.artifacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be done: the plan of all selected cells, the contexts of what is to be built, and whose mirrors serve them.

    A toolkit image has no verdict: it is a context without a row in the plan.
    """

    plan: Plan
    contexts: tuple[Context, ...]
    mirrors: Mapping[str, str]


def prepare(request: BuildRequest) -> Prepared:
    """Plan and render, writing nothing. Raises UsageError, InputError."""
    known = knowledge.read(
        request.matrix,
        request.lock,
        bases=request.bases,
        registry=request.registry,
        select=request.select,
        skip=request.skip,
    )
    toolkits, drivers = split(request.select)
    cells = () if toolkits and not drivers else known.cells(drivers, request.skip)
    wanted = toolkit_cells(known.matrix, select=toolkits, skip=request.skip)
    oses = {cell.os.id for cell in cells} | {cell.row.system for cell in wanted}
    check_named("--base", request.bases, oses)
    check_named("--mirror", request.mirrors, oses)
    given = request.given
    plan = known.plan(cells)
    due = plan.to_build()
    check_mirrors(request.mirrors, due)
    return Prepared(
        plan=plan,
        contexts=(
            *contexts_of(due, known.lock, given=given),
            *toolkit_contexts(wanted, known.matrix, known.lock, given=given),
        ),
        mirrors={**row_mirrors(row for row in known.matrix.rows if row.id in oses), **request.mirrors},
    )


def row_mirrors(rows: Iterable[OsRow]) -> dict[str, str]:
    """The mirrors that the matrix names, for the OSes whose builds can use one."""
    return {row.id: row.mirror for row in rows if row.mirror and row.package_manager == "apt"}


def check_mirrors(mirrors: Mapping[str, str], cells: tuple[Cell, ...]) -> None:
    """Raises UsageError for a mirror that a build could not use: dnf's and zypper's repositories are the base image's own."""
    for cell in cells:
        if cell.os.package_manager != "apt" and any(key.partition("/")[0] == cell.os.id for key in mirrors):
            raise UsageError(
                f"--mirror works for apt; {cell.os.id} has {cell.os.package_manager}",
                resolution=f"give a base image whose repositories are your site's: --base {cell.os.id}=REF",
            )


def jobs(
    request: BuildRequest,
    contexts: tuple[Context, ...],
    mirrors: Mapping[str, str],
    *,
    bake_file: Path,
    secrets: Path,
) -> list[BuildJob]:
    """One job a context. Mirror files are written below `secrets`, readable for us alone: an address may hold a password."""
    return [
        BuildJob(
            cell=context.image.id,
            group=context.image.shared_id,
            target=target_name(context.image.id),
            bake_file=bake_file,
            reference=local_reference(context),
            log=request.folder / "logs" / f"{context.image.id}.log",
            secrets=_secrets(request.ca, mirror_lines(mirrors, context.image.os), secrets / context.image.os),
            network=request.network,
            no_cache=request.no_cache,
        )
        for context in contexts
    ]


def _secrets(ca: Path | None, mirrors: list[str], file: Path) -> dict[str, Path]:
    found = {"ca": ca} if ca else {}
    if mirrors:
        file.touch(mode=0o600)
        file.write_text("".join(f"{line}\n" for line in mirrors), encoding="utf-8")
        found["mirror"] = file
    return found


def mirror_lines(mirrors: Mapping[str, str], os_key: str) -> list[str]:
    """The secret `mirror` of an OS, one "ADDRESS SUITE" a line: from 'debian12' (all suites) and 'debian12/bookworm-security'."""
    named = [(key.partition("/"), address) for key, address in mirrors.items()]
    return [f"{address} {suite or '*'}" for (key, _, suite), address in named if key == os_key]


def build(
    request: BuildRequest, prepared: Prepared, engine: Engine, display: Display
) -> tuple[CellReport, ...]:
    """Write the contexts and build them. Raises TemporaryFailure when another build works in the same folder."""
    output, contexts = request.folder / "generated", prepared.contexts
    with _alone(output), TemporaryDirectory(prefix="driverforge-") as secrets:
        network = request.network or engine.network()
        bake_file = write_all(contexts, output, vcs_ref=request.vcs_ref, network=network)
        work = jobs(
            replace(request, network=network),
            contexts,
            prepared.mirrors,
            bake_file=bake_file,
            secrets=Path(secrets),
        )
        with display([job.cell for job in work]) as told:
            return build_all(engine, work, workers=request.workers, keep_going=request.keep_going, told=told)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TemporaryFailure(
                f"another `driverforge build` works in {folder}",
                resolution="wait for it, or give this one its own --cache-dir",
            ) from None
        yield


def exit_status(plan: Plan, reports: tuple[CellReport, ...], select: tuple[str, ...]) -> int:
    """0, 75 where the registry did not answer, 1 where a build failed or a cell that was named in full is not to be had."""
    named = {row.key: row.verdict.state for row in plan.rows if row.key in select}
    if any(report.error or report.image is None for report in reports):
        return 1
    if plan.degraded:
        return 75
    return int(any(state in {State.BLOCKED, State.UNKNOWN} for state in named.values()))
