"""Manifests and blobs of a registry (OCI distribution spec 1.1), every byte checked against its digest."""

from __future__ import annotations

import hashlib
import io
import re
import reprlib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from driverforge_core.errors import InputError, TemporaryFailure, Unavailable, Unsupported
from driverforge_oci import jsontext
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound, Session, scope
from driverforge_oci.transport import Body, Response

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (OCI_INDEX, DOCKER_LIST)
ACCEPT = f"{OCI_INDEX}, {OCI_MANIFEST}, {DOCKER_LIST}, {DOCKER_MANIFEST}"

_CHUNK = 1 << 20
_SIZE_DIGITS = 20
# what registries take at most, by the specification's recommendation; more than any configuration has
_DOCUMENT_LIMIT = 4 << 20
_TAGS_A_PAGE = 1000
_MOST_PAGES = 100
# Link: </v2/driver/tags/list?n=1000&last=x>; rel="next" (RFC 8288)
_NEXT_PAGE = re.compile(r"<([^<>]+)>\s*;[^,]*rel=\"?next")
# an index of indexes is rare, a deeper one is somebody's joke
_INDEX_DEPTH = 4
# statuses of registries that do not know the list of referrers; the specification has 404 alone
_NO_REFERRERS = (400, 404, 405, 406)
_NEXT_PAGE = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_PAGES = 100
_NO_IMAGE = "no container engine would take it: push the image anew, or ask who runs the registry"
_NO_REGISTRY = "check the address: a portal or a proxy may answer in the registry's place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """An OCI content descriptor.

    `size` is in bytes. `platform` is 'linux/amd64' or 'linux/arm64/v8', '' where none is stated, as
    `artifact_type` is.
    """

    media_type: str
    digest: str
    size: int
    platform: str = ""
    artifact_type: str = ""
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or index as the registry has it: `data` are the bytes that `digest` was made from."""

    media_type: str
    digest: str
    data: bytes = field(repr=False)

    @property
    def is_index(self) -> bool:
        return self.media_type in INDEXES

    @property
    def document(self) -> dict[str, Any]:
        document = jsontext.parse(self.data)
        # `_manifest` has checked it
        assert isinstance(document, dict)
        return document

    @property
    def children(self) -> tuple[Descriptor, ...]:
        """An index's manifests, in its order; empty for an image."""
        return _descriptors(self.document.get("manifests")) if self.is_index else ()

    def entry(self, platform: str) -> Descriptor | None:
        """An index's image for a platform ('linux/amd64')."""
        return next((child for child in self.children if _same_platform(child.platform, platform)), None)

    @property
    def config(self) -> Descriptor:
        """An image's configuration. InputError for an index."""
        return descriptor(self.document.get("config"))

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        return _descriptors(self.document.get("layers"))


