"""The life of `driverforge build`: prepared contexts to folders, and these to images through an engine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from driverforge_build.advice import BuildOptions
from driverforge_build.app.prepare import Prepared
from driverforge_build.app.runner import CellListener, CellReport, HowToRun, Pushing, build_all, confirm_all
from driverforge_build.app.signing import Signing, unsigned, write_sums
from driverforge_build.discover.subscription import Subscription, secrets_of
from driverforge_build.ports import BuildJob, Engine, StepListener
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import LayerCache, local_reference, target_name, write_all
from driverforge_build.render.context import BuildContext
from driverforge_build.render.spec import ImageSpec
from driverforge_build.verdict.remarks import FROM_SUBSCRIPTION
from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure, UsageError

COMPILE_CACHE = "COMPILE_CACHE"
"""The build argument that names the mount of earlier compilations. A name of one run is one that nobody who
shares the builder could have written to.
"""

Display = Callable[[list[str]], AbstractContextManager[CellListener]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """How images are built. `folder` keeps contexts and logs.

    `signing` is None where no modules are signed. With `unsigned_to` no image is made: that folder gets bare
    modules, for others to sign. `subscriptions`: what is open of an OS and architecture, such as
    'rhel9-amd64'.
    """

    folder: Path
    options: BuildOptions = field(default_factory=BuildOptions)
    signing: Signing | None = None
    unsigned_to: Path | None = None
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)


def jobs(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    *,
    bake_file: Path,
    secrets: Path,
    network: str = "",
    to: Publisher | None = None,
) -> list[BuildJob]:
    """One job a context; the builder pushes it where `to` is given.

    NVIDIA's archives that are on disk are held below the request's folder. Mirror files are written below
    `secrets`, readable for us alone: an address may hold a password.
    """
    options = request.options
    arguments = {COMPILE_CACHE: f"driverforge-compile-{token_hex(16)}"} if options.no_compile_cache else {}
    local = archive_folders(options.archives, contexts, request.folder / "archives")
    return [
        BuildJob(
            cell=context.image.id,
            group=context.image.shared_id,
            target=target_name(context.image.id),
            bake_file=bake_file,
            reference=local_reference(context),
            log=request.folder / "logs" / f"{context.image.id}.log",
            secrets=_secrets(request, context, mirrors, secrets),
            contexts={PAYLOAD: local[context.image.id]} if context.image.id in local else {},
            arguments=arguments,
            network=network,
            no_cache=options.no_cache,
            remote=str(to.member(context).reference) if to else "",
        )
        for context in contexts
    ]


def _secrets(
    request: BuildRequest, context: BuildContext, mirrors: Mapping[str, str], folder: Path
) -> dict[str, Path]:
    image, ca = context.image, request.options.ca
    target = f"{image.os}-{image.arch}"
    found = {"ca": ca} if ca else {}
    if lines := mirror_lines(mirrors, image.os, image.arch):
        file = folder / target
        file.touch(mode=0o600)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        found["mirror"] = file
    opened = request.subscriptions.get(target)
    if opened and image.entitled_lists:
        found |= secrets_of(opened, folder / f"{target}-subscription", ca)
    return found


def closed_repositories(
    contexts: Iterable[BuildContext], subscriptions: Mapping[str, Subscription]
) -> dict[str, tuple[str, ...]]:
    """The repositories of a subscription that builds download from and nothing given opens, by OS and
    architecture. A base image may be let in there.
    """
    found: dict[str, set[str]] = {}
    for image in (context.image for context in contexts):
        target = f"{image.os}-{image.arch}"
        opened = subscriptions[target].ids if target in subscriptions else frozenset()
        wanted = {name for ids in image.entitled_lists.values() for name in ids}
        if shut := wanted - opened:
            found.setdefault(target, set()).update(shut)
    return {target: tuple(sorted(shut)) for target, shut in sorted(found.items())}


def mirror_lines(mirrors: Mapping[str, str], os_key: str, arch: str) -> list[str]:
    """The secret `mirror` of an image: a line "ADDRESS SUITE" for each mirror of its OS.

    `mirrors` has keys like 'debian12', which stands for all suites, 'debian12/bookworm-security', and
    'ubuntu24.04-arm64'. What is for the architecture comes first, which is the one that counts.
    """
    named = [(key.partition("/"), address) for key, address in mirrors.items()]
    return [
        f"{address} {suite or '*'}"
        for own in (f"{os_key}-{arch}", os_key)
        for (key, _, suite), address in named
        if key == own
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a run did. `engine` is '' where none was needed."""

    contexts: tuple[BuildContext, ...] = ()
    reports: tuple[CellReport, ...] = ()
    engine: str = ""


