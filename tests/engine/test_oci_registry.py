"""The client against Debian's docker-registry, over each transport: what we push it serves, what it refuses
is unknown and not absent.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from driverforge_build.fetch.web import HttpxTransport
from driverforge_core.errors import NotPermitted
from driverforge_oci.auth import Login, find_login
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.http import UrllibTransport
from driverforge_oci.presence import Absent, Present, Unknown, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound, Session
from driverforge_operator.cluster.web import RegistryTransport
from support import process

pytestmark = pytest.mark.skipif(
    bool(process.missing("docker-registry", "setpriv")), reason="needs docker-registry and setpriv"
)

HTPASSWD = "ci:$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n"  # bcrypt of the password below
LOGIN = Login(user="ci", password="correct horse")
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:0"}}
"""
LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


def _serve(folder: Path, **settings: str) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    config, log = folder / "config.yml", folder / "registry.log"
    config.write_text(CONFIG.format(data=folder / "data"))
    child = process.start(["docker-registry", "serve", str(config)], log=log, env=settings)
    try:
        process.until(
            lambda: bool(LISTENING.search(log.read_text())), "docker-registry listens", child=child, log=log
        )
        found = LISTENING.search(log.read_text())
        assert found
        yield found[1]
    finally:
        process.stop(child)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _serve(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("closed")
    (folder / "htpasswd").write_text(HTPASSWD)
    users = {"REGISTRY_AUTH_HTPASSWD_REALM": "bench", "REGISTRY_AUTH_HTPASSWD_PATH": str(folder / "htpasswd")}
    yield from _serve(folder, REGISTRY_AUTH="htpasswd", **users)


ClientWith = Callable[[Mapping[str, Login]], RegistryClient]


@pytest.fixture(params=[UrllibTransport, HttpxTransport, RegistryTransport])
def client_with(request: pytest.FixtureRequest) -> ClientWith:
    """Makes clients with these logins."""
    return lambda logins: RegistryClient(Session(request.param(os.environ), partial(find_login, logins)))


def _push(client: RegistryClient, reference: Reference, *, arch: str) -> tuple[str, int]:
    """Push an image with one layer; its manifest's digest and size."""
    config = json.dumps(
        {"architecture": arch, "os": "linux", "config": {"Labels": {"version": "535.261.03", "arch": arch}}}
    ).encode()
    layer = os.urandom(3 << 20)
    client.put_blob(reference, config, digest=digest_of(config), size=len(config))
    client.put_blob(reference, lambda: io.BytesIO(layer), digest=digest_of(layer), size=len(layer))
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(config),
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": digest_of(layer),
                "size": len(layer),
            }
        ],
    }
    data = json.dumps(manifest).encode()
    return client.put_manifest(reference, data, OCI_MANIFEST), len(data)


def test_an_index_goes_there_and_back(registry: str, client_with: ClientWith) -> None:
    client = client_with({})
    image = Reference.parse(f"{registry}/{uuid4().hex}/driver:535.261.03-debian12")
    assert presence(client, image) == Absent()
    children = []
    for arch in ("amd64", "arm64"):
        digest, size = _push(client, image.with_tag(f"parts-{arch}"), arch=arch)
        children.append(
            {
                "mediaType": OCI_MANIFEST,
                "digest": digest,
                "size": size,
                "platform": {"os": "linux", "architecture": arch},
            }
        )
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": children}).encode()
    digest = client.put_manifest(image, index, OCI_INDEX)
    assert presence(client, image) == Present(digest)
    assert client.get_manifest(image.with_digest(digest)).data == index
    assert labels(client, image, "linux/arm64") == {"version": "535.261.03", "arch": "arm64"}
    layer = client.resolve(image, "linux/amd64").layers[0]
    sink = io.BytesIO()
    assert client.get_blob(image, layer.digest, sink) == layer.size == len(sink.getvalue())


def test_a_blob_is_mounted_from_another_repository(registry: str, client_with: ClientWith) -> None:
    client = client_with({})
    data = os.urandom(1000)
    assert client.put_blob(Reference.parse(f"{registry}/one:1"), data, digest=digest_of(data), size=len(data))
    two = Reference.parse(f"{registry}/two:1")
    assert not client.put_blob(two, b"never sent", digest=digest_of(data), size=10, mount_from="one")
    assert client.has_blob(two, digest_of(data))


def test_what_is_not_there(registry: str, client_with: ClientWith) -> None:
    nothing = Reference.parse(f"{registry}/nothing:1")
    with pytest.raises(NotFound) as caught:
        client_with({}).get_manifest(nothing)
    assert any("MANIFEST_UNKNOWN" in line for line in caught.value.details)


def test_without_a_login_nothing_is_known(closed_registry: str, client_with: ClientWith) -> None:
    image = Reference.parse(f"{closed_registry}/{uuid4().hex}:1")
    let_in = client_with({closed_registry: LOGIN})
    assert presence(let_in, image) == Absent()
    digest, _ = _push(let_in, image, arch="amd64")
    assert presence(let_in, image) == Present(digest)
    for client in (client_with({}), client_with({closed_registry: Login(user="ci", password="wrong")})):
        found = presence(client, image)
        assert isinstance(found, Unknown)
        assert "401" in found.reason
        with pytest.raises(NotPermitted, match="refuses"):
            client.put_blob(image, b"x", digest=digest_of(b"x"), size=1)


def test_a_registry_that_is_gone_is_unknown(tmp_path: Path, client_with: ClientWith) -> None:
    server = _serve(tmp_path / "gone")
    image = Reference.parse(f"{next(server)}/driver:1")
    assert presence(client_with({}), image) == Absent()
    server.close()  # type: ignore[attr-defined]
    found = presence(client_with({}), image)
    assert isinstance(found, Unknown)
    assert "refused" in found.reason
