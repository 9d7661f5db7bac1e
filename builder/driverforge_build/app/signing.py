"""Kernel modules out of a build, to whoever signs them, and back into it.

No key comes near a build: its engine gives the bare modules, and is given them again with a signature beside
each. Its own stages put the two together and verify the result.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.ports import BuildJob, Engine, ModuleSigner, StepListener, ToSign
from driverforge_build.render.context import modification_time
from driverforge_build.render.files import ContextFile
from driverforge_build.render.sitecertificate import UNSIGNED
from driverforge_core.certificate import Certificate
from driverforge_core.cms import DIGESTS
from driverforge_core.errors import InputError, StorageFailed
from driverforge_core.image import ANSWERS_NAME, MODULE_SET_NAME, ModuleSet
from driverforge_core.modsign import message_of

SIGNATURES = (".p7s", ".sig")
"""Endings of a signature's file, behind the module's whole name: a CMS message, or a bare signature."""
_ROOM = "make room there, or name another folder: --cache-dir, or --unsigned-to where that is given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How modules get signatures. `folder` keeps them; `given` has the modules that were signed elsewhere."""

    certificate: Certificate
    signer: ModuleSigner
    folder: Path
    given: Path | None = None

    def signed(self, engine: Engine, job: BuildJob, progress: StepListener) -> BuildJob:
        """The job with its signed modules. Raises InputError where a signature is not good."""
        into = self.folder / job.cell
        shutil.rmtree(into, ignore_errors=True)
        if self.given:
            with _storage(into, f"look at what --signatures names; {_ROOM}"):
                _copy(self.given / job.cell, into)
        else:
            engine.build(unsigned(job, into), progress)
        progress("signing modules")
        with _storage(into, _ROOM):
            for module, described in modules_in(into):
                self._sign(module, described, job.cell)
            _set_times(into)
        return replace(job, contexts={**job.contexts, UNSIGNED: into})

    def _sign(self, module: Path, described: ModuleSet, cell: str) -> None:
        content = module.read_bytes()
        digests = described.signature_digests or DIGESTS
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != described.modules[module.name]:
            raise InputError(
                f"{cell}: {described.module_type}/{module.name} is not the module that was built",
                details=[f"{MODULE_SET_NAME} says {described.modules[module.name]}"],
                resolution="sign apart from the module, and leave its file as it is",
            )
        answer = self.signer(to_sign(module, content, digests[0]))
        try:
            message = message_of(answer, content, self.certificate, digests)
        except InputError as error:
            raise InputError(
                f"{cell}: {described.module_type}/{module.name}: {error.brief}",
                details=error.details,
                resolution=error.resolution,
            ) from error
        module.with_name(f"{module.name}.p7s").write_bytes(message)


@contextmanager
def _storage(folder: Path, advice: str) -> Iterator[None]:
    """What a disk says against files below `folder` is a StorageFailed. A full one names no file."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"the modules in {error.filename or folder} cannot be read or written: {error.strerror}",
            resolution=advice,
        ) from error


def unsigned(job: BuildJob, folder: Path) -> BuildJob:
    """The job that puts the bare modules of an image into a folder."""
    with _storage(folder, _ROOM):
        folder.mkdir(parents=True, exist_ok=True)
    return replace(job, stage=UNSIGNED, output=folder, remote="", log=job.log.with_suffix(".unsigned.log"))


def to_sign(module: Path, content: bytes, algorithm: str) -> ToSign:
    return ToSign(module=module, algorithm=algorithm, digest=hashlib.new(algorithm, content).digest())


def beside(what: ToSign) -> bytes:
    """The signature that lies beside a module. A ModuleSigner; raises InputError where there is none."""
    for ending in SIGNATURES:
        file = what.module.with_name(what.module.name + ending)
        if file.is_file():
            return file.read_bytes()
    raise InputError(
        f"there is no signature for {what.module.parent.name}/{what.module.name}",
        details=[f"looked for {what.module.name}{' and '.join(SIGNATURES)} beside it"],
        resolution="sign each module that the lists of `driverforge build --unsigned-to` name",
    )


def check_date(certificate: Certificate, now: datetime) -> None:
    """Raises InputError for a certificate that is not valid now."""
    if now > certificate.not_after or now < certificate.not_before:
        state = "has expired" if now > certificate.not_after else "is not valid yet"
        raise InputError(
            f"the certificate {certificate.name} {state}",
            details=[f"valid from {certificate.not_before:%Y-%m-%d} to {certificate.not_after:%Y-%m-%d}"],
            resolution="make a new one, and enroll it on the nodes before images are signed for it",
        )


def try_signer(signer: ModuleSigner, certificate: Certificate) -> None:
    """Sign something, so that what is wrong is said before modules are compiled.

    Raises as a ModuleSigner does.
    """
    content = b"driverforge: does this key fit its certificate?\n"
    with TemporaryDirectory(prefix="driverforge-") as folder:
        module = Path(folder, "trial")
        module.write_bytes(content)
        message_of(signer(to_sign(module, content, DIGESTS[0])), content, certificate, DIGESTS)


def modules_in(folder: Path) -> Iterator[tuple[Path, ModuleSet]]:
    """Each module below a cell's folder, with its set. Raises InputError where one is missing, or all are."""
    descriptions = sorted(folder.glob(f"*/{MODULE_SET_NAME}"))
    if not descriptions:
        raise InputError(
            f"there are no modules in {folder}",
            resolution="`driverforge build --unsigned-to DIR` writes them; a signature goes beside each",
        )
    for path in descriptions:
        # bytes that are no text make it no JSON either
        described = ModuleSet.from_json(path.read_text(encoding="utf-8", errors="replace"))
        for name in described.modules:
            if not (module := path.with_name(name)).is_file():
                raise InputError(
                    f"there is no {module}", resolution="hand back the modules with the signatures"
                )
            yield module, described


def write_sums(folder: Path) -> tuple[Path, ...]:
    """Lists of all modules below a folder by the digest that is to be signed, as sha256sum(1) reads them.

    A cell whose build failed has none.
    """
    lines: dict[str, list[str]] = {}
    with _storage(folder, _ROOM):
        for cell in sorted({path.parents[1] for path in folder.glob(f"*/*/{MODULE_SET_NAME}")}):
            for module, described in modules_in(cell):
                algorithm = (described.signature_digests or DIGESTS)[0]
                digest = to_sign(module, module.read_bytes(), algorithm).digest.hex()
                lines.setdefault(algorithm, []).append(f"{digest}  {module.relative_to(folder)}\n")
        for algorithm, found in lines.items():
            (folder / f"{algorithm.upper()}SUMS").write_text("".join(found), encoding="utf-8")
    return tuple(folder / f"{algorithm.upper()}SUMS" for algorithm in lines)


def _copy(given: Path, into: Path) -> None:
    """Raises InputError as `modules_in` does, with the names that the user knows."""
    _ = [*modules_in(given)]
    endings = (".ko", *SIGNATURES)
    for path in sorted(given.glob("*/*")):
        if path.name in (MODULE_SET_NAME, ANSWERS_NAME) or path.name.endswith(endings):
            (into / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into / path.parent.name / path.name)


def _set_times(folder: Path) -> None:
    """Times made of content: BuildKit takes a file of the same size and time for unchanged."""
    for path in folder.rglob("*"):
        if path.is_file():
            stamp = modification_time(ContextFile(content=path.read_bytes()))
            os.utime(path, (stamp, stamp))