class RegistryClient:
    """Operations on registries.

    Errors are those of Session.call: NotFound, NotPermitted, TemporaryFailure, Unavailable.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def head_manifest(self, reference: Reference) -> Descriptor:
        """What a tag or digest stands for.

        Its content is not fetched where the registry tells the digest in a header, as all but old ones do.
        """
        headers = {"Accept": ACCEPT}
        response = self._session.call(
            "HEAD", reference, f"manifests/{reference.target}", expected=(200,), headers=headers
        )
        response.body.close()
        digest = reference.digest or response.headers.get("docker-content-digest", "")
        size = response.headers.get("content-length", "")
        if not digest or not size.isdecimal() or len(size) > _SIZE_DIGITS:
            manifest = self.get_manifest(reference)
            return Descriptor(media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.data))
        return Descriptor(media_type=_media_type(response), digest=digest, size=int(size))

    def tags(self, reference: Reference) -> list[str]:
        """All tags of a repository, page by page. Unavailable where the answer is no list of them."""
        found: list[str] = []
        path = f"tags/list?n={_TAGS_A_PAGE}"
        for _ in range(_MOST_PAGES):
            response = self._session.call("GET", reference, path, expected=(200,))
            data = response.read(_DOCUMENT_LIMIT + 1)
            try:
                names = jsontext.parse(data).get("tags") or []
                found += [name for name in names if isinstance(name, str)]
            except (ValueError, AttributeError, TypeError) as error:
                raise Unavailable(
                    f"{reference.host} gives no list of the tags of {reference.repository}",
                    resolution=_NO_REGISTRY,
                ) from error
            following = _NEXT_PAGE.search(response.headers.get("link", ""))
            if following is None:
                break
            path = following[1]
        return found

    def get_manifest(self, reference: Reference) -> Manifest:
        """The manifest or index, checked against the digest of the reference, else the registry's header."""
        headers = {"Accept": ACCEPT}
        response = self._session.call(
            "GET", reference, f"manifests/{reference.target}", expected=(200,), headers=headers
        )
        data = response.read(_DOCUMENT_LIMIT + 1)
        if len(data) > _DOCUMENT_LIMIT:
            raise _too_large(f"the manifest of {reference}")
        stated = reference.digest or response.headers.get("docker-content-digest", "")
        digest = digest_of(data, like=stated)
        if stated and digest != stated:
            raise _mismatch(reference, stated, digest)
        return _manifest(reference, _media_type(response), digest, data)

    def resolve(self, reference: Reference, platform: str) -> Manifest:
        """The image for a platform ('linux/amd64').

        An image without an index is taken as it is, whatever platform it was made for. Unsupported, naming
        the platforms there are, where the index has none of this kind.
        """
        manifest = self.get_manifest(reference)
        for _ in range(_INDEX_DEPTH + 1):
            if not manifest.is_index:
                return manifest
            found = manifest.entry(platform)
            if found is None:
                offered = sorted({child.platform or "(none stated)" for child in manifest.children})
                raise Unsupported(
                    f"{reference} has no image for {platform}",
                    details=[f"it has: {', '.join(offered) or 'nothing'}"],
                )
            manifest = self.get_manifest(reference.with_digest(found.digest))
        raise Unavailable(
            f"{reference} is an index of indexes, more than {_INDEX_DEPTH} deep", resolution=_NO_IMAGE
        )

    def image_configuration(self, reference: Reference, image: Manifest) -> dict[str, Any]:
        """An image's configuration (image spec 1.1, config.md). Unavailable where it cannot be one."""
        sink = io.BytesIO()
        self.get_blob(reference, image.config.digest, sink, limit=_DOCUMENT_LIMIT)
        what = f"the configuration of {reference}"
        try:
            document = jsontext.parse(sink.getvalue())
        except ValueError as error:
            raise Unavailable(f"{what} cannot be read", details=[str(error)], resolution=_NO_IMAGE) from error
        if not isinstance(document, dict):
            raise Unavailable(f"{what} cannot be read: it is no JSON object", resolution=_NO_IMAGE)
        return document

    def get_blob(self, reference: Reference, digest: str, sink: BinaryIO, *, limit: int | None = None) -> int:
        """Stream a blob into `sink` and return its size; what was written counts only once this returns.

        TemporaryFailure where the bytes are not those of the digest, or end early; Unavailable where there
        are more than `limit`.
        """
        hasher, size = hashlib.new(_algorithm(digest)), 0
        response = self._session.call("GET", reference, f"blobs/{digest}", expected=(200,))
        try:
            while chunk := response.body.read(_CHUNK):
                size += len(chunk)
                if limit is not None and size > limit:
                    raise _too_large(f"{digest} of {reference}")
                hasher.update(chunk)
                sink.write(chunk)
        finally:
            response.body.close()
        found = f"{_algorithm(digest)}:{hasher.hexdigest()}"
        if found != digest:
            raise _mismatch(reference, digest, found)
        return size

    def has_blob(self, reference: Reference, digest: str) -> bool:
        try:
            self._session.call("HEAD", reference, f"blobs/{digest}", expected=(200,)).body.close()
        except NotFound:
            return False
        return True

    def put_blob(
        self, reference: Reference, body: Body, *, digest: str, size: int, mount_from: str = ""
    ) -> bool:
        """Upload a blob in one piece, unless the repository has it.

        `mount_from` names a repository on the same registry to take it from. `body` is the content or a
        function that opens it. Returns whether bytes were sent.
        """
        if self.has_blob(reference, digest):
            return False
        scopes = (scope(reference, "pull,push"), *((f"repository:{mount_from}:pull",) if mount_from else ()))
        query = "?" + urllib.parse.urlencode({"mount": digest, "from": mount_from}) if mount_from else ""
        headers = {"Content-Length": "0"}
        started = self._session.call(
            "POST",
            reference,
            f"blobs/uploads/{query}",
            expected=(201, 202),
            headers=headers,
            body=b"",
            scopes=scopes,
        )
        started.body.close()
        if started.status == 201:
            return False
        location = started.headers.get("location", "")
        if not location:
            raise Unavailable(
                f"{reference.host} begins an upload but does not say where (no Location)",
                resolution=_NO_REGISTRY,
            )
        target = location + ("&" if "?" in location else "?") + urllib.parse.urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._session.call(
            "PUT", reference, target, expected=(201,), headers=headers, body=body, scopes=scopes
        ).body.close()
        return True

    def put_manifest(self, reference: Reference, data: bytes, media_type: str) -> str:
        """Store a manifest under the reference's tag or digest; returns its digest.

        The manifest's parts must be there already.
        """
        return self._put_manifest(reference, data, media_type)[0]

    def put_referrer(self, reference: Reference, data: bytes) -> bool:
        """Store a manifest that names a subject, as `put_manifest` does.

        Returns whether the registry lists it by itself (OCI-Subject); if not, its client keeps the list.
        """
        return "oci-subject" in self._put_manifest(reference, data, OCI_MANIFEST)[1]

    def referrers(self, reference: Reference) -> tuple[Descriptor, ...] | None:
        """What names a digest as its subject; None where the registry has no such list of its own."""
        path, found = f"referrers/{reference.digest}", list[Descriptor]()
        for _ in range(_PAGES):
            response = self._session.call("GET", reference, path, expected=(200, *_NO_REFERRERS))
            data = response.read(_DOCUMENT_LIMIT + 1)
            # a proxy, or a registry's web page, may answer with anything
            if response.status != 200 or _media_type(response) != OCI_INDEX:
                return None
            if len(data) > _DOCUMENT_LIMIT:
                raise _too_large(f"the list of referrers of {reference}")
            found += _manifest(reference, OCI_INDEX, "", data).children
            following = _NEXT_PAGE.search(response.headers.get("link", ""))
            if following is None:
                return tuple(found)
            path = following[1]
        raise Unavailable(
            f"the list of referrers of {reference} has more than {_PAGES} pages", resolution=_NO_REGISTRY
        )

    def _put_manifest(
        self, reference: Reference, data: bytes, media_type: str
    ) -> tuple[str, Mapping[str, str]]:
        digest = digest_of(data, like=reference.digest)
        if reference.digest and reference.digest != digest:
            raise InputError(f"the manifest for {reference} has the digest {digest}")
        headers = {"Content-Type": media_type, "Content-Length": str(len(data))}
        scopes = (scope(reference, "pull,push"),)
        path = f"manifests/{reference.target}"
        response = self._session.call(
            "PUT", reference, path, expected=(201,), headers=headers, body=data, scopes=scopes
        )
        response.body.close()
        stated = response.headers.get("docker-content-digest", digest)
        if stated != digest:
            raise _mismatch(reference, digest, stated)
        return digest, response.headers


