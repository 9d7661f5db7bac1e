"""What registries have of the needed images: digests, platforms, sizes. A list is whole, or an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from driverforge_build.mirror.needs import Needs, Reason
from driverforge_build.plan.rows import ASKED_AT_ONCE
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable
from driverforge_core.tags import ImageTag, kernel_text
from driverforge_oci.client import Descriptor, Manifest, RegistryClient
from driverforge_oci.presence import Absent, Present, Unknown, presence
from driverforge_oci.reference import Reference

_VENDOR = "nvcr.io"
_CONFIGURATIONS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """An image of an index; `platform` is 'linux/amd64', '' where none is stated. `blobs`: digest to size."""

    platform: str
    digest: str
    size: int
    blobs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An image in its registry. `size` is that of all that a copy of all platforms takes, each part once."""

    digest: str
    media_type: str
    size: int
    platforms: tuple[Platform, ...]


def in_registry(reference: Reference, registries: Mapping[str, str]) -> Reference:
    """Where a reference is asked for.

    `registries` maps HOST[/PATH] to HOST[:PORT][/PATH] of a cache, a mirror or the vendor. The longest
    counts.
    """
    for above in sorted(registries, key=len, reverse=True):
        if reference.name == above or reference.name.startswith(f"{above}/"):
            host, _, repository = f"{registries[above]}{reference.name[len(above) :]}".partition("/")
            return Reference(host=host, repository=repository, tag=reference.tag, digest=reference.digest)
    return reference


def find_all(client: RegistryClient, needs: Needs, registries: Mapping[str, str]) -> dict[str, Found]:
    """Every needed image. Raises one error for all that are not there, or that nobody would speak of."""

    def one(image: str) -> Found | Absent | Unknown:
        place = in_registry(Reference.parse(image), registries)
        answer = presence(client, place)
        if not isinstance(answer, Present):
            return answer
        try:
            return find(client, place.with_digest(answer.digest))
        except DriverforgeError as error:
            return Unknown(error.brief, error.resolution, isinstance(error, TemporaryFailure))

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = dict(zip(needs.images, pool.map(one, needs.images), strict=True))
    silent = {image: answer for image, answer in answers.items() if isinstance(answer, Unknown)}
    if silent:
        raise _silence(silent)
    absent = [image for image, answer in answers.items() if isinstance(answer, Absent)]
    if absent:
        raise _absence(client, absent, needs, registries)
    return {image: answer for image, answer in answers.items() if isinstance(answer, Found)}


def find(client: RegistryClient, place: Reference) -> Found:
    """The image or index of a digest, with all that belongs to it."""
    top = client.get_manifest(place)
    platforms = tuple(_platforms(client, place, top))
    parts = {top.digest: len(top.data)}
    for one in platforms:
        parts |= {one.digest: one.size, **one.blobs}
    return Found(digest=top.digest, media_type=top.media_type, size=sum(parts.values()), platforms=platforms)


def _platforms(client: RegistryClient, place: Reference, top: Manifest) -> list[Platform]:
    if not top.is_index:
        entry = Descriptor(media_type=top.media_type, digest=top.digest, size=len(top.data))
        stated = ""
        # an artifact's configuration is of any kind, and is no platform's
        if top.config.media_type in _CONFIGURATIONS:
            document = client.image_configuration(place, top)
            stated = "/".join(str(document.get(key, "")) for key in ("os", "architecture")).strip("/")
        return [_platform(top, entry, stated)]
    found = []
    for child in top.children:
        manifest = client.get_manifest(place.with_digest(child.digest))
        if manifest.is_index:
            raise Unavailable(
                f"{place} is an index of indexes, which is not read",
                resolution="name the image that you mean by its own digest",
            )
        found.append(_platform(manifest, child, child.platform))
    return found


def _platform(manifest: Manifest, entry: Descriptor, platform: str) -> Platform:
    parts = (manifest.config, *manifest.layers)
    blobs = {part.digest: part.size for part in parts}
    return Platform(platform=platform, digest=entry.digest, size=entry.size, blobs=blobs)


def missing_platforms(needs: Needs, found: Mapping[str, Found]) -> list[str]:
    """Images that nodes of some architecture need and that have none for it, a sentence each."""
    told = []
    for image, reasons in needs.images.items():
        offered = {one.platform for one in found[image].platforms if one.platform}
        own = frozenset(arch for reason in reasons for arch in reason.archs)
        wanted = {f"linux/{arch}" for arch in own or needs.archs}
        lacking = sorted(one for one in wanted if not any(f"{has}/".startswith(f"{one}/") for has in offered))
        if offered:
            told += [f"{image} has no image for {platform}, which nodes need" for platform in lacking]
    return told


def _silence(silent: Mapping[str, Unknown]) -> Unavailable:
    passing = all(answer.passing for answer in silent.values())
    advice = next((answer.resolution for answer in silent.values() if answer.resolution), "")
    return (TemporaryFailure if passing else Unavailable)(
        f"registries do not say whether they have {len(silent)} of the images; nothing is locked",
        details=[f"{image}: {answer.reason}" for image, answer in silent.items()],
        resolution=advice or "try again later",
    )


def _absence(
    client: RegistryClient, absent: Sequence[str], needs: Needs, registries: Mapping[str, str]
) -> InputError:
    details, advice = [], []
    for image in absent:
        reasons = needs.images[image]
        details.append(f"{image}: {reasons[0].slot}, {reasons[0].text}")
        reference = Reference.parse(image)
        if reference.host == _VENDOR:
            if near := _near(client, in_registry(reference, registries)):
                details.append(f"  it has: {', '.join(near)}")
        else:
            advice += _builds(reference, reasons)
    own = "; ".join(dict.fromkeys(advice))
    mended = f"build and push what is yours: {own}" if own else "correct the version in your values"
    if all(reason.pool and reason.pool.next_boot for image in absent for reason in needs.images[image]):
        mended += "; or leave out --lock and --kernel: the list then has the kernels in use alone"
    return InputError(
        f"{len(absent)} of {len(needs.images)} images do not exist; nothing is locked",
        details=details,
        resolution=mended,
    )


def _builds(reference: Reference, reasons: Sequence[Reason]) -> list[str]:
    """The command that makes a driver image of ours, for each architecture that needs it."""
    try:
        tag = ImageTag.parse(reference.tag)
    except InputError:
        return []
    kernel = kernel_text(tag.kernel) if tag.kernel else "jit"
    archs = sorted({arch for reason in reasons for arch in reason.archs})
    registry = reference.name.rpartition("/")[0]
    return [
        f"driverforge build --push --registry {registry} --select '{tag.os}-{arch}-{tag.version}*-{kernel}'"
        for arch in archs
    ]


def _near(client: RegistryClient, place: Reference) -> list[str]:
    """Tags there are that resemble one that is missing, best first; none where the registry lists none."""
    try:
        tags = client.tags(place)
    except DriverforgeError:
        return []
    system = place.tag.rpartition("-")[2]
    same = [tag for tag in tags if tag.endswith(f"-{system}")]
    return difflib.get_close_matches(place.tag, same or list(tags), n=4, cutoff=0.5)
