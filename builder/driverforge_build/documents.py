"""The shapes of the JSON that `driverforge` writes for other programs.

`hack/generate` writes the published JSON schemas from them. A reader should pass over keys that it does not
know: new ones may come under the same `schema` number, and none goes or changes its meaning.
"""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

from driverforge_core.errors import DriverforgeError

ModuleType = Literal["open", "proprietary"]
Verdict = Literal["build", "exists", "blocked", "unknown"]


class Failure(TypedDict):
    """What failed: one sentence, the evidence a line an entry, the next step ('' where there is none)."""

    brief: str
    details: list[str]
    resolution: str
    exit_status: int


def failure(error: DriverforgeError) -> Failure:
    return {
        "brief": error.brief,
        "details": list(error.details),
        "resolution": error.resolution,
        "exit_status": error.exit_code,
    }


class FailureDocument(TypedDict):
    """What `--json` prints where the command itself failed, whichever command."""

    error: Failure


class PlanCell(TypedDict):
    """A cell of the plan.

    `kernel` is null for a JIT image, `run` the command that an unknown one needs. `source` is where its
    modules come from: compiled in the image or on the node, or the distribution's. `left_out` maps module
    types that the image does without to the reason. `image` is the immutable tag that the registry was asked
    for, '' where it was not.
    """

    cell: str
    os: str
    arch: str
    driver: str
    branch: str
    kernel: str | None
    module_types: list[str]
    left_out: dict[ModuleType, str]
    source: Literal["compile", "node", "vendor"]
    verdict: Verdict
    reason: str
    evidence: list[str]
    run: str
    image: str
    digest: str
    packages: list[str]
    warnings: list[str]


class PinnedPackage(TypedDict):
    """A package of the lock. `suite` is the repository that has it."""

    name: str
    version: str
    suite: str
    sha256: str


class PinnedSuite(TypedDict):
    """A repository as the lock has it: the date of its index, and the sha256 of InRelease or repomd.xml."""

    suite: str
    date: str
    sha256: str


class PinnedBase(TypedDict):
    """What a base image's tag stood for. `index` is the digest of the index over architectures."""

    reference: str
    digest: str
    index: str


class PlanTarget(TypedDict):
    """An OS and architecture, and what the lock has for the kernels of its cells.

    `name` is the OS for people. `kernels` maps a release to its packages, headers first.
    """

    os: str
    arch: str
    name: str
    suites: list[PinnedSuite]
    base: PinnedBase | None
    kernels: dict[str, list[PinnedPackage]]


class PlanInputs(TypedDict):
    """What --matrix (null: the shipped one), --lock and --base said; `bases` maps an OS to an image."""

    matrix: str | None
    lock: str
    bases: dict[str, str]


class PlanDocument(TypedDict):
    """`driverforge plan --json`; `made` is when, UTC, ISO 8601. `targets` are those of its cells."""

    schema: Literal[1]
    made: str
    inputs: PlanInputs
    cells: list[PlanCell]
    targets: dict[str, PlanTarget]
    summary: dict[Verdict, int]


class ImageLayer(TypedDict):
    """A layer: the digest of its tar, the bytes of its files, the instruction that made it."""

    digest: str
    size: int
    created_by: str


class Attempt(TypedDict):
    """An attempt that failed for a passing reason, and so was followed by another one."""

    reason: str
    seconds: float


class PushedImage(TypedDict):
    """An image in the registry.

    `sent` is false where it was there already, `moved` where the alias stood for it already. `waiting` says
    why the alias was left alone, '' where it was not.
    """

    cell: str
    reference: str
    digest: str
    sent: bool
    alias: str
    alias_digest: str
    moved: bool
    waiting: str


class BuildCell(TypedDict):
    """A cell of a build. What is null was not tried, or there is nothing of it.

    `result` is `exists` where the registry has the image, `found` where the engine had it of an earlier run,
    `written` where the engine makes none.
    """

    cell: str
    verdict: Verdict
    reason: str
    inputs: str | None
    reference: str | None
    result: Literal["built", "exists", "found", "written", "failed", "skipped"] | None
    seconds: float | None
    attempts: list[Attempt]
    log: str | None
    id: str | None
    size: int | None
    layers: list[ImageLayer]
    pushed: PushedImage | None
    error: Failure | None


class BuildDocument(TypedDict):
    """`driverforge build --json`; `engine` is '' where none was needed."""

    schema: Literal[1]
    engine: str
    cells: list[BuildCell]


