"""The life of `driverforge build`: prepared contexts to folders, and these to images through an engine."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.app.prepare import Prepared
from driverforge_build.app.runner import CellListener, CellReport, HowToRun, Pushing, build_all, confirm_all
from driverforge_build.ports import BuildJob, Engine
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import LayerCache, local_reference, target_name, write_all
from driverforge_build.render.context import BuildContext
from driverforge_core.errors import TemporaryFailure

Display = Callable[[list[str]], AbstractContextManager[CellListener]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """How images are built. `folder` keeps contexts and logs; `ca` serves downloads only.

    `retries`: further attempts for a cell that failed for a passing reason. `cache_from`, `cache_to`: as
    LayerCache has them.
    """

    folder: Path
    vcs_ref: str = ""
    workers: int = 2
    keep_going: bool = False
    ca: Path | None = None
    network: str = ""
    no_cache: bool = False
    retries: int = 2
    cache_from: tuple[str, ...] = ()
    cache_to: str = ""


def jobs(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    *,
    bake_file: Path,
    secrets: Path,
) -> list[BuildJob]:
    """One job a context.

    Mirror files are written below `secrets`, readable for us alone: an address may hold a password.
    """
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
    """The secret `mirror` of an OS: a line "ADDRESS SUITE" for each of its mirrors.

    `mirrors` has keys like 'debian12', which stands for all suites, and 'debian12/bookworm-security'.
    """
    named = [(key.partition("/"), address) for key, address in mirrors.items()]
    return [f"{address} {suite or '*'}" for (key, _, suite), address in named if key == os_key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a run did. `engine` is '' where none was needed."""

    contexts: tuple[BuildContext, ...] = ()
    reports: tuple[CellReport, ...] = ()
    engine: str = ""


def run(
    prepared: Prepared,
    request: BuildRequest,
    engine: Engine,
    display: Display,
    *,
    publisher: Publisher | None = None,
) -> Built:
    """Everything that is to be done for a plan. With a publisher an image's life ends in the registry: then
    those that are there already have their aliases looked after too.
    """
    reports: tuple[CellReport, ...] = ()
    if publisher:
        reports = confirm_all(prepared.existing(), publisher, retries=request.retries)
    contexts = prepared.contexts()
    if not contexts:
        return Built(reports=reports)
    named = engine.check()
    reports += build(request, contexts, prepared.mirrors, engine, display, publisher=publisher)
    return Built(contexts=contexts, reports=reports, engine=named)


def build(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    engine: Engine,
    display: Display,
    *,
    publisher: Publisher | None = None,
) -> tuple[CellReport, ...]:
    """Write the contexts and build them; with a publisher, push each image as soon as it stands.

    Raises TemporaryFailure when another build works in the same folder.
    """
    output = request.folder / "generated"
    with _alone(output), TemporaryDirectory(prefix="driverforge-") as secrets:
        network = request.network or engine.network()
        cache = LayerCache(read=request.cache_from, written=request.cache_to)
        bake_file = write_all(contexts, output, vcs_ref=request.vcs_ref, network=network, cache=cache)
        work = jobs(
            replace(request, network=network),
            contexts,
            mirrors,
            bake_file=bake_file,
            secrets=Path(secrets),
        )
        by_cell = {context.image.id: context for context in contexts}
        how = HowToRun(
            workers=request.workers,
            keep_going=request.keep_going,
            retries=request.retries,
            pushing=Pushing(publisher=publisher, contexts=by_cell) if publisher else None,
        )
        with display([job.cell for job in work]) as told:
            return build_all(engine, work, how, told)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TemporaryFailure(
                f"another `driverforge build` is working in {folder}",
                resolution="wait for it, or give this one its own --cache-dir",
            ) from None
        yield