def descriptor(value: object) -> Descriptor:
    """Read an OCI descriptor from JSON; Unavailable for anything that has no media type, digest and size."""
    if not isinstance(value, dict) or not isinstance(value.get("size"), int):
        raise Unavailable("a manifest holds something that is no descriptor", details=[reprlib.repr(value)])
    platform, annotations = _object(value.get("platform")), _object(value.get("annotations"))
    parts = (str(platform.get(name, "")) for name in ("os", "architecture", "variant"))
    return Descriptor(
        media_type=str(value.get("mediaType", "")),
        digest=str(value.get("digest", "")),
        size=value["size"],
        platform="/".join(filter(None, parts)),
        artifact_type=str(value.get("artifactType") or ""),
        annotations=tuple(sorted((key, str(text)) for key, text in annotations.items())),
    )


def _descriptors(value: object) -> tuple[Descriptor, ...]:
    if value is not None and not isinstance(value, list):
        raise Unavailable("a manifest's list of parts is no list", details=[reprlib.repr(value)])
    return tuple(descriptor(item) for item in value or ())


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def digest_of(data: bytes, *, like: str = "") -> str:
    """'sha256:<hex>' of bytes, or of the algorithm of the digest `like`."""
    algorithm = _algorithm(like) if like else "sha256"
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def _manifest(reference: Reference, media_type: str, digest: str, data: bytes) -> Manifest:
    try:
        document = jsontext.parse(data)
    except ValueError as error:
        raise Unavailable(
            f"the manifest of {reference} is not JSON", details=[str(error)], resolution=_NO_REGISTRY
        ) from error
    if not isinstance(document, dict):
        raise Unavailable(f"the manifest of {reference} is no JSON object", resolution=_NO_REGISTRY)
    return Manifest(media_type=str(document.get("mediaType") or media_type), digest=digest, data=data)


def _media_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip()


def _algorithm(digest: str) -> str:
    algorithm = digest.partition(":")[0]
    if algorithm not in ("sha256", "sha512"):
        raise InputError(f"{digest!r} is no sha256 or sha512 digest")
    return algorithm


def _same_platform(offered: str, wanted: str) -> bool:
    """'linux/arm64/v8' satisfies 'linux/arm64', and the other way round."""
    return (
        offered == wanted
        or offered.startswith(wanted + "/")
        or (bool(offered) and wanted.startswith(offered + "/"))
    )


def _too_large(what: str) -> Unavailable:
    return Unavailable(
        f"{what} is larger than {_DOCUMENT_LIMIT >> 20} MiB, the most that is read", resolution=_NO_IMAGE
    )


def _mismatch(reference: Reference, expected: str, found: str) -> TemporaryFailure:
    return TemporaryFailure(
        f"{reference.host} gave other bytes for {reference.repository} than their digest says",
        details=[f"expected {expected}", f"found    {found}"],
        resolution="run it again; if it stays so, the registry's storage or a proxy in between is damaged",
    )
