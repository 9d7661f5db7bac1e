"""The life of `driverforge build`: prepared contexts to folders, and these to images through an engine."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.app.runner import CellListener, CellReport, Finish, build_all, in_store
from driverforge_build.ports import BuildJob, BuiltImage, Engine
from driverforge_build.publish.upload import immutable_reference, stand_for
from driverforge_build.render.bake import local_reference, target_name, write_all
from driverforge_build.render.context import BuildContext
from driverforge_core.errors import TemporaryFailure
from driverforge_oci.client import RegistryClient

Display = Callable[[list[str]], AbstractContextManager[CellListener]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """How images are built. `folder` keeps contexts and logs; `ca` serves downloads only.

    `workers` is for each engine.
    """

    folder: Path
    vcs_ref: str = ""
    workers: int = 2
    keep_going: bool = False
    ca: Path | None = None
    network: str = ""
    no_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """Where builders send what they build."""

    registry: str
    client: RegistryClient


def jobs(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    *,
    bake_file: Path,
    secrets: Path,
    registry: str = "",
) -> list[BuildJob]:
    """One job a context; with a registry the builder pushes it.

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
            remote=str(immutable_reference(context, registry)) if registry else "",
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


def build(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    engines: Sequence[Engine],
    display: Display,
    *,
    push: PushTarget | None = None,
) -> tuple[CellReport, ...]:
    """Write the contexts and build them, on several engines side by side.

    With `push` each image goes from its builder to the registry, and the moving tag then stands for it.
    Raises TemporaryFailure when another build works in the same folder.
    """
    output = request.folder / "generated"
    with _alone(output), TemporaryDirectory(prefix="driverforge-") as secrets:
        network = request.network or engines[0].network()
        bake_file = write_all(contexts, output, vcs_ref=request.vcs_ref, network=network)
        work = jobs(
            replace(request, network=network),
            contexts,
            mirrors,
            bake_file=bake_file,
            secrets=Path(secrets),
            registry=push.registry if push else "",
        )
        with display([job.cell for job in work]) as told:
            return build_all(
                engines,
                work,
                workers=request.workers,
                keep_going=request.keep_going,
                told=told,
                finish=_to_registry(contexts, push) if push else in_store,
            )


def _to_registry(contexts: Iterable[BuildContext], push: PushTarget) -> Finish:
    """What is done after a builder has pushed an image: one at a time, for images share a moving tag."""
    by_cell = {context.image.id: context for context in contexts}
    alone = threading.Lock()

    def finish(_: Engine, job: BuildJob) -> BuiltImage:
        with alone:
            return stand_for(by_cell[job.cell], push.registry, push.client)

    return finish


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
