"""The shapes of the JSON that `driverforge` writes for other programs.

`hack/generate` writes the published JSON schemas from them. A reader should pass over keys that it does not
know: new ones may come under the same `schema` number, and none goes or changes its meaning.
"""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

Verdict = Literal["build", "exists", "vendor-ships", "blocked", "unknown"]


class Failure(TypedDict):
    """What failed: one sentence, the evidence a line an entry, the next step ('' where there is none)."""

    brief: str
    details: list[str]
    resolution: str
    exit_status: int


class FailureDocument(TypedDict):
    """What `--json` prints where the command itself failed, whichever command."""

    error: Failure


class PlanCell(TypedDict):
    """A cell of the plan. `kernel` is null for a JIT image, `run` the command that an unknown one needs."""

    cell: str
    os: str
    arch: str
    driver: str
    branch: str
    kernel: str | None
    module_types: list[str]
    verdict: Verdict
    reason: str
    evidence: list[str]
    run: str
    digest: str
    packages: list[str]
    warning: str


class PlanDocument(TypedDict):
    """`driverforge plan --json`."""

    schema: Literal[1]
    cells: list[PlanCell]
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

    `result` is `exists` where the registry has the image, `found` where the engine had it of an earlier run.
    """

    cell: str
    verdict: Verdict
    reason: str
    inputs: str | None
    reference: str | None
    result: Literal["built", "exists", "found", "failed", "skipped"] | None
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


class LockedTarget(TypedDict):
    """An OS and architecture. `suites` maps each to the date of its index."""

    kernels: list[str]
    without_headers: list[str]
    drivers: list[str]
    suites: dict[str, str]
    changes: list[str]


class LockDocument(TypedDict):
    """`driverforge lock --json`; `problems` maps a driver to what kept it from being pinned."""

    schema: Literal[1]
    lock: str
    changed: bool
    targets: dict[str, LockedTarget]
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
