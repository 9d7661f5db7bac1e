"""Manifests and blobs of a registry (OCI distribution spec 1.1), every byte checked against its digest."""

from __future__ import annotations

import hashlib
import io
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from driverforge_core.errors import InputError, TemporaryFailure, Unavailable, Unsupported
from driverforge_oci import jsontext
from driverforge_oci.reference import Reference, is_digest
from driverforge_oci.session import NotFound, Session, scope
from driverforge_oci.transport import Body, Readable, Response, host_of, joined, origin
from driverforge_oci.uploads import Uploads

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
_PAGES_LIMIT = 16 << 20
"""Bytes of all pages of a list: 100,000 tags of the longest kind."""
# Link: </v2/driver/tags/list?n=1000&last=x>; rel="next" (RFC 8288)
_NEXT_PAGE = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*", re.ASCII)
# an index of indexes is rare, a deeper one is somebody's joke
_INDEX_DEPTH = 4
# statuses of registries that do not know the list of referrers; the specification has 404 alone
_NO_REFERRERS = (400, 404, 405, 406)
# statuses of registries that list their repositories to nobody, or not to this login
_NO_CATALOGUE = (400, 401, 403, 404, 405, 501)
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


class WrongBytes(TemporaryFailure):
    """A registry gave other bytes than the digest says: sending them on would not help."""


