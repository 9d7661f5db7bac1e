"""A registry in memory behind the transport port. No socket is opened.

It gives the distribution specification's answers, and trouble on demand.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from driverforge_oci.auth import Login
from driverforge_oci.client import OCI_INDEX
from driverforge_oci.transport import Request, Response

HOST = "registry.site"
TOKEN_SERVICE = "https://auth.site/token"


@dataclass(slots=True)
class MemoryRegistry:
    """A registry that may want a login.

    `auth` is '', 'basic' or 'bearer'. `login` is whom it lets in; with None anybody gets a token. `trouble`
    may answer first. `blob_host` moves blobs behind a redirect, as registries with a CDN do. Every request is
    kept in `log`. With `lists_referrers` it has OCI's referrers API, in pages of that many.
    """

    auth: str = ""
    login: Login | None = None
    blob_host: str = ""
    lists_referrers: int = 0
    trouble: Callable[[Request], Response | None] = lambda request: None
    # (repository, tag or digest) -> type, bytes
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    log: list[Request] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)  # token -> its scopes

    def send(self, request: Request) -> Response:
        self.log.append(request)
        if answer := self.trouble(request):
            return answer
        parts = urllib.parse.urlsplit(request.url)
        if request.url.startswith(TOKEN_SERVICE):
            return self._token(request, parts.query)
        if self.blob_host and parts.netloc == self.blob_host:
            assert "Authorization" not in request.headers, "the login went to another host"
            return self._blob(request, *parts.path.strip("/").rsplit("/", 1))
        if denied := self._denied(request):
            return denied
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs|referrers)/(.*)", parts.path)
        assert found, request.url
        repository, kind, name = found.groups()
        if kind == "referrers":
            return self._referrers(request, repository, name, urllib.parse.parse_qs(parts.query))
        if kind == "manifests":
            return self._manifest(request, repository, name)
        if name.startswith("uploads/") or not name:
            return self._upload(request, repository, urllib.parse.parse_qs(parts.query))
        if self.blob_host and request.method == "GET":
            return self._answer(307, headers={"location": f"https://{self.blob_host}/{repository}/{name}"})
        return self._blob(request, repository, name)

    def requests(self) -> list[str]:
        """What was asked for, a line a request: 'GET /v2/driver/manifests/1'."""
        return [f"{request.method} {urllib.parse.urlsplit(request.url).path}" for request in self.log]

    def add_blob(self, repository: str, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blobs[repository, digest] = data
        return digest

    def add_manifest(self, repository: str, tag: str, media_type: str, document: object) -> str:
        data = json.dumps(document).encode()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.manifests[repository, digest] = (media_type, data)
        if tag:
            self.manifests[repository, tag] = (media_type, data)
        return digest

    def _manifest(self, request: Request, repository: str, name: str) -> Response:
        if request.method == "PUT":
            assert isinstance(request.body, bytes)
            digest = "sha256:" + hashlib.sha256(request.body).hexdigest()
            for key in (name, digest):
                self.manifests[repository, key] = (request.headers["Content-Type"], request.body)
            headers = {"docker-content-digest": digest}
            subject = json.loads(request.body).get("subject")
            if self.lists_referrers and subject:
                headers["oci-subject"] = subject["digest"]
            return self._answer(201, headers=headers)
        if (repository, name) not in self.manifests:
            return self._error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        media_type, data = self.manifests[repository, name]
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        headers = {
            "content-type": media_type,
            "content-length": str(len(data)),
            "docker-content-digest": digest,
        }
        return self._answer(200, b"" if request.method == "HEAD" else data, headers)

    def _referrers(
        self, request: Request, repository: str, digest: str, query: dict[str, list[str]]
    ) -> Response:
        if not self.lists_referrers:
            return answer(404, b"404 page not found\n", {"content-type": "text/plain; charset=utf-8"})
        found = []
        for (place, name), (media_type, data) in sorted(self.manifests.items()):
            document = json.loads(data)
            if place == repository and document.get("subject", {}).get("digest") == digest and ":" in name:
                entry = {"mediaType": media_type, "digest": name, "size": len(data)}
                keys = {key: document[key] for key in ("artifactType", "annotations") if key in document}
                found.append(entry | keys)
        begin = int(query.get("from", ["0"])[0])
        end = begin + self.lists_referrers
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found[begin:end]}
        headers = {"content-type": OCI_INDEX}
        if end < len(found):
            headers["link"] = f'</v2/{repository}/referrers/{digest}?from={end}>; rel="next"'
        return self._answer(200, json.dumps(index).encode(), headers)

    def _blob(self, request: Request, repository: str, digest: str) -> Response:
        if (repository, digest) not in self.blobs:
            return self._error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        return self._answer(200, b"" if request.method == "HEAD" else self.blobs[repository, digest])

    def _upload(self, request: Request, repository: str, query: dict[str, list[str]]) -> Response:
        if request.method == "POST":
            source = (query.get("from", [""])[0], query.get("mount", [""])[0])
            if source in self.blobs:
                self.blobs[repository, source[1]] = self.blobs[source]
                return self._answer(201)
            return self._answer(202, headers={"location": f"/v2/{repository}/blobs/uploads/1?_state=x%3D"})
        assert query["_state"] == ["x="]
        if callable(request.body):
            with request.body() as stream:
                data = stream.read()
        else:
            body = request.body or b""
            data = b"".join(body) if isinstance(body, tuple) else body
        assert request.headers["Content-Length"] == str(len(data))
        if self.add_blob(repository, data) != query["digest"][0]:
            return self._error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        return self._answer(201)

    def _token(self, request: Request, query: str) -> Response:
        form = urllib.parse.parse_qs(request.body.decode() if isinstance(request.body, bytes) else query)
        if (
            self.login
            and request.headers.get("Authorization") != self.login.basic
            and form.get("refresh_token") != [self.login.identity_token]
        ):
            return self._error(401, "UNAUTHORIZED", "incorrect username or password")
        token = f"token-{len(self.tokens)}"
        self.tokens[token] = " ".join(form["scope"])
        return self._answer(200, json.dumps({"token": token, "expires_in": 300}).encode())

    def _denied(self, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "")
        actions = "pull" if request.method in ("GET", "HEAD") else "pull,push"
        repository = request.url.split("/v2/")[1].split("/")[0]
        if self.auth == "basic" and (self.login is None or given != self.login.basic):
            return self._error(
                401, "UNAUTHORIZED", "authentication required", {"www-authenticate": 'Basic realm="registry"'}
            )
        granted = self.tokens.get(given.removeprefix("Bearer "), "")
        enough = (f"repository:{repository}:{actions}", f"repository:{repository}:pull,push")
        if self.auth == "bearer" and not any(scope in granted for scope in enough):
            challenge = (
                f'Bearer realm="{TOKEN_SERVICE}",service="{HOST}",scope="repository:{repository}:{actions}"'
            )
            return self._error(
                401, "UNAUTHORIZED", "authentication required", {"www-authenticate": challenge}
            )
        return None

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Response:
        return answer(status, body, {"docker-distribution-api-version": "registry/2.0", **(headers or {})})

    def _error(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        return self._answer(
            status, json.dumps({"errors": [{"code": code, "message": message}]}).encode(), headers
        )


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Response:
    return Response(status=status, headers=headers or {}, body=io.BytesIO(body))
