"""An API server's answers on the loopback, and what comes in their place: a test says which.

What proxies, half-finished connections and servers that start up really answer is in `NONSENSE` and `PAGE`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx2

from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.ports import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer; its connection ends `short` of that many bytes of the body."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    short: int = 0


def told(document: object, *, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(document).encode())


PAGE = Reply(status=404, body=b"default backend - 404", kind="text/plain; charset=utf-8")
"""What ingress-nginx answers where it knows no way."""


def refusal(status: int, reason: str = "") -> Reply:
    """A `Status` as the API server writes it."""
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "as the test says",
        "reason": reason,
        "code": status,
    }
    return told({key: value for key, value in document.items() if value != ""}, status=status)


def page_of(kind: Kind[Any], *items: Any, version: str = "7", more: str = "") -> dict[str, Any]:
    """A page of a list as the API server writes it."""
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    whole = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    return {**whole, "items": list(items)}


def nonsense(kind: Kind[Any]) -> dict[str, Reply]:
    """Answers of status 200 to a list of a kind of which none is one."""
    right = page_of(kind)
    text = json.dumps(page_of(kind, {"metadata": {"name": "a"}})).encode()
    deep = b'{"kind":' + b"[" * 50_000
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    one = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"name": "a"}}
    return {
        "nothing": Reply(),
        "null": told(None),
        "empty object": told({}),
        "empty list": told([]),
        "login page": Reply(body=b"<!DOCTYPE html><title>Sign in</title>", kind="text/html"),
        "null items": told({**right, "items": None}),
        "no items": told({key: value for key, value in right.items() if key != "items"}),
        "no version": told({**right, "metadata": {}}),
        "empty version": told({**right, "metadata": {"resourceVersion": ""}}),
        "no metadata": told({key: value for key, value in right.items() if key != "metadata"}),
        "another kind": told({**right, "kind": "PodTemplateList"}),
        "another group": told({**right, "apiVersion": "example.com/v1"}),
        "kubectl's list": told({**right, "kind": "List", "apiVersion": "v1"}),
        "a table": told({**right, "kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}),
        "a Status": told(status),
        "one object": told(one),
        "items without names": told({**right, "items": [{"metadata": {}}, {}]}),
        "half of the text": Reply(body=text[: len(text) // 2]),
        "half of the connection": Reply(body=text, short=len(text) // 2),
        "two texts": Reply(body=text + text),
        "no UTF-8": Reply(body=text.replace(b'"a"', b'"\xff"')),
        "too deep": Reply(body=deep),
    }


Decide = Callable[[str, str], Reply]
"""An answer by method and path with its query."""


@dataclass(slots=True)
class Answers:
    """A server on the loopback; `asked` are the requests, as 'GET /api/v1/nodes'."""

    decide: Decide = lambda method, path: PAGE
    asked: list[str] = field(default_factory=list)

    def say(self, *replies: Reply) -> None:
        """Answer so one after the other, and the last one on and on."""
        left: list[Reply] = list(replies)
        self.decide = lambda method, path: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def answering(namespace: str = "gpu-operator") -> Iterator[tuple[Answers, ApiServer]]:
    """The server, and the operator's way to it, while the block runs."""
    found = Answers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # head and body are two packets, of which the second would wait for the first one's receipt
        disable_nagle_algorithm = True

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.asked.append(f"{self.command} {urlsplit(self.path).path}")
            reply = found.decide(self.command, self.path)
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.short])
            self.close_connection = bool(reply.short)

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """What was asked is in `asked`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            with httpx2.Client(base_url=address, trust_env=False) as http:
                yield found, ApiServer(http, namespace)
        finally:
            server.shutdown()
            thread.join()


def discovery(*served: Kind[Any]) -> Decide:
    """What a server says of its kinds that has these, beside Kubernetes' own; a page elsewhere."""
    versions: dict[str, list[Kind[Any]]] = {"apps/v1": []}
    for kind in served:
        versions.setdefault(kind.api_version, []).append(kind)

    def decide(method: str, path: str) -> Reply:
        if path == "/apis":
            groups = [{"versions": [{"groupVersion": one}]} for one in versions]
            return told({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        kinds = versions.get(path.removeprefix("/apis/"))
        if kinds is None:
            return PAGE
        return resources_of(path.removeprefix("/apis/"), [one.plural for one in kinds])

    return decide


def resources_of(version: str, plurals: Sequence[str]) -> Reply:
    """What a server says of a version of a group."""
    named = [{"name": one} for one in plurals or ("others",)]
    return told({"kind": "APIResourceList", "groupVersion": version, "resources": named})
