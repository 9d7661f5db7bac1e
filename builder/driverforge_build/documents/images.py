"""JSON of `build`, `push` and `index`: images, in the engine and in the registry."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

from driverforge_build.documents.failures import Failure
from driverforge_build.documents.plans import Verdict
from driverforge_build.documents.proofs import AttachedArtifact


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
    why the alias was left alone, '' where it was not. `attached` is what --attest looked after.
    """

    cell: str
    reference: str
    digest: str
    sent: bool
    alias: str
    alias_digest: str
    moved: bool
    waiting: str
    attached: list[AttachedArtifact]


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
