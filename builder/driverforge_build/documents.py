"""The shapes of the JSON that `driverforge` writes for other programs.

`hack/generate` writes the published JSON schemas from them. A reader should pass over keys that it does not
know: new ones may come under the same `schema` number, and none goes or changes its meaning.
"""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import NotRequired, TypedDict

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


class ExplainedVerdict(TypedDict):
    """The keys of a PlanCell; `state` is its `verdict`. `unanswered`: the registry could not be asked."""

    state: Verdict
    reason: str
    evidence: list[str]
    run: str
    image: str
    digest: str
    packages: list[str]
    left_out: dict[ModuleType, str]
    warnings: list[str]
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


class ImageLayer(TypedDict):
    """A layer: the digest of its tar, the bytes of its files, the instruction that made it."""

    digest: str
    size: int
    created_by: str


class Attempt(TypedDict):
    """An attempt that failed for a passing reason, and so was followed by another one."""

    reason: str
    seconds: float


class AttachedArtifact(TypedDict):
    """Something that refers to an image, by its own digest.

    `kind` is sbom, provenance, test-result or signature; `sent` is false where it was there already. `digest`
    is '' for a signature that the registry does not show.
    """

    kind: str
    digest: str
    signed: bool
    sent: bool


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

    `suites` maps each to the date of its index. `base` is null where the base image names its own digest;
    `images` are the driver images of payload `image`, by driver version, but for those that do. `older` are
    kernels that are published, and that the row of their series leaves out (`newest`).
    """

    kernels: list[str]
    without_headers: list[str]
    older: list[str]
    drivers: list[str]
    suites: dict[str, str]
    base: BaseState | None
    images: dict[str, BaseState]
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
    whose repositories cannot be read now, or are not signed by anybody trusted, `closed` those that were read
    without the repositories of a subscription, `partial` those without a vendor's, `problems` drivers and
    archives to what kept them from being pinned.
    """

    schema: Literal[1]
    lock: str
    changed: bool
    targets: dict[str, LockedTarget]
    nowhere: dict[str, Failure]
    degraded: dict[str, Failure]
    closed: dict[str, Failure]
    partial: dict[str, Failure]
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


class Attestation(TypedDict):
    """What is attached to an image; `facts` is what it says, in a line.

    `trust` is `accepted` or `refused` by --verifier; without one it is `unchecked` where there is a signature
    that nobody looked at. What is about another image, or cannot be read, is `refused` in any case.
    """

    kind: Literal["sbom", "provenance", "test-result", "signature", "other"]
    digest: str
    media_type: str
    created: str
    trust: Literal["unsigned", "unchecked", "accepted", "refused"]
    reason: str
    facts: str


class AttestedImage(TypedDict):
    """The image of a platform, by its own digest. `lacks`: what --require found missing, a sentence each."""

    platform: str
    digest: str
    attached: list[Attestation]
    lacks: list[str]


class AttestationsDocument(TypedDict):
    """`driverforge attestations --json`."""

    schema: Literal[1]
    reference: str
    images: list[AttestedImage]


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
    """An image's proof. `image` is the engine's id, `machine` what ran the kernel; '' where not tried.

    `attached`: the statement that --attest looked after, `not_attached` why that failed.
    """

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
    attached: AttachedArtifact | None
    not_attached: Failure | None


class VerifyDocument(TypedDict):
    """`driverforge verify --json`."""

    schema: Literal[1]
    cells: list[VerifiedCell]


class MirrorPlatform(TypedDict):
    """An image of an index: `size` is the manifest's own, `blobs` maps what it is made of to sizes, in bytes.

    `platform` is 'linux/amd64', 'unknown/unknown' for an attestation, '' where none is stated.
    """

    platform: str
    digest: str
    size: int
    blobs: dict[str, int]


class MirrorReason(TypedDict):
    """Why an image is needed: its place in the values, and for a driver's image the nodes that it is for.

    `object` is what names it in the cluster: '' for the chart's values, 'ClusterPolicy', 'NVIDIADriver NAME';
    `said` what stands there of it (repository, image, version or tag). `os` and `kernel` are '' where the
    image does not depend on them; `next_boot`: no node runs it yet.
    """

    slot: str
    text: str
    object: str
    said: dict[str, str]
    os: str
    kernel: str
    next_boot: bool
    nodes: list[str]


class MirrorContent(TypedDict):
    """A manifest or an index with all that it is made of. `size` counts each part once, in bytes.

    `made` is the text of an index that `mirror lock --platform` has made, or of the manifest of a chart or of
    packages, '' where a registry has it. There `addresses` says of each blob where a copy takes it from: a
    file, an address, or the bytes themselves.
    """

    digest: str
    media_type: str
    size: int
    made: str
    platforms: list[MirrorPlatform]
    addresses: NotRequired[dict[str, str]]


class MirrorAttached(MirrorContent):
    """What refers to an image: a signature, an SBOM, an attestation. `kind` is the type that it states.

    `subject` is the digest that it is about. `tag` is cosign's name of it ('sha256-….sig'); it is '' for what
    the registry's list of referrers has.
    """

    subject: str
    tag: str
    kind: str


class MirrorImage(MirrorContent):
    """An image as pods ask for it, and what its tag stood for. `attached` goes with it, and is in no size."""

    image: str
    reasons: list[MirrorReason]
    attached: list[MirrorAttached]


class MirrorLeftOut(TypedDict):
    """An image that the chart names and that the values switch off."""

    image: str
    slot: str
    text: str