class BaseState(TypedDict):
    """What a base image stands for. `index` is the digest of the index over architectures.

    `state` is `fresh` where its registry said so now, `stale` where the digest is an earlier run's.
    """

    reference: str
    digest: str
    index: str
    state: Literal["fresh", "stale", "unknown"]
    problem: str


class LockedTarget(TypedDict):
    """An OS and architecture.

    `suites` maps each to the date of its index. `base` is null where the base image names its own digest.
    """

    kernels: list[str]
    without_headers: list[str]
    drivers: list[str]
    suites: dict[str, str]
    base: BaseState | None
    changes: list[str]


class FoundArchive(TypedDict):
    """An archive of NVIDIA's. `source`: where its sha256 was read; `asked_in_vain`: where there is none."""

    pinned: bool
    url: str
    sha256: str
    origin: Literal["matrix", "manifest", "checksum-file", "file", "first-use"] | None
    source: str
    asked_in_vain: list[str]
    error: Failure | None


class LockDocument(TypedDict):
    """`driverforge lock --json`.

    `nowhere` maps targets that were left out to what is missing, for want of an address, `degraded` those
    whose repositories cannot be read now, `closed` those that were read without the repositories of a
    subscription, `problems` drivers and archives to what kept them from being pinned.
    """

    schema: Literal[1]
    lock: str
    changed: bool
    targets: dict[str, LockedTarget]
    nowhere: dict[str, Failure]
    degraded: dict[str, Failure]
    closed: dict[str, Failure]
    archives: dict[str, FoundArchive]
    problems: dict[str, Failure]


class PushDocument(TypedDict):
    """`driverforge push --json`; `failed` maps a cell to its failure."""

    schema: Literal[1]
    images: list[PushedImage]
    failed: dict[str, Failure]


class PushPlanDocument(TypedDict):
    """`driverforge push --plan --json`; `tags` maps a cell to its immutable tag and its alias."""

    schema: Literal[1]
    repository: str
    repositories: dict[str, str]
    tags: dict[str, list[str]]


class JoinedAlias(TypedDict):
    """An alias and what it stands for now: `images` maps platforms to digests.

    `missing` are cells of its family whose image, made from the inputs of now, the registry does not have.
    """

    alias: str
    digest: str
    moved: bool
    images: dict[str, str]
    missing: list[str]


class IndexDocument(TypedDict):
    """`driverforge index --json`; `failed` maps an alias to its failure."""

    schema: Literal[1]
    aliases: list[JoinedAlias]
    failed: dict[str, Failure]


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
    """A build's wall time; `first`: it made the layers that images of its driver and OS share."""

    seconds: float
    first: bool
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
    """Kernel releases that the lock does not have, and those that the repositories have no more."""

    kernels: list[str]
    gone: list[str]
    modules: list[NewKernel]


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


class WatchDocument(TypedDict):
    """`driverforge watch --json`.

    `since` is the date of the lock's newest repository, ISO 8601. `new`: whether anything is; the exit status
    is 1 then. `problems` maps locked drivers that the repositories do not have so any more to what is wrong.
    """

    schema: Literal[1]
    lock: str
    since: str
    new: bool
    targets: dict[str, TargetNews]
    problems: dict[str, Failure]
    drivers: list[NewRelease]
    branches: list[NewBranch]
    ended: list[EndedBranch]
    unanswered: list[Failure]


class KernelPackage(TypedDict):
    name: str
    version: str
    sha256: str


class TriedModule(TypedDict):
    """A module of an image, by its path there. What is about its signature is '' where it has none."""

    module: str
    sha256: str
    signer: str
    key_id: str
    signature_digest: str


class VerifyCheck(TypedDict):
    """One thing that was tried with a module; `log` is what the kernel said of it."""

    module: str
    kind: str
    outcome: str
    passed: bool
    reason: str
    log: list[str]


class VerifiedCell(TypedDict):
    """An image's proof. `image` is the engine's id, `machine` what ran the kernel; '' where not tried."""

    cell: str
    result: Literal["passed", "failed", "error"]
    seconds: float
    reference: str
    image: str
    kernel: str
    machine: str
    packages: list[KernelPackage]
    modules: list[TriedModule]
    checks: list[VerifyCheck]
    error: Failure | None


class VerifyDocument(TypedDict):
    """`driverforge verify --json`."""

    schema: Literal[1]
    cells: list[VerifiedCell]