def run(
    prepared: Prepared,
    request: BuildRequest,
    engines: Sequence[Engine],
    display: Display,
    *,
    publisher: Publisher | None = None,
    by_builders: bool = False,
    tell: StepListener = lambda _: None,
) -> Built:
    """Everything that is to be done for a plan. With a publisher an image's life ends in the registry: then
    those that are there already have their aliases looked after too. `tell` hears what is missing.
    """
    reports: tuple[CellReport, ...] = ()
    if publisher:
        reports = confirm_all(prepared.existing(), publisher, retries=request.options.retries)
    contexts = prepared.contexts()
    if request.unsigned_to:
        contexts = _with_modules_to_sign(contexts)
    elif not request.signing and engines[0].makes_images:
        _check_unsigned(contexts)
    if not contexts:
        return Built(reports=reports)
    named = "; ".join(engine.check() for engine in engines)
    for target, shut in closed_repositories(contexts, request.subscriptions).items():
        tell(f"{target}: {FROM_SUBSCRIPTION.format(' and '.join(shut), target.rpartition('-')[0])}")
    reports += build(
        request,
        contexts,
        prepared.mirrors,
        engines,
        display,
        publisher=publisher,
        by_builders=by_builders,
    )
    if request.unsigned_to:
        write_sums(request.unsigned_to)
    return Built(contexts=contexts, reports=reports, engine=named)


def _with_modules_to_sign(contexts: tuple[BuildContext, ...]) -> tuple[BuildContext, ...]:
    found = tuple(context for context in contexts if context.signed)
    if contexts and not found:
        raise UsageError(
            "none of these images has modules that are signed here",
            details=[f"{context.image.id} would be built" for context in contexts[:5]],
            resolution="select cells with a kernel; a JIT image has no modules, and a distribution's "
            "finished ones have its own signature",
        )
    return found


def _check_unsigned(contexts: Sequence[BuildContext]) -> None:
    waiting = [context.image.id for context in contexts if context.signed]
    if waiting:
        raise UsageError(
            "there is a certificate, and nothing that signs",
            details=[f"{cell} has modules to sign" for cell in waiting[:5]],
            resolution="give --sign-key, --sign-command or --signatures; --unsigned-to DIR writes the "
            "modules for somebody else to sign",
        )


def build(
    request: BuildRequest,
    contexts: tuple[BuildContext, ...],
    mirrors: Mapping[str, str],
    engines: Sequence[Engine],
    display: Display,
    *,
    publisher: Publisher | None = None,
    by_builders: bool = False,
) -> tuple[CellReport, ...]:
    """Write the contexts and build them, on several engines side by side.

    With a publisher each image is pushed as soon as it stands, or goes to the registry `by_builders`.
    Raises TemporaryFailure when another build works in the same folder.
    """
    options, output = request.options, request.folder / "generated"
    with _alone(output), TemporaryDirectory(prefix="driverforge-") as secrets:
        network = options.network or engines[0].network()
        cache = LayerCache(read=options.cache_from, written=options.cache_to)
        bake_file = write_all(
            contexts, output, vcs_ref=options.vcs_ref, network=network, mirrors=mirrors, cache=cache
        )
        work = jobs(
            request,
            contexts,
            mirrors,
            bake_file=bake_file,
            secrets=Path(secrets),
            network=network,
            to=publisher if by_builders else None,
        )
        signed = {context.image.id for context in contexts if context.signed}
        if request.unsigned_to:
            work = [unsigned(job, _emptied(request.unsigned_to / job.cell)) for job in work]
        by_cell = {context.image.id: context for context in contexts}
        how = HowToRun(
            workers=options.workers,
            keep_going=options.keep_going,
            retries=options.retries,
            pushing=Pushing(publisher=publisher, contexts=by_cell) if publisher else None,
            prepare=partial(_signed, request.signing, signed),
        )
        with display([job.cell for job in work]) as told:
            return build_all(engines, work, how, told)


def _signed(
    signing: Signing | None, cells: Collection[str], engine: Engine, job: BuildJob, progress: StepListener
) -> BuildJob:
    return signing.signed(engine, job, progress) if signing and job.cell in cells else job


def _emptied(folder: Path) -> Path:
    """What an earlier run left would be signed too."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


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


PAYLOAD = "payload"
"""The stage of the Dockerfile that has the archive, as a file of the name below."""
_FILE = "driver"


def archive_folders(
    files: Iterable[Path], contexts: Sequence[BuildContext], folder: Path
) -> Mapping[str, Path]:
    """A folder for the archive of each image's cell that `files` have, below `folder`.

    A file is the one whose sha256 an image wants, whatever its name. Raises UsageError for one that none
    wants, InputError, StorageFailed.
    """
    wanted = {context.image.id: _sha256(context) for context in contexts}
    found: dict[str, Path] = {}
    for file in files:
        digest = _digest(file)
        cells = [cell for cell, sha256 in wanted.items() if sha256 == digest]
        if not cells:
            raise UsageError(
                f"--archive {file}: no image that is to be built is made of it",
                details=[f"its sha256 is {digest}"],
                resolution="leave it out; `driverforge explain CELL` shows the sha256 that the lock has",
            )
        found |= dict.fromkeys(cells, _placed(file, folder / digest))
    return found


def _sha256(context: BuildContext) -> str:
    archive = context.image.archive if isinstance(context.image, ImageSpec) else None
    return archive.sha256 if archive else ""


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}", resolution="give yourself the right to read it"
        ) from error


def _placed(file: Path, folder: Path) -> Path:
    """A folder that holds the file alone; without a copy where it is on the same file system."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            os.link(file.resolve(), folder / _FILE)
        except OSError:
            shutil.copyfile(file, folder / _FILE)
    except OSError as error:
        raise StorageFailed(
            f"{folder} cannot be written: {error.strerror}", resolution="give another --cache-dir"
        ) from error
    return folder
