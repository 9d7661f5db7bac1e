"""A Kubernetes API server.

lightkube finds it, trusts it and logs in: kubeconfig or service account, rotated tokens, client certificates,
exec plugins. The requests are made here, because its own watch has no bookmarks and waits without end on a
connection that died, and its models decode every field of an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NoReturn

import httpx2
import msgspec
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError

from driverforge_core.errors import InputError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_operator.ports import (
    Conflict,
    Document,
    Event,
    Expired,
    Gone,
    Kind,
    Loaded,
    Log,
    Overloaded,
    Page,
    Right,
    Unauthenticated,
)

FIELD_MANAGER = "driverforge-operator"
PAGE = 500  # objects
_TIMEOUT = httpx2.Timeout(30)
WATCH = 300
"""Seconds after which the server ends a watch."""
SILENCE = 90
"""Seconds in which a watch is told nothing before it is asked for again.

The API server sends a bookmark each minute, a second or two late (its defaultBookmarkFrequency). One that is
silent for half as long again is dead, or sends no bookmarks: to that one a new watch is one request.
"""
_WATCH_TIMEOUT = httpx2.Timeout(30, read=SILENCE)


class _ListMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    more: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[Loaded]):
    metadata: _ListMetadata
    items: list[Loaded]


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Versioned(msgspec.Struct):
    metadata: _Version


class _Refusal(msgspec.Struct):
    """A `Status` object."""

    message: str = ""
    reason: str = ""
    code: int = 0


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


class ApiServer:
    """Satisfies `ports.Cluster` and `ports.Inspector`. One object serves several threads."""

    def __init__(self, http: httpx2.Client, namespace: str, *, page: int = PAGE) -> None:
        self._http = http
        self._namespace = namespace
        self._page = page

    def pages(self, kind: Kind[Loaded], *, labels: str = "") -> Iterator[Page[Loaded]]:
        return self._list(kind, self._path(kind), _selecting(kind, labels))

    def everywhere(self, kind: Kind[Loaded], *, fields: str = "") -> Iterator[Page[Loaded]]:
        return self._list(kind, _root(kind), {"fieldSelector": fields} if fields else {})

    def tail(self, log: Log, lines: int) -> tuple[str, ...]:
        path = f"/api/v1/namespaces/{log.namespace}/pods/{log.pod}/log"
        query = {
            "container": log.container,
            "tailLines": str(lines),
            **({"previous": "true"} if log.previous else {}),
        }
        try:
            answer = self._request("GET", path, query)
        except Unavailable:
            # 400: the container has not started, or has no earlier life; 500: its node does not answer
            return ()
        return tuple(answer.text.splitlines())

    def may(self, right: Right) -> bool | None:
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.plural,
            "subresource": right.part,
            "namespace": right.namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        with _translated():
            answer = self._request("POST", path, {}, msgspec.json.encode(review))
            return msgspec.json.decode(answer.content, type=_Review).status.allowed

    def _list(self, kind: Kind[Loaded], path: str, selector: Mapping[str, str]) -> Iterator[Page[Loaded]]:
        decoder = msgspec.json.Decoder(_List[kind.model])  # type: ignore[name-defined]
        query = {"limit": str(self._page), **selector}
        more = ""
        while True:
            try:
                answer = self._request("GET", path, query | ({"continue": more} if more else {}))
            except Gone:
                # a kind whose definition is not installed
                yield Page(items=(), version="", served=False)
                return
            with _translated():
                found = decoder.decode(answer.content)
            yield Page(
                items=tuple(_complete(kind, one) for one in found.items),
                version=found.metadata.resource_version,
            )
            more = found.metadata.more
            if not more:
                return

    def watch(self, kind: Kind[Loaded], since: str, *, labels: str = "") -> Iterator[Event[Loaded]]:
        changes, objects = msgspec.json.Decoder(_Change), msgspec.json.Decoder(kind.model)
        versions, refusals = msgspec.json.Decoder(_Versioned), msgspec.json.Decoder(_Refusal)
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH),
            **_selecting(kind, labels),
        }
        with (
            _translated(),
            self._http.stream("GET", self._path(kind), params=query, timeout=_WATCH_TIMEOUT) as answer,
        ):
            if answer.status_code >= httpx2.codes.BAD_REQUEST:
                answer.read()
                _refused(answer)
            version = since
            try:
                for line in _lines(answer.iter_bytes()):
                    change = changes.decode(line)
                    if change.type == "ERROR":
                        _failed(refusals.decode(change.object))
                    version = versions.decode(change.object).metadata.resource_version
                    bookmark = change.type == "BOOKMARK"
                    yield Event(
                        version=version,
                        item=None if bookmark else _complete(kind, objects.decode(change.object)),
                        deleted=change.type == "DELETED",
                    )
            except httpx2.ReadTimeout:
                # no failure, which the next watch would be put off for
                yield Event(version=version, item=None)

    def get(self, kind: Kind[Loaded], name: str) -> Loaded:
        answer = self._request("GET", self._path(kind, name), {})
        with _translated():
            return _complete(kind, msgspec.json.decode(answer.content, type=kind.model))

    def create(self, kind: Kind[Any], document: Document) -> Document:
        path = self._path(kind, namespace=document["metadata"].get("namespace", ""))
        return self._write("POST", path, document, "application/json")

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        metadata = document["metadata"]
        path = self._path(kind, metadata["name"], metadata.get("namespace", ""))
        return self._write("PATCH", path, document, "application/apply-patch+yaml", force="true")

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        path = self._path(kind, name) + (f"/{part}" if part else "")
        written = self._write("PATCH", path, body, "application/merge-patch+json")
        return str(written["metadata"]["resourceVersion"])

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        policy = "Orphan" if orphan else "Background"
        try:
            self._request("DELETE", self._path(kind, name), {"propagationPolicy": policy})
        except Gone:
            return

    def _path(self, kind: Kind[Any], name: str = "", namespace: str = "") -> str:
        where = (namespace or kind.namespace or self._namespace) if kind.namespaced else ""
        return "/".join(filter(None, (_root(kind, namespace=where), name)))

    def _write(self, method: str, path: str, body: Document, media: str, **query: str) -> Document:
        query["fieldManager"] = FIELD_MANAGER
        answer = self._request(method, path, query, msgspec.json.encode(body), media)
        with _translated():
            written: dict[str, Any] = msgspec.json.decode(answer.content, type=dict)
        written["metadata"].pop("managedFields", None)
        return written

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        media: str = "application/json",
    ) -> httpx2.Response:
        with _translated():
            answer = self._http.request(
                method, path, params=dict(query), content=body, headers={"Content-Type": media}
            )
            if answer.status_code >= httpx2.codes.BAD_REQUEST:
                _refused(answer)
            return answer


def _root(kind: Kind[Any], *, namespace: str = "") -> str:
    """Where the objects of a kind are: of a namespace, or all."""
    where = f"namespaces/{namespace}" if namespace else ""
    group = "/apis" if kind.group else "/api"
    return "/".join(filter(None, (group, kind.group, kind.version, where, kind.plural)))


def connect(namespace: str, *, answered: Callable[[str, str, int], None] | None = None) -> ApiServer:
    """The cluster that this pod runs in, or that the kubeconfig names.

    `answered` is told method, path and status of each answer. Raises InputError where neither says a cluster.
    """
    try:
        config = KubeConfig.from_env().get()
        if config is None:
            raise ConfigError("no kubeconfig, and no service account")
        http = Client(config, ConnectionParams(timeout=_TIMEOUT))
    except (ConfigError, OSError) as error:
        raise InputError(
            "no cluster is known",
            details=[str(error)],
            resolution="set KUBECONFIG, or run in a pod that has a service account",
        ) from error
    if answered is not None:
        http.event_hooks["response"].append(
            lambda answer: answered(answer.request.method, answer.request.url.path, answer.status_code)
        )
    return ApiServer(http, namespace)


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


def _selecting(kind: Kind[Any], labels: str) -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": f"metadata.name={kind.only}" if kind.only else ""}
    return {key: value for key, value in asked.items() if value}


def _complete(kind: Kind[Loaded], item: Loaded) -> Loaded:
    """An object of a list does not say its kind; and who wrote which field is half of its size."""
    if isinstance(item, dict):
        item.update(apiVersion=kind.api_version, kind=kind.name)
        item["metadata"].pop("managedFields", None)
    return item


def _refused(answer: httpx2.Response) -> NoReturn:
    try:
        told = msgspec.json.decode(answer.content, type=_Refusal)
    except msgspec.DecodeError:
        told = _Refusal(message=answer.text)
    told.code = answer.status_code
    if told.code in _BUSY:
        brief = f"the API server asks to wait ({told.code})"
        raise Overloaded(brief, details=[told.message], seconds=_wait(answer.headers.get("Retry-After", "")))
    _failed(told)


def _wait(header: str) -> float:
    """Seconds of a Retry-After; the API server never writes a date there."""
    return min(float(header), _LONGEST_WAIT) if header.isdecimal() else 0


_ERRORS: dict[int, Callable[..., Exception]] = {
    401: Unauthenticated,
    403: NotPermitted,
    404: Gone,
    409: Conflict,
    410: Expired,
    429: TemporaryFailure,
}
_BUSY = (429, 503)
_LONGEST_WAIT = 60  # seconds
_SERVER_ERROR = 500


def _failed(told: _Refusal) -> NoReturn:
    """Raise what a refusal means. A watch says in its stream what others say by their status."""
    default = TemporaryFailure if told.code >= _SERVER_ERROR else Unavailable
    raise _ERRORS.get(told.code, default)(
        f"the API server answers {told.code} {told.reason}".rstrip(), details=[told.message]
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (httpx2.HTTPError, ConfigError, OSError) as error:
        # ConfigError: the token's file is gone for a moment, as while it is rotated
        told = f"{type(error).__name__}: {error}"
        raise TemporaryFailure("the API server does not answer", details=[told]) from error
    except msgspec.DecodeError as error:
        raise Unavailable("the API server's answer is none", details=[str(error)]) from error
