"""Others read what `mirror copy` writes: archives in one volume and in several, and the list of images."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from driverforge_build.cli import run as driverforge
from driverforge_mirror.contents.ask import find
from driverforge_mirror.contents.listtext import image_document
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach
from support.machines import containerd, ociarchive, registry
from support.process import missing, run
from support.samples.vendorregistry import client, put_image
from support.skipping import provided
from support.upstream import registries

SIGNATURE = Artifact(media_type="application/vnd.site.signature", content=b"signed", slot="sig-of-ours")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A vendor's registry with an image that can be unpacked, an index and a signature of it; a mirror."""

    home: Path
    mirror: str
    lock: Path

    @property
    def images(self) -> dict[str, str]:
        """Name → digest."""
        return {image["image"]: image["digest"] for image in json.loads(self.lock.read_text())["images"]}

    def archive(self, volumes: str) -> Path:
        """An archive's tar file, put together where it came in several volumes."""
        folder = self.home / "out"
        words = ["mirror", "copy", "--mirror-lock", str(self.lock), "--to-archive", str(folder / "gpu")]
        if volumes == "one":
            assert driverforge(words) == 0
            return folder / "gpu.tar"
        assert driverforge([*words, "--volume-size", "1M"]) == 0
        assert len(list(folder.glob("gpu.tar.*"))) == 4
        run("sh", "-c", "cat gpu.tar.* > whole.tar", cwd=folder)
        return folder / "whole.tar"

    def place(self, name: str) -> Reference:
        """Where the mirror has an image that another tool has brought."""
        named = Reference.parse(name)
        return Reference(host=self.mirror, repository=named.repository, tag=named.tag)

    def arrived(self, name: str) -> str:
        return client().head_manifest(self.place(name)).digest


@pytest.fixture
def site() -> Iterator[Site]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    home = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    with registry.serve(home / "vendor") as vendor, registry.serve(home / "mirror") as mirror:
        driver, tool = (f"{vendor.address}/nvidia/{name}" for name in ("driver:1", "tool:2"))
        layers = [{"/etc/driver": Random(1).randbytes(3_000_000)}, {"/bin/init": b"#!/bin/sh\n"}]
        ociarchive.write(home / "driver.tar", layers)
        ociarchive.push(home / "driver.tar", vendor.address, "nvidia/driver", "1")
        put_image(Reference.parse(tool))
        images = []
        for name in (driver, tool):
            place = Reference.parse(name)
            place = place.with_digest(client().head_manifest(place).digest)
            attach(client(), place, SIGNATURE, [SIGNATURE.slot])
            images.append(image_document(name, [], find(client(), place)))
        lock = home / "mirror.lock.json"
        document = {
            "schema": 1,
            "chart": None,
            "inputs": {},
            "images": images,
            "left_out": [],
            "warnings": [],
        }
        lock.write_text(json.dumps(document))
        yield Site(home=home, mirror=mirror.address, lock=lock)
    shutil.rmtree(home)


def regctl(site: Site) -> list[str | Path]:
    program = provided(lambda: registries.program(registries.REGCTL))
    hosts = {site.mirror, *(Reference.parse(name).host for name in site.images)}
    return [program, *(word for host in hosts for word in ("--host", f"reg={host},tls=disabled"))]


# several, put together, are the file that one would be
volumes = pytest.mark.parametrize("volumes", [pytest.param("one", marks=pytest.mark.full), "several"])


@volumes
def test_skopeo_takes_images_out_of_an_archive(site: Site, volumes: str) -> None:
    if gone := missing("skopeo"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    archive = site.archive(volumes)
    for name, digest in site.images.items():
        words = ["copy", "--all", "--preserve-digests", "--dest-tls-verify=false"]
        run("skopeo", *words, f"oci-archive:{archive}:{name}", f"docker://{site.place(name)}")
        assert site.arrived(name) == digest


@volumes
def test_regctl_takes_images_out_of_an_archive(site: Site, volumes: str) -> None:
    archive = site.archive(volumes)
    for name, digest in site.images.items():
        run(*regctl(site), "image", "import", "--name", name, str(site.place(name)), archive)
        assert site.arrived(name) == digest


@volumes
def test_crane_takes_an_unpacked_archive_as_one_index(site: Site, volumes: str) -> None:
    crane = provided(registries.crane)
    folder = site.home / "layout"
    folder.mkdir()
    run("tar", "-xf", site.archive(volumes), "-C", folder)
    run(crane, "push", "--index", folder, f"{site.mirror}/gpu:all")
    for name, digest in site.images.items():
        run(crane, "copy", f"{site.mirror}/gpu@{digest}", str(site.place(name)))
        assert site.arrived(name) == digest


@volumes
@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_containerd_imports_an_archive(site: Site, volumes: str, suite: str) -> None:
    archive = site.archive(volumes)
    with provided(lambda: containerd.launch(site.home / "c", suite=suite)) as daemon:
        if volumes == "several":
            ctr = [daemon.prefix / "usr/bin/ctr", "-a", daemon.address, "-n", containerd.NAMESPACE]
            line = f"cat gpu.tar.* | {shlex.join(map(str, ctr))} image import --no-unpack --all-platforms -"
            run("sh", "-c", line, cwd=archive.parent)
        else:
            daemon.ctr("image", "import", "--no-unpack", "--all-platforms", archive)
        listed = daemon.ctr("image", "check").stdout.splitlines()
        for name, digest in site.images.items():
            assert any(name in line and digest in line and " complete " in line for line in listed)


def filled(site: Site, *command: str | Path, scheme: str = "") -> list[str]:
    """Fill the mirror by the list with a command for each line of it; returns how `verify` is told then."""
    words = ["--to", f"http://{site.mirror}/kse", "--mirror-lock", str(site.lock)]
    assert driverforge(["mirror", "rewrite", *words, "--out", str(site.home / "rewritten")]) == 0
    for line in (site.home / "rewritten/images.txt").read_text().splitlines():
        run(*command, *(f"{scheme}{one}" for one in line.split()))
    return words


def test_regctl_fills_the_mirror_by_the_list(site: Site) -> None:
    words = filled(site, *regctl(site), "image", "copy")
    assert driverforge(["mirror", "verify", "--deep", *words]) == 0


def test_skopeo_fills_the_mirror_by_the_list_and_lists_no_referrers(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    if gone := missing("skopeo"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    plain = ("--src-tls-verify=false", "--dest-tls-verify=false")
    words = filled(site, "skopeo", "copy", "--all", "--preserve-digests", *plain, scheme="docker://")
    capsys.readouterr()
    assert driverforge(["mirror", "verify", "--deep", "--json", *words]) == 1
    states = [one["state"] for one in json.loads(capsys.readouterr().out)["images"]]
    assert states == ["held", "moved"] * 2
    assert driverforge(["mirror", "copy", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 0
    assert driverforge(["mirror", "verify", "--deep", *words]) == 0
