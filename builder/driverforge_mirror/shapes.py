"""JSON of `mirror`: its lists, archives, inventories, and what became of each image."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import NotRequired, TypedDict


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

    `state`: `held`, where it was there before; `copied`; `failed`. `sent` is in bytes, of its
    blobs; parts that images share are sent once.
    """

    image: str
    place: str
    digest: str
    state: Literal["held", "copied", "failed"]
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
