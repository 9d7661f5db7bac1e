#!/bin/sh
# docker-registry 2.8 says `Range: 0-0` of an upload that has no byte and of one that has one.
#
# The range is inclusive, so 0-0 is one byte. A client that goes on at the byte after the range skips the
# first byte of the blob where nothing had arrived, and the digest does not fit in the end.
set -eu
version=2.8.2+ds1-1
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download "docker-registry=$version" || exit 69
dpkg-deb -x docker-registry_*.deb program
cat >ask.py <<'PYTHON'
import sys, time
from urllib.error import URLError
from urllib.request import Request, urlopen

base = f"http://127.0.0.1:{sys.argv[1]}/v2/"


def ask(method, address, data=None, **headers):
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    request = Request(address, data, named, method=method)
    with urlopen(request) as answer:
        return answer.headers


for _ in range(200):
    try:
        ask("GET", base)
        break
    except URLError:
        time.sleep(0.1)
else:
    sys.exit(69)

found = []
for data in (b"", b"x", b"xy"):
    place = ask("POST", f"{base}some/image/blobs/uploads/")["Location"]
    if data:
        place = ask("PATCH", place, data, Content_Type="application/octet-stream")["Location"]
    found.append(ask("GET", place)["Range"])
print("expected: three answers that differ")
print(f"seen:     no byte {found[0]}, one byte {found[1]}, two bytes {found[2]}")
sys.exit(found != ["0-0", "0-0", "0-1"])
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
