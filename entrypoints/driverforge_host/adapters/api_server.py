"""The API server by the standard library alone: node images carry no client library."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from driverforge_core.errors import InputError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_host.ports import JsonObject

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT = 30.0  # seconds for one request
LARGEST = 64 << 20  # bytes of one answer
PAGE = 250  # objects
LATER = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, what it is trusted by, and how to log in.

    `token` is asked for each request: the kubelet renews a pod's token.
    """

    host: str
    port: int
    trust: ssl.SSLContext
    token: Callable[[], str]


def find(environ: Mapping[str, str], kubeconfig: str = "", *, account: str = ACCOUNT) -> Address:
    """The cluster of a kubeconfig, else the one that this pod is in. Raises Unavailable and InputError."""
    if kubeconfig:
        return _of_kubeconfig(Path(kubeconfig))
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not port.isdigit():
        raise Unavailable(
            "no cluster is known",
            details=["KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as in a pod"],
            resolution="run this in a pod, or give a kubeconfig as JSON: KUBECONFIG",
        )
    folder = Path(account)
    try:
        trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except OSError as error:
        raise Unavailable(
            "the pod's service account cannot be read",
            details=[str(error)],
            resolution="the pod needs automountServiceAccountToken: true",
        ) from error
    return Address(
        host=host, port=int(port), trust=trust, token=lambda: (folder / "token").read_text().strip()
    )


def _of_kubeconfig(path: Path) -> Address:
    """The current context, with a token or a client certificate in files."""
    try:
        document = json.loads(path.read_text())
        context = _named(document, "context", document["current-context"])
        cluster = _named(document, "cluster", context["cluster"])
        user = _named(document, "user", context["user"])
        url = urlsplit(cluster["server"])
        trusted = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        trust = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=trusted or None
        )
        if "client-certificate" in user:
            trust.load_cert_chain(user["client-certificate"], user.get("client-key"))
        token = str(user.get("token", ""))
        host, port = str(url.hostname), url.port or 443
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise InputError(
            f"{path} is no kubeconfig that this program reads",
            details=[f"{type(error).__name__}: {error}"],
            resolution="write one with `kubectl config view --raw --minify --flatten -o json`, "
            "with a token as its user's credentials",
        ) from error
    return Address(host=host, port=port, trust=trust, token=lambda: token)


def _named(document: Any, kind: str, name: str) -> Any:
    return next(entry[kind] for entry in document[f"{kind}s"] if entry["name"] == name)


class ApiServer:
    """The `Cluster` port. A connection a request: a node's programs ask a few times a minute.

    No proxy of the environment is asked: the API server is a neighbour.
    """

    def __init__(self, address: Address, *, page: int = PAGE, largest: int = LARGEST) -> None:
        self._address = address
        self._page = page  # objects
        self._largest = largest  # bytes of one answer

    def get(self, path: str) -> JsonObject | None:
        return self._request("GET", path, absent_ok=True)

    def list(self, path: str, *, labels: str = "") -> Iterator[JsonObject]:
        after = ""
        while True:
            query = f"limit={self._page}&labelSelector={quote(labels)}&continue={quote(after)}"
            page = self._request("GET", f"{path}?{query}") or {}
            yield from page.get("items") or ()
            after = (page.get("metadata") or {}).get("continue") or ""
            if not after:
                return

    def patch(self, path: str, change: JsonObject) -> None:
        self._request("PATCH", path, change, kind="application/merge-patch+json")

    def create(self, path: str, document: JsonObject) -> None:
        self._request("POST", path, document)

    def delete(self, path: str) -> None:
        self._request("DELETE", path, absent_ok=True)

    def _request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        kind: str = "application/json",
        absent_ok: bool = False,
    ) -> JsonObject | None:
        where = self._address
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": "driverforge-node"}
        data = json.dumps(body).encode() if body is not None else None
        connection = http.client.HTTPSConnection(where.host, where.port, context=where.trust, timeout=TIMEOUT)
        try:
            if token := where.token():
                headers["Authorization"] = f"Bearer {token}"
            with closing(connection):
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                text = response.read(self._largest + 1)
        except (OSError, http.client.HTTPException) as error:
            raise TemporaryFailure(
                f"the API server does not answer: {method} {path.partition('?')[0]}",
                details=[f"https://{where.host}:{where.port}: {error!r}"],
                resolution="look whether the node reaches the API server; this is tried again",
            ) from error
        if response.status == http.client.NOT_FOUND and absent_ok:
            return None
        if len(text) > self._largest:
            raise Unavailable(
                f"the API server's answer is larger than {self._largest} bytes",
                details=[f"{method} {path.partition('?')[0]}"],
            )
        if response.status >= 300:
            raise _refusal(f"{method} {path.partition('?')[0]}", response.status, text)
        return _object(path, text)


def _object(path: str, text: bytes) -> JsonObject:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"the answer to {path} is no JSON", details=[str(error)]) from error
    if not isinstance(found, dict):
        raise Unavailable(f"the answer to {path} is no JSON object")
    return found


def _refusal(asked: str, status: int, text: bytes) -> Unavailable | NotPermitted:
    details = [f"HTTP status {status}", text[:2000].decode(errors="replace")]
    if status in (401, 403):
        return NotPermitted(
            f"the API server does not let us {asked}",
            details=details,
            resolution="give this right to the service account of the pod (docs/validate.md names them)",
        )
    if status in LATER:
        return TemporaryFailure(f"the API server cannot do this now: {asked}", details=details)
    return Unavailable(f"the API server refuses {asked}", details=details)
