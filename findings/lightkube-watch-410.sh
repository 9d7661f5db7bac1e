#!/bin/sh
# lightkube asks for an expired version again after HTTP 410, though not after an event with that code.
#
# An API server says that a version is too old in two ways: as an event of the watch, or as the status of
# the answer. After the event lightkube begins anew. After the status it repeats the request as it was,
# which can never succeed.
set -eu
version=1.0.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=
for name in python3 python3.13 python3.12 python3.11; do
	"$name" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$name && break
done
[ -n "$python" ] || exit 69
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
cat >constraints.txt <<'PINS'
anyio==4.16.0
h11==0.16.0
h2==4.4.1
hpack==4.2.0
httpcore2==2.16.2
httpx2==2.16.2
hyperframe==6.1.0
idna==3.20
lightkube-models==1.37.0.8
msgspec==0.22.0
pyyaml==6.0.4
truststore==0.10.5
typing_extensions==4.16.0
wsproto==1.3.2
PINS
"$python" -m pip install -q --target packages -c constraints.txt "lightkube==$version" || exit 69
PYTHONPATH=packages "$python" -c 'import lightkube' || exit 69
cat >watch.py <<'PYTHON'
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.resources.core_v1 import Node
from lightkube.types import OnErrorAction, OnErrorResult

GONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version: 5 (900)"}  # fmt: skip


def configuration(server):
    parts = {"clusters": {"server": server}, "users": {}, "contexts": {"cluster": "it", "user": "it"}}
    rows = {name: [{"name": "it", name[:-1]: value}] for name, value in parts.items()}
    return KubeConfig.from_dict({"current-context": "it", **rows})


class Server(BaseHTTPRequestHandler):
    asked, as_event = [], False

    def do_GET(self):
        self.asked.append(parse_qs(urlsplit(self.path).query).get("resourceVersion", [""])[0])
        data = json.dumps({"type": "ERROR", "object": GONE} if self.as_event else GONE).encode() + b"\n"
        self.send_response(200 if self.as_event else 410)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def asked(as_event):
    Server.asked, Server.as_event = [], as_event
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(configuration(f"http://127.0.0.1:{server.server_port}"), trust_env=False)

        def go_on(*_):
            return OnErrorResult(OnErrorAction.RETRY if len(Server.asked) < 3 else OnErrorAction.STOP)

        for _ in client.watch(Node, resource_version="5", on_error=go_on):
            pass
        server.shutdown()
    return Server.asked


event, status = asked(True), asked(False)
print("expected: after either, a request without the expired version")
print(f"seen:     versions asked for after the event {event}, after the status {status}")
sys.exit(not ("" in event and set(status) == {"5"} and len(status) > 1))
PYTHON
echo "lightkube $version"
PYTHONPATH=packages "$python" watch.py
