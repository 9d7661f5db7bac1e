"""Uploads of blobs, piece by piece (OCI distribution spec 1.1, "Pushing blobs"): they can be gone on with."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

from driverforge_core.errors import NotPermitted, Unavailable
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session, scope
from driverforge_oci.transport import Body, Response

_RANGE = re.compile(r"(?:bytes=)?0-(\d{1,19})")
# bytes of an upload that a registry digests and stores at least, on a slow disk or behind an object store
_STORED_A_SECOND = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload that a registry has begun: `location` takes its next bytes, `offset` says how many it has.

    The location changes with each piece, and may carry a secret.
    """

    location: str
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What a request sends: `size` bytes, `span` of the blob where they are a part of it."""

    body: Body = b""
    size: int = 0
    span: str = ""

    @property
    def headers(self) -> dict[str, str]:
        kind = {"Content-Type": "application/octet-stream"} if self.size else {}
        part = {"Content-Range": self.span} if self.span else {}
        return {"Content-Length": str(self.size), **kind, **part}


class Uploads:
    """Errors are those of Session.call. `place` is a repository, its tag and digest do not matter."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, place: Reference, *, digest: str = "", mount_from: str = "") -> Upload | None:
        """Begin an upload; None where the registry has taken the blob from another of its repositories.

        `mount_from` is that repository, which nobody need have, or be let into: the upload begins then.
        """
        query = "?" + urllib.parse.urlencode({"mount": digest, "from": mount_from}) if mount_from else ""
        further = (f"repository:{mount_from}:pull",) if mount_from else ()
        try:
            answer = self._send("POST", place, f"blobs/uploads/{query}", (201, 202), _Sent(), scopes=further)
        except NotPermitted:
            if mount_from:
                return self.begin(place)
            raise
        return None if answer.status == 201 else Upload(location=_location(place, answer))

    def standing(self, place: Reference, upload: Upload) -> Upload:
        """How far an upload has come. NotFound, Unavailable where the registry does not go on with it."""
        answer = self._send("GET", place, upload.location, (204,))
        return Upload(location=_location(place, answer), offset=_end(answer))

    def append(self, place: Reference, upload: Upload, part: Body, size: int) -> Upload:
        """Send the next `size` bytes."""
        end = upload.offset + size
        sent = _Sent(body=part, size=size, span=f"{upload.offset}-{end - 1}")
        answer = self._send("PATCH", place, upload.location, (202,), sent)
        return Upload(location=_location(place, answer), offset=end)

    def finish(self, place: Reference, upload: Upload, digest: str, body: Body = b"", size: int = 0) -> None:
        """Send what is left, if anything: the registry compares the whole with the digest.

        It answers when it has done so, and has moved the whole to its place.
        """
        sign = "&" if "?" in upload.location else "?"
        target = upload.location + sign + urllib.parse.urlencode({"digest": digest})
        slack_s = (upload.offset + size) / _STORED_A_SECOND
        self._send("PUT", place, target, (201,), _Sent(body=body, size=size), slack_s=slack_s)

    def _send(
        self,
        method: str,
        place: Reference,
        path: str,
        expected: tuple[int, ...],
        sent: _Sent | None = None,
        *,
        scopes: tuple[str, ...] = (),
        slack_s: float = 0.0,
    ) -> Response:
        answer = self._session.call(
            method,
            place,
            path,
            expected=expected,
            headers=sent.headers if sent else {},
            body=sent.body if sent else None,
            scopes=(scope(place, "pull,push"), *scopes),
            slack_s=slack_s,
        )
        answer.body.close()
        return answer


def _location(place: Reference, answer: Response) -> str:
    location = answer.headers.get("location", "")
    if not location:
        raise Unavailable(
            f"{place.host} takes an upload but does not say where (no Location)",
            resolution="check the address: a portal or a proxy may answer in the registry's place",
        )
    return location


def _end(answer: Response) -> int:
    """Bytes that the registry has; `Range` names the last one, and '0-0' is said of none."""
    found = _RANGE.fullmatch(answer.headers.get("range", "").strip())
    return int(found[1]) + 1 if found and found[1] != "0" else 0