class RegistryClient:
    """Operations on registries.

    Errors are those of Session.call: NotFound, NotPermitted, TemporaryFailure, Unavailable.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.uploads = Uploads(session)

    def head_manifest(self, reference: Reference) -> Descriptor:
        """What a tag or digest stands for.

        Its content is not fetched where the registry tells the digest in a header, as all but old ones do. An
        answer without it may be anybody's: a portal says 200 to every question.
        """
        headers = {"Accept": ACCEPT}
        response = self._session.call(
            "HEAD", reference, f"manifests/{reference.target}", expected=(200,), headers=headers
        )
        response.body.close()
        digest, size = _stated_digest(response), response.headers.get("content-length", "")
        known = digest and reference.digest in ("", digest)
        if not known or not size.isdecimal() or len(size) > _SIZE_DIGITS:
            manifest = self.get_manifest(reference)
            return Descriptor(media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.data))
        return Descriptor(media_type=_media_type(response), digest=digest, size=int(size))

    def tags(self, reference: Reference) -> list[str]:
        """All tags of a repository, page by page. Unavailable where the answer is no list of them."""
        pages = self._pages(reference, f"tags/list?n={_TAGS_A_PAGE}")
        try:
            return [tag for _, data in pages for tag in _tags(data)]
        except (ValueError, AttributeError, TypeError) as error:
            raise Unavailable(
                f"{reference.host} gives no list of the tags of {reference.repository}",
                resolution=_NO_REGISTRY,
            ) from error

    def repositories(self, reference: Reference) -> list[str] | None:
        """All repositories of the registry of `reference`; None where it lists none to this login."""
        pages = self._pages(
            reference,
            f"/v2/_catalog?n={_TAGS_A_PAGE}",
            *_NO_CATALOGUE,
            scopes=("registry:catalog:*",),
        )
        try:
            found: list[str] = []
            for response, data in pages:
                if response.status != 200:
                    return None
                found += [name for name in jsontext.parse(data)["repositories"] if isinstance(name, str)]
        except (ValueError, LookupError, TypeError):
            return None
        return found

    def delete_manifest(self, reference: Reference) -> bool:
        """Delete a manifest by its digest, and with it the tags that stand for it; False where it is gone.

        Its blobs stay until the registry collects its garbage. Unsupported where deletion is switched off.
        """
        response = self._session.call(
            "DELETE",
            reference,
            f"manifests/{reference.digest}",
            expected=(200, 202, 404, 405),
            scopes=(scope(reference, "pull,delete"),),
        )
        response.body.close()
        if response.status == 405:
            raise Unsupported(
                f"{reference.host} deletes nothing: deletion is switched off",
                resolution="switch it on where the registry runs; for docker's registry (distribution): "
                "storage.delete.enabled: true in its configuration, or REGISTRY_STORAGE_DELETE_ENABLED=true",
            )
        return response.status != 404

    def get_manifest(self, reference: Reference) -> Manifest:
        """The manifest or index, checked against the digest of the reference, else the registry's header."""
        headers = {"Accept": ACCEPT}
        response = self._session.call(
            "GET", reference, f"manifests/{reference.target}", expected=(200,), headers=headers
        )
        data = response.read(_DOCUMENT_LIMIT + 1)
        if len(data) > _DOCUMENT_LIMIT:
            raise _too_large(f"the manifest of {reference}", _DOCUMENT_LIMIT)
        stated = reference.digest or _stated_digest(response)
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
                    raise _too_large(f"{digest} of {reference}", limit)
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
        upload = self.uploads.begin(reference, digest=digest, mount_from=mount_from)
        if upload is None:
            return False
        self.uploads.finish(reference, upload, digest, body, size)
        return True

    def open_blob(self, reference: Reference, digest: str, offset: int = 0) -> Readable:
        """A blob's bytes from `offset` on, not checked against its digest: the reader has to do it.

        Whoever gets them closes them. TemporaryFailure where another part comes than was asked for.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        response = self._session.call(
            "GET", reference, f"blobs/{digest}", expected=(200, 206), headers=headers
        )
        if (response.status, offset) == (200, 0):
            return response.body
        if response.status == 200:
            # a registry that knows no ranges begins at the beginning
            return _after(response.body, offset)
        if not response.headers.get("content-range", "").startswith(f"bytes {offset}-"):
            response.body.close()
            raise TemporaryFailure(
                f"{reference.host} sends another part of {digest} than it was asked for",
                resolution=_NO_REGISTRY,
            )
        return response.body

    def put_manifest(self, reference: Reference, data: bytes, media_type: str) -> str:
        """Store a manifest under the reference's tag or digest; returns its digest.

        The manifest's parts must be there already.
        """
        return self._put_manifest(reference, data, media_type)[0]

    def put_referrer(self, reference: Reference, data: bytes, media_type: str = OCI_MANIFEST) -> bool:
        """Store a manifest that names a subject, as `put_manifest` does.

        Returns whether the registry lists it by itself (OCI-Subject); if not, its client keeps the list.
        """
        return "oci-subject" in self._put_manifest(reference, data, media_type)[1]

    def referrers(self, reference: Reference) -> tuple[Descriptor, ...] | None:
        """What names a digest as its subject; None where the registry has no such list of its own."""
        found: list[Descriptor] = []
        for response, data in self._pages(reference, f"referrers/{reference.digest}", *_NO_REFERRERS):
            # a proxy, or a registry's web page, may answer with anything
            if response.status != 200 or _media_type(response) != OCI_INDEX:
                return None
            found += _manifest(reference, OCI_INDEX, "", data).children
        return tuple(found)

    def _pages(
        self, reference: Reference, path: str, *also: int, scopes: tuple[str, ...] = ()
    ) -> Iterator[tuple[Response, bytes]]:
        """The answers that make up a list: all of them, or Unavailable.

        `also` are statuses that count as an answer, beside 200.
        """
        home, left = self._session.base(reference.host), _PAGES_LIMIT
        for _ in range(_MOST_PAGES):
            response = self._session.call("GET", reference, path, expected=(200, *also), scopes=scopes)
            data = response.read(left + 1)
            left -= len(data)
            if left < 0:
                raise _too_large(f"a list of {reference}", _PAGES_LIMIT)
            yield response, data
            following = _NEXT_PAGE.search(response.headers.get("link", ""))
            if following is None:
                return
            path = joined(f"{home}/v2/{reference.repository}/", following[1])
            if origin(path) != origin(home):
                raise Unavailable(
                    f"{reference.host} names another host for the rest of a list: {host_of(path)}",
                    resolution="a registry behind a proxy needs its external URL configured",
                )
        raise Unavailable(f"a list of {reference} has more than {_MOST_PAGES} pages", resolution=_NO_REGISTRY)

    def _put_manifest(
        self, reference: Reference, data: bytes, media_type: str
    ) -> tuple[str, Mapping[str, str]]:
        digest = digest_of(data, like=reference.digest)
        if reference.digest and reference.digest != digest:
            raise InputError(f"the manifest for {reference} has the digest {digest}")
        # it becomes a header, and may be of somebody who means harm
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise InputError(
                f"the manifest for {reference} is of no media type: {media_type[:100]!r}",
                resolution=_NO_IMAGE,
            )
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


def _after(body: Readable, offset: int) -> Readable:
    while offset and (piece := body.read(min(offset, _CHUNK))):
        offset -= len(piece)
    return body


def descriptor(value: object) -> Descriptor:
    """Read an OCI descriptor from JSON; Unavailable for anything that has no digest and size.

    A digest becomes part of an address, and of a file's name.
    """
    size, digest = (value.get("size"), value.get("digest")) if isinstance(value, dict) else (None, None)
    if not isinstance(value, dict) or not isinstance(size, int) or not is_digest(digest):
        raise Unavailable("a manifest holds something that is no descriptor", details=[reprlib.repr(value)])
    platform, annotations = _object(value.get("platform")), _object(value.get("annotations"))
    parts = (str(platform.get(name, "")) for name in ("os", "architecture", "variant"))
    return Descriptor(
        media_type=str(value.get("mediaType", "")),
        digest=digest,
        size=size,
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


def _tags(page: bytes) -> list[str]:
    """The tags of a page. ValueError, AttributeError or TypeError where it is none."""
    return [tag for tag in jsontext.parse(page).get("tags") or () if isinstance(tag, str)]


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


def _stated_digest(response: Response) -> str:
    """What the registry says that a manifest's digest is, '' where it says none."""
    stated = response.headers.get("docker-content-digest", "")
    return stated if is_digest(stated) else ""


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


def _too_large(what: str, limit: int) -> Unavailable:
    return Unavailable(
        f"{what} is larger than {limit >> 20} MiB, the most that is read", resolution=_NO_IMAGE
    )


def _mismatch(reference: Reference, expected: str, found: str) -> WrongBytes:
    return WrongBytes(
        f"{reference.host} gave other bytes for {reference.repository} than their digest says",
        details=[f"expected {expected}", f"found    {found}"],
        resolution="run it again; if it stays so, the registry's storage or a proxy in between is damaged",
    )
