"""`driverforge push` from a real engine to a real registry.

The images are a few bytes: what is in them does not matter here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.engine.buildx import Buildx
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix
from driverforge_build.publish.upload import Publisher, PushReport
from driverforge_build.render.bake import immutable_tag_of, local_reference
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import InputError, UsageError
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import labels
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.jsonschemas import check_document
from support.machines.builderbench import BuilderBench
from support.machines.dockerregistry import registry as serve
from support.machines.engine import Engine
from support.samples.synthetic import all_cells, synthetic_lock
from support.skipping import provided

MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
MARK = "io.driverforge.test=push"
JIT = "debian12-amd64-535.261.03-jit"
KERNELS = (
    "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64",
    "debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64",
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with provided(lambda: serve(tmp_path / "registry")) as address:
        yield address


@pytest.fixture(autouse=True)
def _clean(engine: Engine) -> Iterator[None]:
    yield
    ids = engine.docker("image", "ls", "--quiet", "--filter", f"label={MARK}").stdout.split()
    engine.docker("image", "rm", "--force", *dict.fromkeys(ids), check=False)


@pytest.fixture
def buildx(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Buildx:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    return Buildx()


def context(key: str) -> BuildContext:
    (image,) = image_specs([CELLS[key]], LOCK)
    return context_of(image, resources.templates())


def make_image(engine: Engine, folder: Path, made: BuildContext, *, inputs: str = "") -> None:
    """An image under the name that a build would give it: a layer that all share, and one of its own."""
    folder.mkdir(parents=True)
    (folder / "shared").write_text("user space")
    (folder / "own").write_text(f"modules of {made.image.id} {inputs}")
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY shared /shared\nCOPY own /own\n")
    label = ["--label", f"io.driverforge.inputs={inputs or made.inputs}", "--label", MARK]
    engine.docker(
        "buildx",
        "build",
        "--quiet",
        "--load",
        "--provenance=false",
        *label,
        "--tag",
        local_reference(made),
        folder,
    )


def client() -> RegistryClient:
    return RegistryClient(Session(registry_transport(os.environ, lambda *_: None)))


def push(made: BuildContext, registry: str, buildx: Buildx) -> PushReport:
    publisher = Publisher(registry=f"{registry}/site", engine=buildx, client=client(), given=Given())
    return publisher.push(made, lambda _: None)


def test_two_kernels_images_arrive_with_their_labels_and_share_their_layers(
    engine: Engine, buildx: Buildx, registry: str, tmp_path: Path
) -> None:
    manifests = []
    for key in KERNELS:
        made = context(key)
        make_image(engine, tmp_path / key, made)
        report = push(made, registry, buildx)
        assert report.sent
        remote = Reference.parse(report.reference)
        assert remote.tag == immutable_tag_of(made)
        assert labels(client(), remote, "linux/amd64")["io.driverforge.inputs"] == made.inputs
        alias = Reference.parse(f"{registry}/site/driver:{made.image.alias_tag}")
        manifests.append(client().resolve(alias, "linux/amd64"))
        assert manifests[-1].digest == report.digest == client().resolve(remote, "linux/amd64").digest
    first, second = ([layer.digest for layer in manifest.layers] for manifest in manifests)
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


def test_a_second_push_sends_nothing_and_moves_nothing(
    engine: Engine, buildx: Buildx, registry: str, tmp_path: Path
) -> None:
    made = context(JIT)
    make_image(engine, tmp_path / "image", made)
    first = push(made, registry, buildx)
    second = push(made, registry, buildx)
    assert (second.sent, second.moved) == (False, False)
    assert (second.digest, second.alias_digest) == (first.digest, first.alias_digest)


def test_an_immutable_tag_that_stands_for_something_else_stays(
    engine: Engine, buildx: Buildx, registry: str, tmp_path: Path
) -> None:
    made = context(JIT)
    make_image(engine, tmp_path / "other", made, inputs="0" * 64)
    taken = f"{registry}/site/driver:{immutable_tag_of(made)}"
    engine.docker("tag", local_reference(made), taken)
    engine.docker("push", "--quiet", taken)
    before = client().head_manifest(Reference.parse(taken)).digest
    make_image(engine, tmp_path / "ours", made)
    with pytest.raises(InputError, match="never overwritten"):
        push(made, registry, buildx)
    assert client().head_manifest(Reference.parse(taken)).digest == before


def test_what_the_engine_does_not_have_is_not_pushed(buildx: Buildx, registry: str) -> None:
    with pytest.raises(UsageError, match="has not been built"):
        push(context("debian13-amd64-550.163.01-jit"), registry, buildx)


def test_command_pushes_what_is_built_and_prints_it(engine: Engine, registry: str, tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text(dump_lock(LOCK))
    bench = BuilderBench(
        engine=engine, base="debian:bookworm-slim", folder=tmp_path, lock=tmp_path / "lock.json"
    )
    make_image(engine, tmp_path / "image", context(JIT))
    words = ["push", "--select", JIT, "--registry", f"{registry}/site"]
    planned = bench.driverforge(*words, "--plan", based=False)
    assert (
        f"{registry}/site/driver:{immutable_tag_of(context(JIT))}, alias 535.261.03-debian12"
        in planned.stdout
    )
    document = json.loads(bench.driverforge(*words, "--json", based=False).stdout)
    check_document("push", document)
    (image,) = document["images"]
    assert (image["cell"], image["sent"], document["failed"]) == (JIT, True, {})
    assert (
        client().resolve(Reference.parse(f"{registry}/site/driver:535.261.03-debian12"), "linux/amd64").digest
        == image["digest"]
    )


def test_a_build_that_pushes_takes_up_what_a_killed_one_left_and_then_has_nothing_to_do(
    engine: Engine, registry: str, tmp_path: Path
) -> None:
    (tmp_path / "lock.json").write_text(dump_lock(LOCK))
    bench = BuilderBench(
        engine=engine, base="debian:bookworm-slim", folder=tmp_path, lock=tmp_path / "lock.json"
    )
    make_image(engine, tmp_path / "image", context(JIT))
    words = ["build", "--select", JIT, "--registry", f"{registry}/site", "--push", "--json"]
    for result, sent in (("found", True), ("exists", False)):
        report = tmp_path / f"{result}.xml"
        document = json.loads(bench.driverforge(*words, "--junit", report, based=False).stdout)
        check_document("build", document)
        (cell,) = document["cells"]
        assert (cell["result"], cell["pushed"]["sent"], cell["error"]) == (result, sent, None)
        assert f'name="{JIT}"' in report.read_text()
    alias = Reference.parse(f"{registry}/site/driver:535.261.03-debian12")
    assert client().resolve(alias, "linux/amd64").digest == cell["pushed"]["digest"]
