"""A Kubernetes API server.

Requests and what their answers mean; `kubeconfig` finds the server, `login` logs in. A client library's watch
has no bookmarks and waits without end on a connection that died, and its models decode every field of an
object (lightkube 1.0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import httpx2
import msgspec

from driverforge_core.errors import Unavailable
from driverforge_operator.cluster.answers import (
    Lists,
    changes,
    deleted,
    one_of,
    refused,
    shape_of,
    translated,
)
from driverforge_operator.cluster.kubeconfig import find
from driverforge_operator.cluster.login import client
from driverforge_operator.ports import (
    Document,
    Event,
    Gone,
    Kind,
    Loaded,
    Log,
    Misled,
    Page,
    Right,
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


class _Allowed(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    kind: Literal["SelfSubjectAccessReview"]
    status: _Allowed


class _GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_GroupVersion]


class _Groups(msgspec.Struct):
    kind: Literal["APIGroupList"]
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct, rename="camel"):
    kind: Literal["APIResourceList"]
    group_version: str
    resources: list[_Resource]


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
        answer = self._request("POST", path, {}, msgspec.json.encode(review))
        return shape_of(answer, _Review).status.allowed

    def _list(self, kind: Kind[Loaded], path: str, selector: Mapping[str, str]) -> Iterator[Page[Loaded]]:
        lists = Lists(kind)
        query = {"limit": str(self._page), **selector}
        more = ""
        while True:
            try:
                answer = self._request("GET", path, query | ({"continue": more} if more else {}))
            except (Gone, Misled):
                if self._serves(kind):
                    raise
                yield Page(items=(), version="", served=False)
                return
            before = more
            items, version, more = lists.read(answer)
            if more and more == before:
                raise Misled(f"the API server's list of {kind.plural} begins again and again")
            yield Page(items=items, version=version)
            if not more:
                return

    def _serves(self, kind: Kind[Any]) -> bool:
        """Whether the server has a kind, by its own discovery. Raises TemporaryFailure where it does not say.

        What is part of Kubernetes is always there.
        """
        if kind.built_in:
            return True
        groups = shape_of(self._request("GET", "/apis", {}), _Groups).groups
        served = {one.group_version for group in groups for one in group.versions}
        if "apps/v1" not in served:
            raise Misled("the API server's groups are not all of them")
        if kind.api_version not in served:
            return False
        found = shape_of(self._request("GET", f"/apis/{kind.api_version}", {}), _Resources)
        if found.group_version != kind.api_version or not found.resources:
            raise Misled(f"the API server does not say what {kind.api_version} has")
        return any(one.name == kind.plural for one in found.resources)

    def watch(self, kind: Kind[Loaded], since: str, *, labels: str = "") -> Iterator[Event[Loaded]]:
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH),
            **_selecting(kind, labels),
        }
        with (
            translated(),
            self._http.stream("GET", self._path(kind), params=query, timeout=_WATCH_TIMEOUT) as answer,
        ):
            if not answer.is_success:
                answer.read()
                refused(answer)
            version = since
            try:
                for event in changes(kind, answer.iter_bytes()):
                    version = event.version
                    yield event
            except httpx2.ReadTimeout:
                # no failure, which the next watch would be put off for
                yield Event(version=version, item=None)

    def get(self, kind: Kind[Loaded], name: str) -> Loaded:
        return one_of(kind, self._request("GET", self._path(kind, name), {}))

    def create(self, kind: Kind[Any], document: Document) -> Document:
        path = self._path(kind, namespace=document["metadata"].get("namespace", ""))
        return self._write("POST", kind, path, document, "application/json")

    def apply(self, kind: Kind[Any], document: Document) -> Document:
        metadata = document["metadata"]
        path = self._path(kind, metadata["name"], metadata.get("namespace", ""))
        return self._write("PATCH", kind, path, document, "application/apply-patch+yaml", force="true")

    def patch(self, kind: Kind[Any], name: str, body: Document, *, part: str = "") -> str:
        path = self._path(kind, name) + (f"/{part}" if part else "")
        written = self._write("PATCH", kind, path, body, "application/merge-patch+json")
        return str(written["metadata"]["resourceVersion"])

    def delete(self, kind: Kind[Any], name: str, *, orphan: bool = False) -> None:
        policy = "Orphan" if orphan else "Background"
        try:
            answer = self._request("DELETE", self._path(kind, name), {"propagationPolicy": policy})
        except Gone:
            return
        deleted(kind, answer)

    def _path(self, kind: Kind[Any], name: str = "", namespace: str = "") -> str:
        where = (namespace or kind.namespace or self._namespace) if kind.namespaced else ""
        return "/".join(filter(None, (_root(kind, namespace=where), name)))

    def _write(
        self, method: str, kind: Kind[Any], path: str, body: Document, media: str, **query: str
    ) -> Document:
        query["fieldManager"] = FIELD_MANAGER
        answer = self._request(method, path, query, msgspec.json.encode(body), media)
        written: dict[str, Any] = one_of(replace(kind, model=dict), answer)
        return written

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        media: str = "application/json",
    ) -> httpx2.Response:
        with translated():
            answer = self._http.request(
                method, path, params=dict(query), content=body, headers={"Content-Type": media}
            )
            if not answer.is_success:
                refused(answer)
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
    http = client(find(os.environ), _TIMEOUT)
    if answered is not None:
        http.event_hooks["response"].append(
            lambda answer: answered(answer.request.method, answer.request.url.path, answer.status_code)
        )
    return ApiServer(http, namespace)


def _selecting(kind: Kind[Any], labels: str) -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": f"metadata.name={kind.only}" if kind.only else ""}
    return {key: value for key, value in asked.items() if value}
