"""JSON that one run of a pipeline leaves for the next: `covered.json`, build times, what is new."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import NotRequired, TypedDict

from driverforge_build.documents.failures import Failure
from driverforge_build.documents.reads import ReadState, State


class CoveredImage(TypedDict):
    """A precompiled image for a kernel. `tag` is the alias that a cluster pulls, `image` the immutable tag.

    `digest` is the image's own, of its architecture. `tested`: an image of that digest passed a site's test.
    """

    os: str
    arch: str
    driver: str
    branch: str
    cell: str
    tag: str
    image: str
    digest: str
    tested: bool


class CoveredDocument(TypedDict):
    """`covered.json`: the images for each kernel release, as `uname -r` prints it."""

    schema: Literal[1]
    kernels: dict[str, list[CoveredImage]]


class MeasuredTime(TypedDict):
    """A build's wall time; `first`: it made the layers that images of its driver and OS share. `compiled`:
    it compiled modules; files of earlier versions do not say so.
    """

    seconds: float
    first: bool
    compiled: NotRequired[bool]
    date: str


class TimesDocument(TypedDict):
    """The file of `--times`."""

    schema: Literal[1]
    cells: dict[str, MeasuredTime]


class NewKernel(TypedDict):
    """Finished modules of a distribution, for a kernel that the lock has without them."""

    kernel: str
    driver: str


class TargetNews(TypedDict):
    """Kernel releases that the lock does not have, and those that the repositories have no more.

    `read` says of each repository when it was read; `state` is `stale` where one of them is from the cache.
    """

    kernels: list[str]
    gone: list[str]
    modules: list[NewKernel]
    state: State
    read: dict[str, ReadState]


class NewRelease(TypedDict):
    """A driver of NVIDIA's list that is newer than the `known` one. `date`, `type`: '' where it has none."""

    branch: str
    version: str
    date: str
    type: str
    known: str


class NewBranch(TypedDict):
    """A branch that the matrix does not have; `open_only`: it has no proprietary modules."""

    branch: str
    version: str
    date: str
    type: str
    open_only: bool


class EndedBranch(TypedDict):
    """A branch of locked drivers whose end of life has come since the lock."""

    branch: str
    eol: str


class KnownVulnerability(TypedDict):
    """Of all drivers of a branch before `fixed`; `score` of CVSS 3, 0 where the bulletin has none."""

    cve: str
    score: float
    fixed: str
    bulletin: str


class WatchDocument(TypedDict):
    """`driverforge watch --json`.

    `since` is the date of the lock's newest repository, ISO 8601. `new`: whether anything is; the exit status
    is 1 then. `problems` maps locked drivers that the repositories do not have so any more to what is wrong.
    `releases`: when NVIDIA's list was read, null where it could not be. `vulnerable` maps locked drivers to
    what `--advisories` say of them, the worst first. `rows` is YAML for a matrix that is to have drivers of
    branches that it has none of, '' where there are none.
    """

    schema: Literal[1]
    lock: str
    since: str
    new: bool
    targets: dict[str, TargetNews]
    problems: dict[str, Failure]
    drivers: list[NewRelease]
    branches: list[NewBranch]
    rows: str
    ended: list[EndedBranch]
    vulnerable: dict[str, list[KnownVulnerability]]
    releases: ReadState | None
    unanswered: list[Failure]