class MirrorChart(TypedDict):
    """`sha256` is that of the chart's archive, '' for a folder or a version that driverforge knows itself.

    `prefix` is the key below which a chart around it has its values, '' where there is none.
    """

    name: str
    version: str
    prefix: str
    source: str
    sha256: str


class MirrorLockDocument(TypedDict):
    """`mirror.lock.json`, of `driverforge mirror lock`.

    `chart` is null where a ClusterPolicy stands alone. `inputs` maps each file that was read to its sha256.
    """

    schema: Literal[1]
    chart: MirrorChart | None
    inputs: dict[str, str]
    images: list[MirrorImage]
    left_out: list[MirrorLeftOut]
    warnings: list[str]


class HeldImage(TypedDict):
    """An image of the lock in a mirror, or what is attached to one: `place` is where it lies.

    `state`: `held`, with all that was looked for; `incomplete`; `absent`; `damaged`, where a part has other
    bytes than its digest says; `moved`, where its digest is there and its tag stands for another one;
    `unknown`, where the registry did not say. `missing` are the digests of manifests and blobs that it lacks,
    `damaged` of those that `verify --deep` read and found damaged (older inventories lack the field);
    `reason` says the rest.
    """

    image: str
    place: str
    digest: str
    state: Literal["held", "incomplete", "absent", "damaged", "moved", "unknown"]
    missing: list[str]
    damaged: NotRequired[list[str]]
    reason: str


class MirrorRunning(TypedDict):
    """Nodes that are alike: `os` as they say it, and how many they are."""

    os: str
    kernel: str
    arch: str
    nodes: int


class MirrorInventoryDocument(TypedDict):
    """What a mirror holds: `driverforge mirror inventory`, `verify --json`, and the receipt of an archive.

    `lock` is the sha256 of the lock's file, or of the archive's list for a receipt. `deep`: every manifest
    and blob was looked for. `held` maps the digests that are there to their sizes; it is empty where the look
    was not deep. `runs` is what the nodes run, empty without --nodes.
    """

    schema: Literal[1]
    lock: str
    mirror: str
    deep: bool
    images: list[HeldImage]
    held: dict[str, int]
    runs: list[MirrorRunning]


class MirrorVolume(TypedDict):
    """A volume of an archive: a file beside its list, `size` in bytes, `sha256` in hex."""

    name: str
    size: int
    sha256: str


class MirrorArchiveDocument(TypedDict):
    """`NAME.list.json`, of `driverforge mirror copy --to-archive NAME`.

    The volumes, one after the other, are a tar file; `parts` maps each digest in it to where its bytes begin,
    and their count. `left_out` maps blobs that the receiver holds already to their sizes; `held_in` are the
    repositories of its registry in which they may lie (older lists lack it).
    """

    schema: Literal[1]
    lock: MirrorLockDocument
    volumes: list[MirrorVolume]
    parts: dict[str, list[int]]
    left_out: dict[str, int]
    held_in: NotRequired[list[str]]


class CheckedVolume(TypedDict):
    """A volume beside its list: `held` as the list has it, `damaged` where its bytes are others, `absent`."""

    name: str
    state: Literal["held", "damaged", "absent"]


class MirrorVolumesDocument(TypedDict):
    """`driverforge mirror verify --archive NAME --json`."""

    schema: Literal[1]
    volumes: list[CheckedVolume]


class CopiedImage(TypedDict):
    """What became of an image, or of what is attached to one.

    `state`: `held`, where it was there before; `copied`; `failed`. `engine` is what had to copy it:
    driverforge, skopeo or regctl. `sent` is in bytes, of its blobs, 0 where a program of others copied it;
    parts that images share are sent once.
    """

    image: str
    place: str
    digest: str
    state: Literal["held", "copied", "failed"]
    engine: str
    sent: int
    error: dict[str, object] | None


class MirrorCopyDocument(TypedDict):
    """`driverforge mirror copy --json`. `list` is the archive's list, '' where none was written."""

    schema: Literal[1]
    images: list[CopiedImage]
    sent: int
    list: str


class KeptManifest(TypedDict):
    """A manifest of a mirror that `driverforge mirror prune` keeps, and each reason why.

    `tag` is '' for what is found by its digest alone: a platform of an index, what refers to something.
    """

    repository: str
    tag: str
    digest: str
    why: list[str]


class PrunedManifest(TypedDict):
    """A manifest that nothing keeps. `tags` stand for it; none where something above it is found by a tag.

    `state`: `planned`; `deleted`; `gone`, where somebody else has deleted it; `kept`, where something came
    meanwhile that needs it.
    """

    repository: str
    tags: list[str]
    digest: str
    state: Literal["planned", "deleted", "gone", "kept"]


class MirrorPruneDocument(TypedDict):
    """`driverforge mirror prune --json`.

    `foreign` are repositories of the registry that no list names, which are left alone; null where the
    registry lists none. `left` are tags that stay though nothing keeps them, a sentence each.
    """

    schema: Literal[1]
    kept: list[KeptManifest]
    deleted: list[PrunedManifest]
    foreign: list[str] | None
    left: list[str]


class ShelvedArchive(TypedDict):
    """An archive of a folder. `state`: `kept`, and `why`; `planned` to be deleted; `deleted`."""

    name: str
    state: Literal["kept", "planned", "deleted"]
    why: str


class MirrorShelfDocument(TypedDict):
    """`driverforge mirror prune --archives DIR --json`."""

    schema: Literal[1]
    archives: list[ShelvedArchive]
