"""JSON of `plan`, `explain`, `generate` and `matrix show`: cells, and what was decided about them."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

ModuleType = Literal["open", "proprietary"]
Verdict = Literal["build", "exists", "blocked", "unknown"]


class Judged(TypedDict):
    """What was decided about a cell, and why.

    `run` is the command that an unknown one needs. `left_out` maps module types that the image does without
    to the reason. `image` is the immutable tag that the registry was asked for, '' where it was not.
    """

    reason: str
    evidence: list[str]
    run: str
    image: str
    digest: str
    packages: list[str]
    left_out: dict[ModuleType, str]
    warnings: list[str]


class PlanCell(Judged):
    """A cell of the plan.

    `kernel` is null for a JIT image. `source` is where its modules come from: compiled in the image or on the
    node, or the distribution's.
    """

    cell: str
    os: str
    arch: str
    driver: str
    branch: str
    kernel: str | None
    module_types: list[str]
    source: Literal["compile", "node", "vendor"]
    verdict: Verdict


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


class ClassOfKernels(TypedDict):
    """Kernels, oldest first, whose modules differ in the kernel's name; most often it is one.

    The others are sha256 of what their header packages hold, less what only names the kernel: all files, the
    configuration, Module.symvers.
    """

    kernels: list[str]
    compiler: str
    headers: str
    config: str
    symvers: str


class PlanTarget(TypedDict):
    """An OS and architecture, and what the lock has for the kernels of its cells.

    `name` is the OS for people. `kernels` maps a release to its packages, headers first. `classes` are of all
    kernels that `lock --classes` looked into; the class of one that is in none is not known.
    """

    os: str
    arch: str
    name: str
    suites: list[PinnedSuite]
    base: PinnedBase | None
    kernels: dict[str, list[PinnedPackage]]
    classes: list[ClassOfKernels]


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


class ExplainedVerdict(Judged):
    """`state` is what a PlanCell has as its `verdict`. `unanswered`: the registry could not be asked."""

    state: Verdict
    unanswered: bool


class ExplainedSection(TypedDict):
    """A heading and its lines, for people."""

    title: str
    lines: list[str]


class ExplainDocument(TypedDict):
    """`driverforge explain --json`. `standing` is what the registry has, empty without --registry."""

    schema: Literal[1]
    cell: str
    source: Literal["compile", "node", "vendor"]
    module_types: list[ModuleType]
    verdict: ExplainedVerdict
    sections: list[ExplainedSection]
    standing: list[str]


class GeneratedImage(TypedDict):
    """A folder that was written. `target` is its name in the bake file, `inputs` the digest of all it has."""

    cell: str
    folder: str
    target: str
    inputs: str


class NotGenerated(TypedDict):
    """A cell that was not written; `run` is the command that an unknown one needs."""

    verdict: Verdict
    reason: str
    run: str


class GenerateDocument(TypedDict):
    """`driverforge generate --json`. `written` is false with --plan; `left_out` is by cell."""

    schema: Literal[1]
    written: bool
    bake_file: str
    images: list[GeneratedImage]
    left_out: dict[str, NotGenerated]


class MatrixDocument(TypedDict):
    """`driverforge matrix show --json`.

    The rows of each section have the keys of docs/matrix.md. `origins` maps a row ('systems/debian12/535') to
    the file and line that it stands in, `cells` are the ids of the JIT cells.
    """

    schema: Literal[1]
    file: str
    systems: list[dict[str, object]]
    branches: list[dict[str, object]]
    gpus: list[dict[str, object]]
    nvswitches: list[dict[str, object]]
    exclusions: list[dict[str, object]]
    probes: list[dict[str, object]]
    origins: dict[str, str]
    cells: list[str]
