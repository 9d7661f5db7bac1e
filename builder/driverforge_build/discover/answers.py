"""What the header trees of a target answer to the matrix's probes.

Which driver breaks on what is data of the matrix. How a header is judged is `driverforge_core.headerprobe`,
which the node shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from driverforge_build.lock.pins import HeaderFact, LockedPackage, TargetLock
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import DriverRow
from driverforge_build.matrix.probes import header_probe, question
from driverforge_build.ports import Blob, Downloads
from driverforge_core.headerprobe import HeaderProbe

MAX_ARGUMENTS = 20
WORKERS = 4


def answer(probe: HeaderProbe, text: str | None) -> HeaderFact:
    """What a header (None: the tree does not have it) says to a probe."""
    if text is None:
        return HeaderFact(breaks=None, found=f"{probe.header} is not among the headers")
    if (evidence := probe.breaks(text)) is not None:
        return HeaderFact(breaks=True, found=evidence)
    return HeaderFact(breaks=False, found=_instead(probe, text))


def _instead(probe: HeaderProbe, text: str) -> str:
    """What stands there where a probe finds nothing wrong."""
    if probe.kind == "missing-member" and probe.symbol not in text:
        return f"{probe.header}: does not define struct {probe.struct}"
    if probe.kind != "arguments":
        return f"{probe.header}: has {probe.symbol}"
    others = (replace(probe, arguments=number).breaks(text) for number in range(MAX_ARGUMENTS))
    return next((found for found in others if found), f"{probe.header}: does not declare {probe.symbol}")


def answers(probes: Iterable[HeaderProbe], members: Mapping[str, str | None]) -> dict[str, HeaderFact]:
    """Answers of all probes about one header tree. `members` maps a header's path in the tree to its text."""
    return {question(probe): answer(probe, members.get(probe.header)) for probe in probes}


def header_facts(
    target: TargetLock,
    probes: Sequence[HeaderProbe],
    with_headers: Callable[[Sequence[LockedPackage]], Sequence[LockedPackage]],
    addresses: Mapping[str, Callable[[str], str]],
    downloads: Downloads,
) -> dict[str, dict[str, HeaderFact]]:
    """Answers by header package. Of a kernel's those are read that `with_headers` finds.

    `addresses` maps a repository's id to what makes an address of a package's path.
    """
    packages = {
        package.key: package for kernel in target.kernels.values() for package in with_headers(kernel.headers)
    }
    headers = sorted({probe.header for probe in probes})

    def ask(package: LockedPackage) -> dict[str, HeaderFact]:
        url = addresses[package.suite](package.path)
        file = Blob(urls=(url,), sha256=package.sha256, size=package.size)
        return answers(probes, downloads.headers(file, headers))

    if not headers:
        return {}
    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(packages, pool.map(ask, packages.values()), strict=True))


def probes_for(matrix: Matrix, drivers: Iterable[DriverRow]) -> list[HeaderProbe]:
    """The questions that concern one of the drivers."""
    branches = {driver.branch for driver in drivers}
    return [
        header_probe(row)
        for row in matrix.probes
        if branches & {concerned.branch for concerned in row.drivers}
    ]
