"""`mirror copy` between real registries, and through archives that other tools read."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.cli import run as driverforge
from driverforge_core.errors import Unsupported
from driverforge_mirror.contents.ask import find_all
from driverforge_mirror.needs.needed import Needs
from driverforge_mirror.shapes import MirrorLockDocument
from driverforge_oci.client import OCI_INDEX, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach, content_of, referrers, referrers_tag
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing
from support.samples.mirrorsite import LARGE, Site, lock_of, put_large
from support.samples.vendorregistry import client, put_image

SMALL_IMAGES = ("nvidia/driver:1", "nvidia/toolkit:2", "cloud/op:3")
LARGE_IMAGE = "nvidia/large:4"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")

    def fill(address: str) -> None:
        for name in SMALL_IMAGES:
            put_image(Reference.parse(f"{address}/{name}"))
        put_large(Reference.parse(f"{address}/{LARGE_IMAGE}"), LARGE)

    return registry.filled(tmp_path_factory.mktemp("vendor"), fill)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, images: Path) -> Iterator[Site]:
    home = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    held = registry.copy_of(images, home / "vendor")
    with registry.serve(held) as vendor, registry.serve(home / "mirror") as mirror:
        made = Site(home=home, vendor=vendor.address, mirror=mirror.address)
        made.list_images([f"{vendor.address}/{name}" for name in (*SMALL_IMAGES, LARGE_IMAGE)])
        yield made
    shutil.rmtree(home)


def test_a_copy_is_whole_and_the_next_one_sends_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--to", f"{site.mirror}/kse"]
    assert site.copy(*to) == 0
    assert site.held("kse") == 0
    capsys.readouterr()
    assert site.copy(*to, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {image["state"] for image in document["images"]} == {"held"}
    assert document["sent"] == 0


def test_what_two_repositories_share_is_sent_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.copy("--to", f"{site.mirror}/kse", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    lock: MirrorLockDocument = json.loads((site.home / "mirror.lock.json").read_text())
    platforms = [one for image in lock["images"] for one in image["platforms"]]
    blobs = {digest: size for one in platforms for digest, size in one["blobs"].items()}
    assert document["sent"] == sum(blobs.values())


def test_an_image_that_is_gone_leaves_the_others_alone(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.home / "mirror.lock.json"
    lock = json.loads(path.read_text())
    missing_one = lock["images"][0]
    missing_one["platforms"][0]["blobs"] = {"sha256:" + "0" * 64: 5}
    path.write_text(json.dumps(lock))
    assert site.copy("--to", f"{site.mirror}/kse", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [image["state"] for image in document["images"]] == ["failed", "copied", "copied", "copied"]


def test_parts_that_a_registry_has_lost_come_again_with_deep(site: Site) -> None:
    to = ["--to", f"{site.mirror}/kse"]
    assert site.copy(*to) == 0
    place = Reference.parse(f"{site.mirror}/kse/nvidia/driver:1")
    platform = client().get_manifest(place).children[0].digest
    for kind, digest in (("blobs", digest_of(LARGE)), ("manifests", platform)):
        repository = "kse/nvidia/large" if kind == "blobs" else place.repository
        lost = f"http://{site.mirror}/v2/{repository}/{kind}/{digest}"
        with urllib.request.urlopen(urllib.request.Request(lost, method="DELETE")) as answer:
            assert answer.status == 202
        assert site.copy(*to) == 0
        assert site.held("kse") == 1
        assert site.copy(*to, "--deep") == 0
        assert site.held("kse") == 0


@pytest.mark.parametrize("harm", ["other bytes", "too short"])
def test_a_blob_that_the_registrys_disk_has_damaged_is_found_and_comes_again(
    site: Site, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    to = ["--to", f"{site.mirror}/kse"]
    assert site.copy(*to) == 0
    digest = digest_of(LARGE)
    hexadecimal = digest.partition(":")[2]
    blob = site.home / f"mirror/data/docker/registry/v2/blobs/sha256/{hexadecimal[:2]}/{hexadecimal}"
    damaged = LARGE[:-1] + b"x" if harm == "other bytes" else LARGE[: 20 << 20]
    (blob / "data").write_bytes(damaged)
    capsys.readouterr()
    # no question about digests finds it
    assert driverforge(["mirror", "inventory", *to, *site.listed]) == 0
    assert {one["state"] for one in json.loads(capsys.readouterr().out)["images"]} == {"held"}
    assert site.held("kse") == 1
    out, err = capsys.readouterr()
    states = [line.split()[1] for line in out.splitlines()]
    assert states == ["held", "held", "held", "damaged"]
    assert digest in out
    assert f"mirror copy --deep --to {site.mirror}/kse" in err
    assert driverforge(["mirror", "verify", "--deep", "--json", *to, *site.listed]) == 1
    document = json.loads(capsys.readouterr().out)
    check_document("mirror-inventory", document)
    assert document["images"][3]["damaged"] == [digest]
    assert digest not in document["held"]
    # as it says: out of its storage, and again
    shutil.rmtree(blob)
    assert site.copy(*to, "--deep") == 0
    assert site.held("kse") == 0


def test_a_damaged_manifest_is_found(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--to", f"{site.mirror}/kse"]
    assert site.copy(*to) == 0
    child = client().get_manifest(Reference.parse(f"{site.mirror}/kse/nvidia/driver:1")).children[1].digest
    hexadecimal = child.partition(":")[2]
    data = site.home / f"mirror/data/docker/registry/v2/blobs/sha256/{hexadecimal[:2]}/{hexadecimal}/data"
    data.write_bytes(data.read_bytes().replace(b"octet-stream", b"octet-strean"))
    assert site.held("kse") == 1
    out = capsys.readouterr().out
    assert f"kse/nvidia/driver:1  damaged  other bytes than its digest says: {child}" in out
    assert out.count("damaged") == 1


def test_an_archive_in_volumes_comes_out_as_it_went_in(site: Site) -> None:
    assert site.copy("--to-archive", str(site.archive), "--volume-size", "16M") == 0
    sums, volumes = [[name.format(n) for n in (1, 2, 3)] for name in ("gpu.{:03d}.sha256", "gpu.tar.{:03d}")]
    folder = site.archive.parent
    assert sorted(path.name for path in folder.iterdir()) == sorted([*sums, *volumes, "gpu.list.json"])
    subprocess.run(["sha256sum", "-c", *sums], cwd=folder, check=True)
    assert site.copy("--from-archive", str(site.archive), "--to", f"{site.mirror}/two") == 0
    assert site.held("two") == 0


def test_other_tools_read_an_archive(site: Site) -> None:
    assert site.copy("--to-archive", str(site.archive)) == 0
    if missing("skopeo"):
        pytest.skip("not installed: skopeo")
    lock: MirrorLockDocument = json.loads((site.home / "mirror.lock.json").read_text())
    for image in lock["images"]:
        archive = f"oci-archive:{site.archive}.tar:{image['image']}"
        raw = subprocess.run(["skopeo", "inspect", "--raw", archive], stdout=subprocess.PIPE, check=True)
        assert digest_of(raw.stdout) == image["digest"]


@pytest.mark.parametrize("harm", ["byte", "missing", "short"])
def test_a_damaged_volume_is_named_and_nothing_wrong_arrives(
    site: Site, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    assert site.copy("--to-archive", str(site.archive), "--volume-size", "16M") == 0
    volume = site.archive.with_name("gpu.tar.002")
    data = volume.read_bytes()
    if harm == "missing":
        volume.unlink()
    else:
        at = 8 << 20
        rest = b"" if harm == "short" else bytes([data[at] ^ 1]) + data[at + 1 :]
        volume.write_bytes(data[:at] + rest)
    capsys.readouterr()
    assert site.copy("--from-archive", str(site.archive), "--to", f"{site.mirror}/two") != 0
    told = capsys.readouterr().err
    assert ("gpu.tar.002" if harm != "byte" else "not those of its digest") in told
    assert site.held("two") == 1
    volume.write_bytes(data)
    assert site.copy("--from-archive", str(site.archive), "--to", f"{site.mirror}/two") == 0
    assert site.held("two") == 0


def test_only_what_the_receiver_lacks_is_carried(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    to = f"{site.mirror}/kse"
    assert site.copy("--to", to) == 0
    capsys.readouterr()
    lock = str(site.home / "mirror.lock.json")
    assert driverforge(["mirror", "inventory", "--to", to, "--mirror-lock", lock]) == 0
    inventory = site.home / "inventory.json"
    inventory.write_text(capsys.readouterr().out)
    new = Reference.parse(f"{site.vendor}/nvidia/driver:5")
    put_image(new)
    names = [image["image"] for image in json.loads(Path(lock).read_text())["images"]]
    Path(lock).write_text(json.dumps(lock_of([*names, str(new)])))
    assert site.copy("--to-archive", str(site.archive), "--inventory", str(inventory)) == 0
    assert site.archive.with_name("gpu.tar").stat().st_size < 100_000
    assert site.copy("--from-archive", str(site.archive), "--to", to) == 0
    assert site.held("kse") == 0


def test_what_lies_in_a_repository_that_the_new_list_does_not_have_is_found(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, operator = (f"{site.vendor}/{name}" for name in ("nvidia/driver:1", "cloud/op:3"))
    to = ["--to", f"{site.mirror}/kse"]
    site.list_images([driver])
    assert site.copy(*to) == 0
    capsys.readouterr()
    assert driverforge(["mirror", "inventory", *to, *site.listed]) == 0
    inventory = site.home / "inventory.json"
    inventory.write_text(capsys.readouterr().out)
    site.list_images([operator])
    assert site.copy("--to-archive", str(site.archive), "--inventory", str(inventory)) == 0
    listed = site.archive.with_name("gpu.list.json")
    document = json.loads(listed.read_text())
    check_document("mirror-archive", document)
    assert document["left_out"]
    assert document["held_in"] == ["kse/nvidia/driver"]
    # a list of an older version does not say where
    listed.write_text(json.dumps({key: value for key, value in document.items() if key != "held_in"}))
    assert site.copy("--from-archive", str(site.archive), *to) == 1
    listed.write_text(json.dumps(document))
    assert site.copy("--from-archive", str(site.archive), *to) == 0
    assert site.held("kse") == 0


# signatures and other things that refer to images

SIGNATURE = Artifact(media_type="application/vnd.site.signature", content=b"signed", slot="sig-of-ours")


def attach_all(site: Site) -> tuple[Reference, Reference, str]:
    """A referrer of an index, one of its platform with a signature of its own, a tag as cosign writes it."""
    tagged = Reference.parse(f"{site.vendor}/nvidia/driver:1")
    index = tagged.with_digest(client().head_manifest(tagged).digest)
    platform = tagged.with_digest(client().get_manifest(index).children[0].digest)
    attach(client(), index, SIGNATURE, [SIGNATURE.slot])
    sbom = Artifact(media_type="application/spdx+json", content=b"{}", slot="sbom-of-ours")
    there = attach(client(), platform, sbom, [sbom.slot])
    attach(client(), platform.with_digest(there.digest), SIGNATURE, [SIGNATURE.slot])
    cosign = f"{platform.digest.replace(':', '-')}.sig"
    put_image(tagged.with_tag(cosign), archs=["amd64"], index=False)
    path = site.home / "mirror.lock.json"
    path.write_text(json.dumps(lock_of([image["image"] for image in json.loads(path.read_text())["images"]])))
    return index, platform, cosign


@pytest.mark.parametrize("way", ["registry", "archive"])
def test_what_refers_to_images_goes_along(site: Site, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    index, platform, cosign = attach_all(site)
    to = ["--to", f"{site.mirror}/kse"]
    if way == "archive":
        assert site.copy("--to-archive", str(site.archive)) == 0
        to += ["--from-archive", str(site.archive)]
    assert site.copy(*to) == 0
    assert site.held("kse") == 0
    place = Reference.parse(f"{site.mirror}/kse/nvidia/driver:1")
    (signature,) = referrers(client(), place.with_digest(index.digest))
    assert content_of(client(), place, signature, limit=100) == b"signed"
    (sbom,) = referrers(client(), place.with_digest(platform.digest))
    assert sbom.artifact_type == "application/spdx+json"
    assert len(referrers(client(), place.with_digest(sbom.digest))) == 1
    assert client().head_manifest(place.with_tag(cosign)).digest
    capsys.readouterr()
    assert site.copy(*to, "--json") == 0
    assert {one["state"] for one in json.loads(capsys.readouterr().out)["images"]} == {"held"}


def test_a_signature_that_nobody_lists_is_not_held(site: Site) -> None:
    index, _, cosign = attach_all(site)
    assert site.copy("--to", f"{site.mirror}/kse") == 0
    place = Reference.parse(f"{site.mirror}/kse/nvidia/driver:1")
    empty = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    client().put_manifest(place.with_tag(referrers_tag(index.digest)), json.dumps(empty).encode(), OCI_INDEX)
    assert site.held("kse") == 1
    assert site.copy("--to", f"{site.mirror}/kse") == 0
    assert site.held("kse") == 0
    put_image(place.with_tag(cosign), archs=["arm64"], index=False)
    assert site.held("kse") == 1


@pytest.mark.parametrize("archs", [["amd64"], ["amd64", "arm64"]])
@pytest.mark.parametrize("way", ["registry", "archive"])
def test_chosen_platforms_alone_are_carried(site: Site, archs: list[str], way: str) -> None:
    index = put_image(
        tagged := Reference.parse(f"{site.vendor}/nvidia/wide:1"), archs=["s390x", "arm64", "amd64"]
    )
    wanted = [f"linux/{arch}" for arch in archs]
    lock = lock_of([str(tagged)], wanted)
    assert lock == lock_of([str(tagged)], wanted[::-1])
    (site.home / "mirror.lock.json").write_text(json.dumps(lock))
    to = ["--to", f"{site.mirror}/kse"]
    if way == "archive":
        assert site.copy("--to-archive", str(site.archive)) == 0
        to += ["--from-archive", str(site.archive)]
    assert site.copy(*to) == 0
    assert site.held("kse") == 0
    there = client().get_manifest(Reference.parse(f"{site.mirror}/kse/nvidia/wide:1"))
    source = client().get_manifest(tagged.with_digest(index))
    chosen = [one.digest for one in source.children if one.platform in wanted]
    assert ([one.digest for one in there.children] or [there.digest]) == chosen


def test_a_platform_that_an_image_has_not_is_an_error(site: Site) -> None:
    needs = Needs(images={f"{site.vendor}/nvidia/driver:1": []}, left_out=[], warnings=[])
    with pytest.raises(Unsupported, match="linux/riscv64") as refused:
        find_all(client(), needs, {}, ["linux/riscv64"])
    assert "linux/amd64" in str(refused.value.details)


# archives that others carry


def key_in(home: Path) -> tuple[str, str]:
    """Programs that sign and verify with a key made here."""
    key, public = home / "key.pem", home / "public.pem"
    make = ["openssl", "genpkey", "-algorithm", "RSA", "-out", key]
    for argv in (make, ["openssl", "pkey", "-in", key, "-pubout", "-out", public]):
        subprocess.run(argv, check=True, capture_output=True)
    return f"openssl dgst -sha256 -sign {key}", f"openssl dgst -sha256 -verify {public} -signature"


def test_a_list_that_nobody_signed_is_not_read(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing("openssl"):
        pytest.skip("not installed: openssl")
    signer, verifier = key_in(site.home)
    # a pipeline's, which is for what reads an archive
    monkeypatch.setenv("DRIVERFORGE_VERIFIER", "false")
    assert site.copy("--to-archive", str(site.archive), "--signer", signer) == 0
    into = ["--from-archive", str(site.archive), "--to", f"{site.mirror}/kse", "--verifier", verifier]
    listed = site.archive.with_name("gpu.list.json")
    before = listed.read_bytes()
    # another list is refused before anybody looks whether it is one
    listed.write_bytes(b"{" + before)
    assert site.copy(*into) == 65
    assert "no signature that is accepted" in capsys.readouterr().err
    listed.write_bytes(before)
    assert site.copy(*into) == 0
    # an archive that is made again without a signer has no old signature beside it
    assert site.copy("--to-archive", str(site.archive)) == 0
    assert site.copy(*into) == 65


def test_volumes_are_checked_each_alone(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.copy("--to-archive", str(site.archive), "--volume-size", "16M") == 0
    first, second, third = (site.archive.with_name(f"gpu.tar.00{n}") for n in (1, 2, 3))
    second.write_bytes(bytes([second.read_bytes()[0] ^ 1]) + second.read_bytes()[1:])
    third.unlink()
    check = ["mirror", "verify", "--archive", str(site.archive)]
    assert driverforge([*check, first.name]) == 0
    capsys.readouterr()
    assert driverforge([*check, "--json"]) == 1
    states = [volume["state"] for volume in json.loads(capsys.readouterr().out)["volumes"]]
    assert states == ["held", "damaged", "absent"]
    assert driverforge([*check, "gpu.tar.004"]) == 65


def test_a_receipt_says_what_the_next_archive_leaves_out(site: Site) -> None:
    info = {"kernelVersion": "5.15.0-131-generic", "osImage": "Ubuntu 22.04.5 LTS", "architecture": "amd64"}
    node = {"kind": "Node", "metadata": {"name": "a"}, "status": {"nodeInfo": info}}
    (site.home / "nodes.json").write_text(json.dumps(node))
    receipt, to = site.home / "receipt.json", f"{site.mirror}/kse"
    assert site.copy("--to-archive", str(site.archive)) == 0
    given = ["--receipt", str(receipt), "--nodes", str(site.home / "nodes.json")]
    assert site.copy("--from-archive", str(site.archive), "--to", to, *given) == 0
    document = json.loads(receipt.read_text())
    listed = site.archive.with_name("gpu.list.json").read_bytes()
    assert f"sha256:{document['lock']}" == digest_of(listed)
    assert [(one["kernel"], one["nodes"]) for one in document["runs"]] == [("5.15.0-131-generic", 1)]
    assert {image["state"] for image in document["images"]} == {"held"}
    assert site.copy("--to-archive", str(site.archive), "--inventory", str(receipt)) == 0
    assert site.archive.with_name("gpu.tar").stat().st_size < 100_000


def test_what_to_do_about_failures_is_said_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with registry.serve(site.home / "locked", users={"admin": "secret"}) as locked:
        assert site.copy("--to", f"{locked.address}/x") == 1
    told = capsys.readouterr().err
    assert told.count("(401)") == 4
    assert told.count("next: ") == 1
    assert "docker login" in told
