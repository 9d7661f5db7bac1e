"""What the header trees of a target answer to the matrix's probes, and digests of what they hold.

Which driver breaks on what is data of the matrix. How a header is judged is `driverforge_core.headerprobe`,
which the node shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from driverforge_build.lock.pins import HeaderFact, LockedKernel, LockedPackage, TargetLock
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import DriverRow
from driverforge_build.matrix.probes import header_probe, question
from driverforge_build.ports import Blob, Downloads, ReadHeaders
from driverforge_core.headerprobe import HeaderProbe
from driverforge_core.headertree import HeaderDigests

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderAnswers:
    """What header packages say, by the package. `digests` are those that were asked for."""

    facts: Mapping[str, Mapping[str, HeaderFact]] = field(default_factory=dict)
    digests: Mapping[str, HeaderDigests] = field(default_factory=dict)


def header_answers(
    target: TargetLock,
    probes: Sequence[HeaderProbe],
    with_headers: Callable[[Sequence[LockedPackage]], Sequence[LockedPackage]],
    addresses: Mapping[str, Callable[[str], str]],
    downloads: Downloads,
    *,
    digests: bool,
) -> HeaderAnswers:
    """Answers to probes, of those of a kernel's packages that `with_headers` finds; digests of them all.

    `addresses` maps a repository's id to what makes an address of a package's path.
    """
    kernels = target.kernels.values()
    headers = sorted({probe.header for probe in probes})
    asked = {package.key for kernel in kernels for package in with_headers(kernel.headers) if headers}
    packages = {package.key: package for kernel in kernels for package in kernel.headers}
    wanted = [package for key, package in packages.items() if digests or key in asked]
    abis = _abis(kernels) if digests else {}

    def read(package: LockedPackage) -> ReadHeaders:
        url = addresses[package.suite](package.path)
        file = Blob(urls=(url,), sha256=package.sha256, size=package.size)
        return downloads.headers(file, headers if package.key in asked else (), abi=abis.get(package.key))

    with ThreadPoolExecutor(WORKERS) as pool:
        found = dict(zip((package.key for package in wanted), pool.map(read, wanted), strict=True))
    return HeaderAnswers(
        facts={key: answers(probes, found[key].texts) for key in packages if key in asked},
        digests={key: one.digests for key, one in found.items() if one.digests},
    )


def _abis(kernels: Iterable[LockedKernel]) -> dict[str, str]:
    """The part of kernels' names that is in a package's folders; '' where those of several names use it."""
    users: dict[str, set[str]] = {}
    for kernel in kernels:
        for package in kernel.headers:
            users.setdefault(package.key, set()).add(kernel.abi)
    return {key: abis.pop() if len(abis) == 1 else "" for key, abis in users.items()}


def probes_for(matrix: Matrix, drivers: Iterable[DriverRow]) -> list[HeaderProbe]:
    """The questions that concern one of the drivers."""
    branches = {driver.branch for driver in drivers}
    return [
        header_probe(row)
        for row in matrix.probes
        if branches & {concerned.branch for concerned in row.drivers}
    ]
