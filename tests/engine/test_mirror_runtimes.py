"""Real clients pull by the vendor's names, through what `mirror rewrite` wrote, from the mirror alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.cli import run as driverforge
from driverforge_mirror.lists.target import in_registry
from driverforge_oci.reference import Reference
from support.machines import containerd, registry
from support.process import Finished, missing, run
from support.samples.clusternodes import node, write_nodes
from support.samples.vendorregistry import client, copy_image, put_image
from support.skipping import provided

OPERATOR = "r.test:1/nvidia/gpu-operator:v26.7.0"
DRIVER = "r.test:1/nvidia/driver:595.91.07-ubuntu22.04"
# nobody answers at r.test: what comes, comes from the mirror
VALUES = """
operator: {repository: "r.test:1/nvidia"}
validator: {repository: "r.test:1/nvidia"}
driver: {repository: "r.test:1/nvidia", manager: {repository: "r.test:1/nvidia"}}
toolkit: {enabled: false}
devicePlugin: {enabled: false}
dcgmExporter: {enabled: false}
gfd: {enabled: false}
migManager: {enabled: false}
nfd: {enabled: false}
"""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["keep", "host"])
def mirror(request: pytest.FixtureRequest, home: Path) -> Iterator[Path]:
    """The folder that `rewrite` wrote, while the mirror serves what it says."""
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    write_nodes(home, node("gpu-0"))
    (home / "values.yaml").write_text(VALUES)
    lock = str(home / "mirror.lock.json")
    with registry.serve(home / "registry") as server:
        registries = {"r.test:1": f"{server.address}/vendor"}
        images = [OPERATOR, DRIVER, "r.test:1/nvidia/k8s-driver-manager:v0.12.0"]
        for image in images:
            put_image(in_registry(Reference.parse(image), registries))
        given = ["--nodes", str(home / "nodes.json"), "--values", str(home / "values.yaml")]
        asked = ["--registry", f"r.test:1={server.address}/vendor", "--mirror-lock", lock]
        assert driverforge(["mirror", "lock", "--chart", "v26.7.0", *given, *asked]) == 0
        to = ["--to", f"http://{server.address}/site", "--paths", request.param, "--mirror-lock", lock]
        assert driverforge(["mirror", "rewrite", *to, "--out", str(home / "out")]) == 0
        for line in (home / "out/images.txt").read_text().splitlines():
            source, place = map(Reference.parse, line.split())
            copy_image(in_registry(source, registries), place)
        assert driverforge(["mirror", "verify", *to, "--deep"]) == 0
        yield home / "out"


def digest_of(image: str, mirror: Path) -> str:
    """What the mirror has of an image, by the list of what was copied."""
    tag = Reference.parse(image)
    for line in (mirror / "images.txt").read_text().splitlines():
        source, place = map(Reference.parse, line.split())
        if (source.name, place.tag) == (tag.name, tag.tag):
            return client().head_manifest(place).digest
    raise AssertionError(image)


@pytest.mark.parametrize(
    "suite",
    [
        "bookworm",
        "sid",
        pytest.param("trixie", marks=pytest.mark.full(reason="more of the same")),
        *(
            pytest.param(version, marks=pytest.mark.full(reason="compiles containerd"))
            for version in containerd.COMPILED
        ),
    ],
)
def test_containerd_pulls_through_hosts_toml(mirror: Path, home: Path, suite: str) -> None:
    provided(lambda: containerd.programs(suite))
    with provided(lambda: containerd.launch(home / "c", suite=suite)) as daemon:
        for image in (OPERATOR, DRIVER):
            fetched = daemon.ctr(
                "content", "fetch", "--all-platforms", "--hosts-dir", mirror / "certs.d", image
            )
            assert digest_of(image, mirror) in fetched.stdout + daemon.ctr("content", "ls", "-q").stdout
        absent = daemon.ctr(
            "content", "fetch", "--hosts-dir", mirror / "certs.d", "r.test:1/nvidia/none:1", check=False
        )
        assert absent.status != 0
        assert "not found" in absent.stderr


def test_skopeo_reads_the_registries_conf(mirror: Path, home: Path) -> None:
    if gone := missing("skopeo"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    for image in (OPERATOR, DRIVER):
        assert digest_of(image, mirror) in inspect(mirror, image).stdout


def inspect(mirror: Path, image: str) -> Finished:
    conf = mirror / "registries.conf.d/driverforge-mirror.conf"
    asked = ["inspect", "--no-tags", "--format", "{{.Digest}}", f"docker://{image}"]
    return run("skopeo", "--registries-conf", conf, *asked)
