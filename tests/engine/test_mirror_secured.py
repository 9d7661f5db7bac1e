"""`mirror copy` between registries as sites run them: with and without logins, TLS and their own authority.

Debian's docker-registry 2.8 and, with --full, distribution 3.1.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driverforge_oci.client import OCI_INDEX, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach
from support.machines import registry
from support.process import missing
from support.samples.mirrorsite import Site, lock_of, put_large, scratch, some
from support.samples.vendorregistry import client, put_image
from support.skipping import provided
from support.upstream.registries import DISTRIBUTION, program

USERS = {"mirror": "of a bench"}
LARGE = some("large", 128 << 20)


@pytest.fixture(
    params=[
        "docker-registry",
        # it has the clients of all clouds to compile
        pytest.param("distribution", marks=pytest.mark.full(reason="compiles distribution 3")),
    ]
)
def server(request: pytest.FixtureRequest) -> str | Path:
    if gone := missing("docker-registry", "setpriv", "openssl"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    return provided(lambda: program(DISTRIBUTION)) if request.param == "distribution" else request.param


@pytest.fixture(params=[False, True], ids=["open", "closed"])
def site(
    request: pytest.FixtureRequest, server: str | Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    closed = request.param
    with scratch() as home, ExitStack() as serving:
        with registry.serve(home / "vendor", program=server) as filled:
            lock = json.dumps(lock_of(fill(filled.address)))
        identity = registry.identity(home / "tls") if closed else None
        users = USERS if closed else None
        vendor, mirror = (
            serving.enter_context(
                registry.serve(home / name, program=server, users=users, identity=identity)
            ).address
            for name in ("vendor", "mirror")
        )
        (home / "mirror.lock.json").write_text(lock.replace(filled.address, vendor))
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        if identity:
            monkeypatch.setenv("SSL_CERT_FILE", str(identity.file))
            monkeypatch.setenv("DOCKER_CONFIG", str(home))
            login = base64.b64encode(":".join(*USERS.items()).encode()).decode()
            auths = {address: {"auth": login} for address in (vendor, mirror)}
            (home / "config.json").write_text(json.dumps({"auths": auths}))
        yield Site(home=home, vendor=vendor, mirror=mirror)


def fill(address: str) -> list[str]:
    """An index with an attestation, as BuildKit makes it, with referrers and a cosign tag; a large image."""
    place = Reference.parse(f"{address}/nvidia/driver:1")
    put_image(place)
    index = json.loads(client().get_manifest(place).data)
    subject = index["manifests"][0]["digest"]
    attested = put_image(place.with_tag("attestation"), archs=["unknown"], index=False)
    index["manifests"].append(
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": attested,
            "size": len(client().get_manifest(place.with_digest(attested)).data),
            "platform": {"os": "unknown", "architecture": "unknown"},
            "annotations": {
                "vnd.docker.reference.type": "attestation-manifest",
                "vnd.docker.reference.digest": subject,
            },
        }
    )
    whole = json.dumps(index).encode()
    client().put_manifest(place, whole, OCI_INDEX)
    for digest in (digest_of(whole), subject):
        one = Artifact(media_type="application/vnd.site.sbom", content=digest.encode(), slot="sbom-of-ours")
        attach(client(), place.with_digest(digest), one, [one.slot])
    put_image(place.with_tag(f"{digest_of(whole).replace(':', '-')}.sig"), archs=["amd64"], index=False)
    return [str(place), put_large(place.with_tag("large"), LARGE)]


def test_a_copy_that_is_killed_goes_on_and_all_is_there(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--to", f"{site.mirror}/kse"]
    begun = site.home / "cache/driverforge/uploads.json"
    with site.start(*to) as child:
        # not `until`: a few parts take less than its steps
        while not begun.exists() and child.poll() is None:
            time.sleep(0.001)
        child.kill()
        child.communicate()
    assert site.copy(*to) == 0
    assert site.held("kse") == 0
    lock = json.loads((site.home / "mirror.lock.json").read_text())
    assert len(lock["images"][0]["platforms"]) == 3
    assert len(lock["images"][0]["attached"]) == 3
    capsys.readouterr()
    assert site.copy(*to, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {image["state"] for image in document["images"]} == {"held"}


def test_archives_come_from_and_go_to_such_registries(site: Site) -> None:
    assert site.copy("--to-archive", str(site.archive), "--volume-size", "24M") == 0
    assert site.copy("--from-archive", str(site.archive), "--to", f"{site.mirror}/kse") == 0
    assert site.held("kse") == 0
    everything = b"".join(path.read_bytes() for path in site.archive.parent.iterdir())
    assert USERS["mirror"].encode() not in everything


def test_a_registry_that_wants_a_login_or_is_not_known_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (site.home / "config.json").exists():
        pytest.skip("it is open")
    to = ["--to", f"{site.mirror}/kse"]
    monkeypatch.setenv("DOCKER_CONFIG", str(site.home / "nobody"))
    assert site.copy(*to) == 1
    assert f"docker login {site.mirror}" in capsys.readouterr().err
    monkeypatch.delenv("SSL_CERT_FILE")
    assert site.copy(*to) == 1
    assert "a certificate that this machine does not trust" in capsys.readouterr().err
