#!/bin/sh
# docker-registry 2.8 says 404 for an image index that it has.
#
# Whoever asks without `application/vnd.oci.image.index.v1+json` in Accept gets "not found", neither the
# index nor 406. A client that takes 404 for "nobody pushed it" builds an image again that is there.
set -eu
version=2.8.2+ds1-1
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download "docker-registry=$version" || exit 69
dpkg-deb -x docker-registry_*.deb program
cat >ask.py <<'PYTHON'
import hashlib, json, sys, time
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

base = f"http://127.0.0.1:{sys.argv[1]}/v2/some/image"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def ask(method, address, data=None, **headers):
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    request = Request(address, data, named, method=method)
    try:
        with urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


for _ in range(200):
    try:
        ask("GET", base.replace("/some/image", "/"))
        break
    except URLError:
        time.sleep(0.1)
else:
    sys.exit(69)


def described(kind, data):
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


config = b'{"architecture": "amd64", "os": "linux"}'
place = ask("POST", f"{base}/blobs/uploads/")[1]["Location"]
place += f"&digest={described(CONFIG, config)['digest']}"
ask("PUT", place, config, Content_Type="application/octet-stream")
manifest = json.dumps(
    {"schemaVersion": 2, "mediaType": MANIFEST, "config": described(CONFIG, config), "layers": []}
).encode()
ask("PUT", f"{base}/manifests/{described(MANIFEST, manifest)['digest']}", manifest, Content_Type=MANIFEST)
index = json.dumps(
    {"schemaVersion": 2, "mediaType": INDEX, "manifests": [described(MANIFEST, manifest)]}
).encode()
assert ask("PUT", f"{base}/manifests/1", index, Content_Type=INDEX)[0] == 201
there = ask("GET", f"{base}/manifests/1", Accept=INDEX)[0]
status, _, body = ask("GET", f"{base}/manifests/1", Accept=MANIFEST)
print("expected: the index, or 406")
print(f"seen:     {status}, {json.loads(body)['errors'][0]['message']}; with the index in Accept: {there}")
sys.exit((there, status) != (200, 404))
PYTHON
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >config.yml <<CONFIG
version: 0.1
storage: {filesystem: {rootdirectory: $work/storage}}
http: {addr: "127.0.0.1:$port"}
CONFIG
program/usr/bin/docker-registry --version || exit 69
program/usr/bin/docker-registry serve config.yml >log 2>&1 &
server=$!
no_proxy='*' python3 ask.py "$port"
