"""The life of `driverforge verify`: modules out of built images, into the kernels that they were made for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.app.prepare import Prepared
from driverforge_build.app.runner import CellListener
from driverforge_build.discover.settings import Settings
from driverforge_build.junit import write_junit
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.ports import Downloads, Engine, Guests
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import local_reference
from driverforge_build.render.context import BuildContext, driver_contexts
from driverforge_build.verify.findings import Proof, TriedImage, statement, statement_text, suites
from driverforge_build.verify.modules import read_sets
from driverforge_build.verify.proof import Proving
from driverforge_build.verify.tree import KernelTree, blobs_of, kernel_packages, read_tree
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import DriverforgeError, StorageFailed, UsageError
from driverforge_core.image import MODULES_ROOT
from driverforge_core.kernel import KernelRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An image that is to be proven. `packages` are its kernel's."""

    cell: str
    reference: str
    os: OsRow
    arch: Arch
    driver: DriverVersion
    kernel: KernelRelease
    module_types: tuple[str, ...]
    packages: tuple[LockedPackage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a run works with.

    `settings` say where kernels come from. Consoles of guests go to `consoles`. `silence` is how many seconds
    a guest may say nothing; `workers` is how many kernels are tried at a time.
    """

    engine: Engine
    downloads: Downloads
    settings: Settings
    guests: Guests
    consoles: Path
    silence: float = 300.0
    workers: int = 2


def subjects(
    prepared: Prepared,
    engine: Engine,
    *,
    named: Sequence[str],
    selected: Sequence[str],
    mirrors: Mapping[str, str],
    fetch: Callable[[BuildContext], bool] = lambda _: False,
) -> tuple[Subject, ...]:
    """The images of the plan that have modules of their own, and that the engine has, or can `fetch`.

    Raises UsageError for a cell that was `named` and has none or has not been built, where none of those is
    there that were `selected` in full, and for a mirror of an OS that is none of theirs.
    """
    check_named("--mirror", map(mirror_os, mirrors), {row.cell.os.id for row in prepared.plan.rows})
    cells = {cell.key: cell for cell in prepared.plan.to_build() if cell.kernel}
    _check_named([name for name in named if name not in cells], prepared)
    found: list[Subject] = []
    absent: list[UsageError] = []
    for context in driver_contexts(cells.values(), prepared.lock, given=prepared.given):
        cell, reference = cells[context.image.id], local_reference(context)
        if engine.inspect(reference) is None and not fetch(context):
            if cell.key in named:
                raise _not_built(cell.key, reference, prepared)
            if cell.key in selected:
                absent.append(_not_built(cell.key, reference, prepared))
            continue
        target = prepared.lock.target(cell.os.id, cell.arch)
        assert target is not None
        assert cell.kernel is not None
        found.append(
            Subject(
                cell=cell.key,
                reference=reference,
                os=cell.os,
                arch=cell.arch,
                driver=DriverVersion(cell.driver.version),
                kernel=cell.kernel,
                module_types=cell.module_types,
                packages=kernel_packages(target.kernels[cell.kernel.text]),
            )
        )
    if absent and not found:
        raise absent[0]
    return tuple(found)


def _not_built(cell: str, reference: str, prepared: Prepared) -> UsageError:
    return UsageError(
        f"{cell} has not been built from these inputs: the engine has no {reference}",
        resolution=f"build it: {prepared.given.command('build', select=(cell,))}; or take it from where it "
        "was pushed: --pull --registry HOST/PATH",
    )


def _check_named(strange: Sequence[str], prepared: Prepared) -> None:
    if strange:
        verdicts = {row.key: row.verdict for row in prepared.plan.rows}
        raise UsageError(
            f"{strange[0]} is no image with kernel modules that the plan has",
            details=[
                f"{name}: {verdicts[name].state.value} {verdicts[name].reason}".rstrip()
                for name in strange
                if name in verdicts
            ],
            resolution="name cells with a kernel whose verdict is `build`: driverforge plan; a JIT image "
            "compiles its modules on the node",
        )


def verify_all(wanted: Iterable[Subject], means: Means, told: CellListener) -> tuple[Proof, ...]:
    """Verify images. Those of one kernel go one after the other: its packages are unpacked once.

    Raises Unavailable where this machine cannot boot guests.
    """
    every = tuple(wanted)
    groups: dict[tuple[str, ...], list[Subject]] = {}
    for subject in every:
        key = (subject.kernel.text, *(package.sha256 for package in subject.packages))
        groups.setdefault(key, []).append(subject)
    for arch in sorted({subject.arch for subject in every}):
        # what is missing here is missing for all of them, and said before anything is downloaded
        means.guests.busybox(arch)
    means.consoles.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(means.workers) as pool:
        made = pool.map(lambda group: tuple(_verify_group(group, means, told)), groups.values())
        proofs = {proof.cell: proof for group in made for proof in group}
    return tuple(proofs[subject.cell] for subject in every)


def _verify_group(group: Sequence[Subject], means: Means, told: CellListener) -> Iterator[Proof]:
    """Verify images of one kernel."""
    with TemporaryDirectory(prefix="driverforge-kernel-") as folder:
        tree: KernelTree | None = None
        for subject in group:
            started = time.monotonic()
            try:
                tree = tree or _unpacked(subject, Path(folder), means, told)
                proof = _verify(subject, tree, means, told)
            except DriverforgeError as error:
                proof = Proof(cell=subject.cell, seconds=time.monotonic() - started, error=error)
            told(subject.cell, proof.result)
            yield proof


def _unpacked(subject: Subject, folder: Path, means: Means, told: CellListener) -> KernelTree:
    blobs = blobs_of(subject.os, subject.arch, subject.packages, means.downloads, means.settings)
    for package, blob in zip(subject.packages, blobs, strict=True):
        told(subject.cell, f"unpacking {package.name}")
        means.downloads.unpack(blob, folder)
    return read_tree(folder, subject.kernel.text)


def _verify(subject: Subject, tree: KernelTree, means: Means, told: CellListener) -> Proof:
    started = time.monotonic()
    image = means.engine.inspect(subject.reference)
    files = means.engine.files(subject.reference, f"{MODULES_ROOT}/{subject.kernel}")
    sets = read_sets(
        files or {}, driver=subject.driver, kernel=subject.kernel, module_types=subject.module_types
    )
    proving = Proving(
        arch=subject.arch,
        tree=tree,
        guests=means.guests,
        consoles=means.consoles / subject.cell,
        silence=means.silence,
        told=lambda text: told(subject.cell, text),
    )
    proven = [proving.prove(modules) for modules in sets]
    return Proof(
        cell=subject.cell,
        seconds=time.monotonic() - started,
        tried=TriedImage(
            reference=subject.reference,
            image=image.id if image else "",
            kernel=subject.kernel.text,
            packages=subject.packages,
            modules=tuple(module for modules in sets for module in modules.modules),
            machine=proven[-1][1],
        ),
        checks=tuple(check for checks, _ in proven for check in checks),
    )


def attach_proofs(proofs: Iterable[Proof], prepared: Prepared, publisher: Publisher) -> tuple[Proof, ...]:
    """Attach a statement to the image that the registry has of each one that was tried, passed or not."""
    tried = {proof.cell for proof in proofs if proof.tried}
    cells = [cell for cell in prepared.plan.to_build() if cell.key in tried]
    contexts = driver_contexts(cells, prepared.lock, given=prepared.given)
    by_cell = {context.image.id: context for context in contexts}
    return tuple(
        _attached(proof, proof.tried, by_cell[proof.cell], publisher) if proof.tried else proof
        for proof in proofs
    )


def _attached(proof: Proof, tried: TriedImage, context: BuildContext, publisher: Publisher) -> Proof:
    try:
        place, name = publisher.same_image(context, tried.image)
        payload = statement_text(statement(proof, tried, name=name, digest=place.digest))
        assert publisher.attaching is not None
        return replace(proof, attached=publisher.attaching.attach_result(place, payload))
    except DriverforgeError as error:
        return replace(proof, not_attached=error)


def write_reports(proofs: Sequence[Proof], *, junit_file: Path | None, statements: Path | None) -> None:
    """Write what was asked for: a JUnit file, and a folder with an in-toto statement for each image.

    An image that could not be tried has no statement. Raises StorageFailed.
    """
    if junit_file:
        write_junit(junit_file, "driverforge verify", suites(proofs))
    for proof in proofs:
        if statements and proof.tried:
            content = statement_text(statement(proof, proof.tried))
            _write(statements / f"{proof.cell}.intoto.json", content)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror}", resolution="name another place"
        ) from error
