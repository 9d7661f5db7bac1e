"""What registries have of the needed images: digests, platforms, sizes. A list is whole, or an error."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from driverforge_core.cell import NVIDIAS_REGISTRY
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable, Unsupported
from driverforge_core.tags import ImageTag, kernel_text
from driverforge_mirror.contents.found import Attached, Found, Platform
from driverforge_mirror.lists.target import in_registry
from driverforge_mirror.needs.needed import Needs, Reason
from driverforge_oci.client import OCI_INDEX, Descriptor, Manifest, RegistryClient, digest_of
from driverforge_oci.presence import ASKED_AT_ONCE, Absent, Present, Unknown, presence
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import referrers, referrers_tag
from driverforge_oci.session import NotFound

_COSIGN = ("sig", "att", "sbom")
_REFERRERS_DEPTH = 4
# BuildKit's attestations are in the index of what they are of, as its documentation of their storage has it
_ATTESTS = "vnd.docker.reference.digest"
_NO_PLATFORM = ("", "unknown/unknown")
_CONFIGURATIONS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)


def find_all(
    client: RegistryClient, needs: Needs, registries: Mapping[str, str], platforms: Sequence[str] = ()
) -> dict[str, Found]:
    """Every needed image. Raises one error for all that are not there, or that nobody would speak of.

    `platforms` ('linux/amd64') are all that is taken of an index, each one where there are none, or the image
    is named by its digest.
    """

    def one(image: str) -> Found | Absent | Unknown:
        named = Reference.parse(image)
        place = in_registry(named, registries)
        # pods ask for the very digest that is named, and a choice has another one
        chosen = () if named.digest else platforms
        answer = presence(client, place)
        if not isinstance(answer, Present):
            return answer
        try:
            return find(client, place.with_digest(answer.digest), chosen)
        # the registry has answered
        except Unsupported:
            raise
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


def find(client: RegistryClient, place: Reference, platforms: Sequence[str] = ()) -> Found:
    """The image or index of a digest, with all that belongs to it and all that is attached to it."""
    content = _content(client, place, platforms)
    subjects = [content.digest, *(one.digest for one in content.platforms if one.digest != content.digest)]
    attached = [
        one
        for subject in subjects
        if not (content.made and subject == content.digest)
        for one in _attached(client, place.with_digest(subject))
    ]
    return replace(content, attached=tuple(attached))


def _content(client: RegistryClient, place: Reference, wanted: Sequence[str] = ()) -> Found:
    top, made = client.get_manifest(place), ""
    if wanted and top.is_index:
        chosen = {entry.digest for platform in wanted if (entry := top.entry(platform))}
        if not chosen:
            offered = _offered(top.children)
            raise Unsupported(
                f"{place} has no image for {' or '.join(wanted)}",
                details=[f"it has: {', '.join(offered) or 'nothing that states its platform'}"],
                resolution="name one of these with --platform too, or leave --platform out",
            )
        chosen |= {one.digest for one in top.children if dict(one.annotations).get(_ATTESTS) in chosen}
        if len(chosen) == 1:
            return _content(client, place.with_digest(*chosen))
        made = _index_of(top, chosen)
        top = Manifest(media_type=OCI_INDEX, digest=digest_of(made.encode()), data=made.encode())
    platforms = tuple(_platforms(client, place, top))
    parts = {top.digest: len(top.data)}
    for one in platforms:
        parts |= {one.digest: one.size, **one.blobs}
    size = sum(parts.values())
    return Found(digest=top.digest, media_type=top.media_type, size=size, platforms=platforms, made=made)


def _index_of(top: Manifest, chosen: Collection[str]) -> str:
    """An index of some of another one's images, in its order: the same choice gives the same bytes."""
    manifests = [one for one in top.document["manifests"] if one["digest"] in chosen]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _attached(client: RegistryClient, subject: Reference, depth: int = 1) -> Iterator[Attached]:
    """What refers to a digest, each before what refers to it in turn: an SBOM may be signed."""
    for one in (*_tagged(client, subject), *_listed(client, subject)):
        if depth > _REFERRERS_DEPTH:
            raise Unavailable(
                f"{subject} is more than {_REFERRERS_DEPTH} signatures of signatures deep",
                resolution="ask who attached them: nothing of it is left out silently",
            )
        yield one
        yield from _attached(client, subject.with_digest(one.found.digest), depth + 1)


