"""The life of `driverforge attestations`: what the images behind a name have attached, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driverforge_build.attest.attached import Kind
from driverforge_build.attest.read import Finding, lack, read_image
from driverforge_build.ports import StatementVerifier
from driverforge_core.errors import StorageFailed, Unsupported
from driverforge_oci.client import Manifest, RegistryClient
from driverforge_oci.reference import Reference

if TYPE_CHECKING:
    from driverforge_build.documents.proofs import AttestedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadImage:
    """The image of one platform ('linux/amd64'), '' where a name stands for it alone."""

    platform: str
    place: Reference
    found: tuple[Finding, ...]
    lacks: tuple[str, ...]

    def document(self) -> AttestedImage:
        return {
            "platform": self.platform,
            "digest": self.place.digest,
            "attached": [one.document() for one in self.found],
            "lacks": list(self.lacks),
        }


def read_attestations(
    client: RegistryClient,
    reference: Reference,
    *,
    platform: str,
    required: Sequence[Kind],
    verifier: StatementVerifier | None,
) -> tuple[ReadImage, ...]:
    """What each platform's image has; of one `platform` if it is named. Raises as RegistryClient does."""
    return tuple(
        ReadImage(
            platform=name,
            place=place,
            found=(found := read_image(client, place, verifier)),
            lacks=tuple(
                why for kind in required if (why := lack(found, kind, verified=verifier is not None))
            ),
        )
        for name, place in _images(client, reference, platform)
    )


def _images(client: RegistryClient, reference: Reference, platform: str) -> Iterator[tuple[str, Reference]]:
    manifest = client.get_manifest(reference)
    if not manifest.is_index:
        if platform:
            _check_platform(client, reference.with_digest(manifest.digest), manifest, platform)
        yield platform, reference.with_digest(manifest.digest)
        return
    if platform:
        yield platform, reference.with_digest(client.resolve(reference, platform).digest)
        return
    # what BuildKit attests lies beside the images, under a platform that is none
    images = [child for child in manifest.children if "unknown" not in child.platform]
    if not images:
        raise Unsupported(f"{reference} is an index that holds no image")
    for child in images:
        yield child.platform, reference.with_digest(child.digest)


def _check_platform(client: RegistryClient, place: Reference, image: Manifest, platform: str) -> None:
    """Raises Unsupported for an image of another platform: what it has attached is no answer."""
    document = client.image_configuration(place, image)
    made_for = "/".join(str(document.get(key, "")) for key in ("os", "architecture"))
    # a variant (linux/arm64/v8) is stated in indexes, and in few configurations
    if made_for != "/".join(platform.split("/")[:2]):
        raise Unsupported(f"{place} is an image for {made_for}, not for {platform}")


def write_documents(images: Iterable[ReadImage], folder: Path) -> tuple[Path, ...]:
    """Write what was read into a folder, a file an artifact: KIND-DIGEST.json. Raises StorageFailed."""
    files = {
        folder / f"{one.kind.value}-{one.referrer.digest.partition(':')[2]}.json": one.content
        for image in images
        for one in image.found
        if one.content
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
    except OSError as error:
        raise StorageFailed(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            resolution="name another folder with --output",
        ) from error
    return tuple(files)
