#!/bin/sh
# An upload that broke off within a request can neither be gone on with nor be ended.
#
# The specification lets a client ask an upload how far it is, go on there, or cancel it with DELETE. Once a
# PATCH has ended before its Content-Length, docker-registry 2.8.2 refuses all of them: its state of the upload
# is in the address that it gave before, and no longer fits what it has on disk. The bytes stay there until the
# registry's own purge, a week later.
set -eu
version=2.8.2+ds1-1
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download "docker-registry=$version" || exit 69
dpkg-deb -x ./*.deb program
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >config.yml <<CONFIG
version: 0.1
storage: {filesystem: {rootdirectory: $work/storage}, delete: {enabled: true}}
http: {addr: "127.0.0.1:$port"}
CONFIG
program/usr/bin/docker-registry --version || exit 69
program/usr/bin/docker-registry serve config.yml >log 2>&1 &
server=$!
python3 - "$port" <<'PYTHON'
import http.client
import socket
import sys
import time
from urllib.parse import urlsplit

HOST = ("127.0.0.1", int(sys.argv[1]))


def ask(method, path, body=None, **headers):
    connection = http.client.HTTPConnection(*HOST, timeout=10)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


for _ in range(100):
    try:
        ask("GET", "/v2/")
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit(69)


def path_of(answer):
    parts = urlsplit(answer.headers["Location"])
    return f"{parts.path}?{parts.query}"


begun = path_of(ask("POST", "/v2/a/blobs/uploads/"))
whole = path_of(ask("PATCH", begun, b"x" * 1000, **{"Content-Type": "application/octet-stream"}))
# of 1000 bytes more only 400 come
with socket.create_connection(HOST) as broken:
    head = f"PATCH {whole} HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n"
    broken.sendall(head.encode() + b"x" * 400)
    broken.shutdown(socket.SHUT_WR)
    broken.recv(65536)
asked, ended = ask("GET", whole).status, ask("DELETE", whole).status
print("expected: GET says how far it is (204), DELETE ends the upload (204)")
print(f"seen:     GET {asked}, DELETE {ended}")
sys.exit(0 if (asked, ended) == (404, 404) else 1)
PYTHON