def _tagged(client: RegistryClient, subject: Reference) -> Iterator[Attached]:
    for suffix in _COSIGN:
        tag = f"{referrers_tag(subject.digest)}.{suffix}"
        answer = presence(client, subject.with_tag(tag))
        if isinstance(answer, Unknown):
            if answer.passing:
                raise TemporaryFailure(f"{subject}: {answer.reason}", resolution=answer.resolution)
            # with the login that there is, the image itself was read: a further one is not what lacks
            raise Unavailable(
                f"{subject}: whether it has a signature is not told: {answer.reason}",
                details=[f"looked for {subject.with_tag(tag)}"],
                resolution=f"ask who runs {subject.host} to let this login read that tag, too",
            )
        if isinstance(answer, Present):
            found = _content(client, subject.with_digest(answer.digest))
            yield Attached(subject=subject.digest, tag=tag, kind=found.media_type, found=found)


def _listed(client: RegistryClient, subject: Reference) -> Iterator[Attached]:
    for one in referrers(client, subject):
        found = _content(client, subject.with_digest(one.digest))
        yield Attached(subject=subject.digest, tag="", kind=one.artifact_type, found=found)


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
        try:
            manifest = client.get_manifest(place.with_digest(child.digest))
        except NotFound as error:
            raise Unsupported(
                f"{place} is an index whose registry has not got all that it names",
                details=[f"{child.platform or 'no platform'}: {child.digest}"],
                resolution="name the platforms that you want with --platform, or a registry that has all of "
                "it with --registry",
            ) from error
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


def check_platforms(needs: Needs, platforms: Sequence[str]) -> None:
    """InputError where `platforms`, all that is to be taken, leave out one that nodes need."""
    wanted = {one for image in needs.images for one in _platforms_of_nodes(needs, image)}
    lacking = sorted(one for one in wanted if not _has(platforms, one)) if platforms else []
    if lacking:
        named = " ".join(f"--platform {one}" for one in lacking)
        raise InputError(
            f"--platform leaves out {' and '.join(lacking)}, which nodes need; nothing is locked",
            details=[f"--platform takes {', '.join(platforms)} alone"],
            resolution=f"add {named}; or take the nodes that are not meant out of --nodes",
        )


def missing_platforms(needs: Needs, found: Mapping[str, Found], platforms: Sequence[str] = ()) -> list[str]:
    """Images that have none for an architecture of nodes, or of `platforms`, a sentence each."""
    told = []
    for image in needs.images:
        offered = _offered(found[image].platforms)
        if not offered:
            continue
        wanted = _platforms_of_nodes(needs, image)
        asked = {one for one in platforms if not any(_has([need], one) for need in wanted)}
        lacking = {one: "which nodes need" for one in sorted(wanted) if not _has(offered, one)}
        rest = f"which --platform names: the list has {', '.join(offered)} of it"
        lacking |= {one: rest for one in sorted(asked) if not _has(offered, one)}
        told += [f"{image} has no image for {one}, {why}" for one, why in lacking.items()]
    return told


def _platforms_of_nodes(needs: Needs, image: str) -> set[str]:
    """Of the nodes that need the image, as far as its reasons say; else of all."""
    own = {arch for reason in needs.images[image] for arch in reason.archs}
    return {f"linux/{arch}" for arch in own or needs.archs}


def _offered(parts: Iterable[Descriptor | Platform]) -> list[str]:
    return sorted({one.platform for one in parts} - set(_NO_PLATFORM))


def _has(offered: Sequence[str], wanted: str) -> bool:
    """Whether one of them is it, with a variant or without: 'linux/arm64', 'linux/arm64/v8'."""
    return any(f"{one}/".startswith(f"{wanted}/") or f"{wanted}/".startswith(f"{one}/") for one in offered)


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
        if reference.host == NVIDIAS_REGISTRY:
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
