"""What images of an operating system ask of its repositories, as text for reviewers and for mirrors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import DriverRow, KernelSeries, OsRow
from driverforge_build.matrix.repository import Repository
from driverforge_core.arch import to_machine

_COLUMN = 16
"""Where the words of a line begin; the line's name stands before them."""


def asked_of_repositories(matrix: Matrix, row: OsRow, arch: Arch) -> str:
    """Repositories, packages and downloads of an OS on one architecture, a name a line.

    {release} is a kernel as `uname -r` says it, {plain} the same without its +variant, {kernel_version}
    without distribution and machine, {variant-} `64k-` or nothing; all else is filled in.
    """
    own = row.on(arch)
    sections = [
        _section(f"{own.id} {arch}: {own.name}", _system(own)),
        *(_section(f"repository {one.id}", _repository(one, own)) for one in own.repositories),
        *(
            _section(f"kernels {series.id}", _kernels(series, arch))
            for series in own.kernels
            if series.flavours.get(arch)
        ),
        *(
            _section(f"driver {driver.id}", [*_driver(driver, row, arch), *_fabric(own, driver)])
            for driver in own.drivers
            if arch in driver_archs(matrix, row, driver)
        ),
    ]
    return "\n".join(sections)


def _section(title: str, entries: Iterable[tuple[str, Iterable[str]]]) -> str:
    lines = [title]
    for name, words in entries:
        for number, word in enumerate(filter(None, words)):
            lines.append(f"  {'' if number else name:<{_COLUMN}}{word}")
    return "\n".join(lines) + "\n"


def _system(row: OsRow) -> Iterator[tuple[str, Iterable[str]]]:
    yield "family", (f"{row.family}, {row.package_manager}",)
    yield "release", (row.codename, row.releasever or "")
    yield "base image", (row.base,)
    yield "keyring", (row.keyring,)
    yield "python", (row.python.package, f"{row.python.executable} ({row.python.version})")
    yield "every image", row.tools.runtime
    yield "to compile", row.tools.jit


def _repository(repository: Repository, row: OsRow) -> Iterator[tuple[str, Iterable[str]]]:
    yield "archive", (repository.archive,)
    yield "components", (" ".join(repository.components),)
    yield "address", repository.addresses(row.releasever or "")
    yield "address list", ((repository.mirrorlist or "").replace("{releasever}", row.releasever or ""),)
    yield "older releases", (repository.older or "",)
    yield "signed", (f"its {repository.signed}",)
    yield "keyring", (repository.keyring,)
    yield "its own key", (repository.key, repository.key_sha256, repository.key_fingerprint)
    yield "subscription", ("needed" if repository.entitled else "",)
    yield "role", (repository.role,)
    yield "enabled", ("not in the base image" if repository.optional else "",)


def _kernels(series: KernelSeries, arch: Arch) -> Iterator[tuple[str, Iterable[str]]]:
    yield "releases", (series.releases,)
    yield "flavours", (" ".join(series.flavours[arch]),)
    yield "repositories", series.repositories
    yield "compilers", series.compilers
    yield "headers", series.headers
    yield "image, one of", series.image
    yield "its modules", series.modules


def _driver(driver: DriverRow, row: OsRow, arch: Arch) -> Iterator[tuple[str, Iterable[str]]]:
    yield "version", (f"{driver.version} of branch {driver.branch}",)
    yield "images", (" ".join(driver.variants),)
    yield "module types", (" ".join(driver.module_types),)
    yield "made by", ("the distribution: nothing is compiled" if driver.vendor_modules else "",)
    yield "kernels", (" ".join(driver.kernels),)
    yield "driver image", (driver.image_for(row.id),)
    yield "download", (driver.runfile_url(to_machine(arch)), driver.sha256.get(arch, ""))
    yield "repositories", driver.repositories
    for source in driver.modules:
        yield f"{source.id}", driver.filled((*source.packages, f"/{source.tree}" if source.tree else ""))
    if driver.firmware:
        yield "firmware", driver.filled((driver.firmware.package, f"/{driver.firmware.tree}"))
    yield "user space", driver.filled(driver.userspace)
    yield "beside it", driver.filled(driver.companions)


def _fabric(row: OsRow, driver: DriverRow) -> Iterator[tuple[str, Iterable[str]]]:
    if (fabric := row.fabric_of(driver)) is not None:
        yield "for NVSwitches", driver.filled((*fabric.packages, *fabric.companions))
