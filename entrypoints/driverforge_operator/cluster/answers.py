"""What counts as an answer of the API server, and what it means.

A proxy may answer in the server's place: with a page of its own, with what it kept of another path, with half
of an answer. Such an answer says nothing of the cluster. In particular it does not say that something is not
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Literal, NoReturn, TypeVar

import httpx2
import msgspec

from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable
from driverforge_operator.ports import (
    Conflict,
    Event,
    Expired,
    Gone,
    Kind,
    Loaded,
    Misled,
    Overloaded,
    Unauthenticated,
)

Shape = TypeVar("Shape")
_LONGEST_WAIT = 60  # seconds
_WORDS = 1000  # characters of a page that is no Status
_SERVER_ERROR = 500
_BUSY = (429, 503)
_ERRORS: dict[int, Callable[..., Exception]] = {
    401: Unauthenticated,
    403: NotPermitted,
    404: Misled,
    409: Conflict,
    410: Expired,
    429: TemporaryFailure,
}


class _Typed(msgspec.Struct, rename="camel"):
    """An object, as far as it says what it is."""

    api_version: str
    kind: str


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str
    more: str = msgspec.field(name="continue", default="")


class _List(_Typed, Generic[Loaded]):
    metadata: _ListMetadata
    items: list[Loaded]


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Versioned(_Typed):
    metadata: _Version


class _Change(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Refusal(msgspec.Struct):
    """A `Status` object."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class Lists(Generic[Loaded]):
    """Reads the pages of a list of one kind."""

    def __init__(self, kind: Kind[Loaded]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(_List[kind.model])  # type: ignore[name-defined]

    def read(self, answer: httpx2.Response) -> tuple[tuple[Loaded, ...], str, str]:
        """The objects of a page, its version, and where the next page begins. Raises Misled.

        A list without items has an empty one: the server never leaves it out, and never writes null there
        (apimachinery's storage makes the slice before it fills it).
        """
        with translated():
            found = self._decoder.decode(answer.content)
        _is(found, self._kind.api_version, f"{self._kind.name}List")
        if not found.metadata.resource_version:
            raise Misled(f"the API server's list of {self._kind.plural} has no version")
        items = tuple(complete(self._kind, one) for one in found.items)
        return items, found.metadata.resource_version, found.metadata.more


def changes(kind: Kind[Loaded], pieces: Iterable[bytes]) -> Iterator[Event[Loaded]]:
    """What a watch tells. Raises what its errors mean, and Misled."""
    whole, objects = msgspec.json.Decoder(_Change), msgspec.json.Decoder(kind.model)
    versions, refusals = msgspec.json.Decoder(_Versioned), msgspec.json.Decoder(_Refusal)
    for line in _lines(pieces):
        change = whole.decode(line)
        if change.type == "ERROR":
            _failed(refusals.decode(change.object))
        told = versions.decode(change.object)
        _is(told, kind.api_version, kind.name)
        bookmark = change.type == "BOOKMARK"
        yield Event(
            version=told.metadata.resource_version,
            item=None if bookmark else complete(kind, objects.decode(change.object)),
            deleted=change.type == "DELETED",
        )


def one_of(kind: Kind[Loaded], answer: httpx2.Response) -> Loaded:
    """The object that was asked for. Raises Misled."""
    with translated():
        _is(msgspec.json.decode(answer.content, type=_Versioned), kind.api_version, kind.name)
        return complete(kind, msgspec.json.decode(answer.content, type=kind.model))


def deleted(kind: Kind[Any], answer: httpx2.Response) -> None:
    """See that the server has deleted an object: it answers with that, or with a Status. Raises Misled."""
    with translated():
        found = msgspec.json.decode(answer.content, type=_Typed)
    if (found.api_version, found.kind) != ("v1", "Status"):
        _is(found, kind.api_version, kind.name)


def shape_of(answer: httpx2.Response, shape: type[Shape]) -> Shape:
    """An answer that has no objects. Raises Misled."""
    with translated():
        return msgspec.json.decode(answer.content, type=shape)


def complete(kind: Kind[Loaded], item: Loaded) -> Loaded:
    """An object of a list does not say its kind; and who wrote which field is half of its size."""
    if isinstance(item, dict):
        metadata = item.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise Misled(f"an object of the API server's {kind.plural} has no name")
        item.update(apiVersion=kind.api_version, kind=kind.name)
        metadata.pop("managedFields", None)
    return item


def refused(answer: httpx2.Response) -> NoReturn:
    """Raise what an answer means that is no success."""
    try:
        told = msgspec.json.decode(answer.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = _Refusal(message=answer.text[:_WORDS])
    told.code = answer.status_code
    if told.code in _BUSY:
        brief = f"the API server asks to wait ({told.code})"
        raise Overloaded(brief, details=[told.message], seconds=_wait(answer.headers.get("Retry-After", "")))
    if told.code < httpx2.codes.BAD_REQUEST:
        raise Misled(f"something answers {told.code} in the API server's place", details=[told.message])
    _failed(told)


def _failed(told: _Refusal) -> NoReturn:
    """Raise what a refusal means. A watch says in its stream what others say by their status."""
    # what is not there only the server itself knows: a proxy that has lost its way answers 404, too
    if (told.code, told.kind, told.reason) == (404, "Status", "NotFound"):
        raise Gone("the API server answers 404 NotFound", details=[told.message])
    default = TemporaryFailure if told.code >= _SERVER_ERROR else Unavailable
    raise _ERRORS.get(told.code, default)(
        f"the API server answers {told.code} {told.reason}".rstrip(), details=[told.message]
    )


def _wait(header: str) -> float:
    """Seconds of a Retry-After; the API server never writes a date there."""
    return min(float(header), _LONGEST_WAIT) if header.isdecimal() else 0


def _is(found: _Typed, api_version: str, kind: str) -> None:
    if (found.api_version, found.kind) != (api_version, kind):
        told = f"asked for {kind} of {api_version}, answered with {found.kind} of {found.api_version}"
        raise Misled("the API server's answer is none", details=[told])


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines as the server ends them. httpx2's own end at U+0085 too, which objects have within a text."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun)
            begun = [other]
    if last := b"".join(begun):
        yield last


@contextmanager
def translated() -> Iterator[None]:
    """Raise failures of the connection, and answers that are none, as ours."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misled("the API server's answer is none", details=[str(error)]) from error
    except (httpx2.HTTPError, OSError) as error:
        told = f"{type(error).__name__}: {error}"
        raise TemporaryFailure("the API server does not answer", details=[told]) from error
